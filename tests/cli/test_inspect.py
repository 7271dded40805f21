"""`towline inspect` on files made by hand: no node runs here."""

import os
from pathlib import Path

import numpy as np
import pytest

from tests.log import stores as made_of
from tests.log.stores import StoreMaker
from towline.cli import layouts
from towline.format.files import checkpoint, consume_queue, consume_queue_ext, durable_slots, index_file
from towline.format.files.durable import Durable
from towline.format.files.epochs import Epoch
from towline.format.record import blank, record
from towline.format.record.properties import encode as encode_properties
from towline.log.queues.consume_queue_ext import ConsumeQueueExtFiles
from towline.log.recovery.truncation import truncate
from towline.log.state.epoch_file import EpochFile
from towline.log.state.truncation_file import Truncation, TruncationFile

GOLDEN = Path(__file__).with_name("layout.txt")
SEGMENT = 4096
SLOTS, INDEXES = 10, 20
KEY = "N14228"


@pytest.fixture
def store(tmp_path):
    """Two segments, one queue of three entries, one index file with one key."""
    first = record.encode(
        record.Record(
            topic=b"flights",
            body=b"[bold]one",
            properties=encode_properties([("KEYS", f"{KEY} UA1545"), ("TAGS", "UA")]),
            queue_id=1,
            physical_offset=0,
        )
    )
    log = tmp_path / "commitlog"
    log.mkdir()
    (log / f"{0:020d}").write_bytes((first + blank.encode(SEGMENT - len(first))).ljust(SEGMENT, b"\0"))
    (log / f"{SEGMENT:020d}").write_bytes(bytes(SEGMENT))
    queue = tmp_path / "consumequeue" / "flights" / "1"
    queue.mkdir(parents=True)
    entries = consume_queue.FILLER + b"".join(consume_queue.encode(n, len(first), 7) for n in range(3))
    (queue / f"{0:020d}").write_bytes(entries.ljust(10 * consume_queue.SIZE, b"\0"))
    (tmp_path / "index").mkdir()
    (tmp_path / "index" / "20130101000000000").write_bytes(index_bytes())
    return tmp_path


def index_bytes() -> bytes:
    hashed = index_file.key_hash("flights", KEY)
    data = bytearray(index_file.file_size(SLOTS, INDEXES))
    header = index_file.Header(begin_timestamp=5000, hash_slot_count=1, index_count=2)
    data[: index_file.HEADER_SIZE] = index_file.encode_header(header)
    slot = index_file.slot_at(index_file.slot_of(hashed, SLOTS))
    data[slot : slot + 4] = (1).to_bytes(4, "big")
    at = index_file.entry_at(SLOTS, 1)
    data[at : at + index_file.ENTRY_SIZE] = index_file.encode_entry(index_file.Entry(hashed, 0, 3, 0))
    return bytes(data)


class TestInspectRecord:
    def test_shows_every_field_and_the_properties(self, store, towline):
        shown = towline("inspect", "record", "--store", store, "--offset", 0, "--json").document
        assert shown["kind"] == "record"
        assert (shown["topic"], shown["queue_id"], shown["body"]) == ("flights", 1, "[bold]one")
        assert shown["properties"] == {"KEYS": f"{KEY} UA1545", "TAGS": "UA"}

    def test_prints_a_body_with_square_brackets_as_it_is(self, store, towline):
        assert "[bold]one" in towline("inspect", "record", "--store", store, "--offset", 0).out

    def test_says_where_the_segment_goes_on_after_a_blank(self, store, towline):
        size = len(record.encode(record.Record(topic=b"flights", body=b"[bold]one"))) + len(
            encode_properties([("KEYS", f"{KEY} UA1545"), ("TAGS", "UA")])
        )
        shown = towline("inspect", "record", "--store", store, "--offset", size, "--json").document
        assert (shown["kind"], shown["next"]) == ("blank", SEGMENT)

    def test_says_where_nothing_was_written(self, store, towline):
        assert (
            towline("inspect", "record", "--store", store, "--offset", SEGMENT, "--json").document["kind"] == "nothing"
        )

    def test_refuses_an_offset_beyond_the_log_with_its_bounds(self, store, towline):
        done = towline("inspect", "record", "--store", store, "--offset", 9999, "--json")
        assert done.status == 1
        assert done.document["error"] == "NotInLog"
        assert f"0 to {2 * SEGMENT}" in done.document["sentence"]

    def test_refuses_an_offset_inside_a_record_naming_the_rule(self, store, towline):
        done = towline("inspect", "record", "--store", store, "--offset", 4, "--json")
        assert done.status == 1
        assert done.document["error"] == "MalformedRecord"


class TestInspectQueue:
    def test_lists_the_queues_with_their_bounds(self, store, towline):
        shown = towline("inspect", "queue", "--store", store, "--json").document
        assert shown["queues"] == [{"topic": "flights", "queue_id": 1, "min_offset": 1, "max_offset": 4}]

    def test_lists_entries_from_the_first_that_is_no_filler(self, store, towline):
        shown = towline("inspect", "queue", "--store", store, "--topic", "flights", "--queue", 1, "--json").document
        assert [entry["queue_offset"] for entry in shown["entries"]] == [1, 2, 3]
        assert [entry["physical_offset"] for entry in shown["entries"]] == [0, 1, 2]

    def test_shows_the_units_that_entries_point_to(self, store, towline):
        units = consume_queue_ext.encode_units(
            np.array([7, -8]), np.array([1000, 1001]), np.array([[1, 255]] * 2, np.uint8)
        )
        addresses, end = ConsumeQueueExtFiles(store / "consumequeue_ext", 400, 2).write("flights", 1, 0, units)
        codes = [*addresses.tolist(), consume_queue_ext.address(end)]  # the last of which nothing was written
        queue = store / "consumequeue" / "flights" / "1" / f"{0:020d}"
        entries = consume_queue.FILLER + b"".join(consume_queue.encode(n, 100, code) for n, code in enumerate(codes))
        queue.write_bytes(entries.ljust(10 * consume_queue.SIZE, b"\0"))
        command = ("inspect", "queue", "--store", store, "--topic", "flights", "--queue", 1)
        shown = towline(*command, "--json").document["entries"]
        assert [entry["tags_code"] for entry in shown] == [7, -8, codes[2]]
        assert shown[1]["unit"] == {"at": 22, "found": True, "store_timestamp": 1001, "bitmap": "01ff"}
        assert shown[2]["unit"] == {"at": end, "found": False}
        text = towline(*command).out
        assert "01ff" in text
        assert "no unit is there" in text

    def test_lists_no_more_than_asked_for(self, store, towline):
        command = ("inspect", "queue", "--store", store, "--topic", "flights", "--queue", 1, "--from", 2, "--count", 1)
        assert [entry["queue_offset"] for entry in towline(*command, "--json").document["entries"]] == [2]

    def test_says_which_queues_there_are_where_it_has_not_the_one_asked_for(self, store, towline):
        done = towline("inspect", "queue", "--store", store, "--topic", "nothing")
        assert done.status == 1
        assert "has no queue 0 of nothing; it has flights/1" in done.err


class TestInspectIndex:
    def test_shows_headers_and_the_chain_of_a_key_checked_against_the_record(self, store, towline):
        shape = ("--slots", SLOTS, "--indexes", INDEXES)
        shown = towline("inspect", "index", "--store", store, "--topic", "flights", "--key", KEY, *shape, "--json")
        (file,) = shown.document["files"]
        assert file["index_count"] == 2
        (link,) = file["chain"]
        assert (link["physical_offset"], link["store_timestamp_s"], link["holds"]) == (0, 8, "the key")

    def test_refuses_a_file_of_another_shape_with_both_sizes(self, store, towline):
        done = towline("inspect", "index", "--store", store, "--json")
        assert done.status == 1
        assert str(index_file.file_size(SLOTS, INDEXES)) in done.document["sentence"]

    def test_wants_topic_and_key_together(self, store, towline):
        assert towline("inspect", "index", "--store", store, "--key", KEY).status == 2


def test_inspect_checkpoint_shows_its_fields(tmp_path, towline):
    (tmp_path / "checkpoint").write_bytes(checkpoint.encode(checkpoint.Checkpoint(physic_msg_timestamp=7)))
    assert towline("inspect", "checkpoint", "--store", tmp_path, "--json").document["physic_msg_timestamp"] == 7


def test_inspect_durable_shows_the_newest_state(tmp_path, towline):
    (tmp_path / "durable").write_bytes(durable_slots.first(Durable(flushed=99)))
    shown = towline("inspect", "durable", "--store", tmp_path, "--json").document
    assert (shown["sequence"], shown["flushed"], shown["sync_failed"]) == (1, 99, False)


def test_a_file_that_is_not_there_is_named(tmp_path, towline):
    done = towline("inspect", "checkpoint", "--store", tmp_path, "--json")
    assert done.status == 1
    assert str(tmp_path / "checkpoint") in done.document["sentence"]


class TestInspectLayout:
    def test_prints_what_was_agreed_on(self, towline):
        """A changed line is a change of a format: it needs a new version and a note about moving to it."""
        printed = towline("inspect", "layout").out
        if os.environ.get("TOWLINE_REWRITE"):
            GOLDEN.write_text(printed, encoding="utf-8")
        assert printed == GOLDEN.read_text(encoding="utf-8")

    def test_knows_every_layout_once(self, towline):
        names = [one["name"] for one in towline("inspect", "layout", "--json").document["layouts"]]
        assert names == [one.name for one in layouts.EVERY]
        assert len(set(names)) == len(names)


@pytest.fixture(scope="module")
def cut(tmp_path_factory):
    """Two thirds of a log were not its master's; later a crash left bytes behind the end."""
    made = StoreMaker(tmp_path_factory.mktemp("cut"))
    made.fill(300)
    made.dispatch(made.end)
    made.durable(made.end)
    point = made.records[100].at
    EpochFile(made.store).save((Epoch(256, 0), Epoch(513, made.records[250].at)))
    facts = {"point": point, "end": made.end, "epoch": 513, "node": 0, "master": 1, "why": "gone on", "time": 5}
    TruncationFile(made.store).save(Truncation(**facts, accept_loss=True))
    truncate(made.store, made_of.SEGMENT, made_of.QUEUE_FILE)
    made.write(point, made.records[100].data[:90])
    made.recover()
    return made


class TestInspectDiverged:
    def test_lists_what_was_kept_and_why(self, cut, towline):
        files = towline("inspect", "diverged", "--store", cut.root, "--json").document["files"]
        names = [f"{at:020d}-5.log" for at in (cut.records[100].at, made_of.SEGMENT, 2 * made_of.SEGMENT)]
        kept = [row for row in files if row["why"] == "gone on"]
        assert [row["file"] for row in kept] == names
        assert [row["epochs"] for row in kept] == [[256], [256, 513], [513]]
        assert (sum(row["records"] for row in kept), {row["master"] for row in kept}) == (200, {1})
        (torn,) = [row for row in files if row not in kept]
        assert (torn["records"], torn["master"], torn["end"] - torn["start"]) == (0, None, 90)
        printed = towline("inspect", "diverged", "--store", cut.root).out
        assert all(name in printed for name in names)

    def test_shows_the_records_of_a_file(self, cut, towline):
        name = f"{cut.records[100].at:020d}-5.log"
        command = ("inspect", "diverged", "--store", cut.root, "--file", name)
        shown = towline(*command, "--count", 3, "--json").document["shown"]
        assert [row["physical_offset"] for row in shown] == [one.at for one in cut.records[100:103]]
        assert [row["properties"]["KEYS"] for row in shown] == ["k100", "k101", "k102"]
        after = towline(*command, "--from", cut.records[102].at, "--count", 1, "--json").document["shown"]
        assert after == shown[2:]
        one = towline(*command, "--offset", cut.records[101].at, "--json").document
        assert {name: one[name] for name in shown[1]} == shown[1]
        assert "k102" in towline(*command).out

    def test_what_is_not_there_is_refused_by_name(self, cut, towline):
        command = ("inspect", "diverged", "--store", cut.root)
        assert "has no file diverged/nothing.log; it has" in towline(*command, "--file", "nothing.log").err
        assert towline(*command, "--offset", 5).status == 2
        done = towline(*command, "--file", f"{cut.records[100].at:020d}-5.log", "--offset", 5)
        assert (done.status, "5" in done.err) == (1, True)

    def test_a_store_that_lost_nothing_has_an_empty_list(self, tmp_path, towline):
        assert towline("inspect", "diverged", "--store", tmp_path, "--json").document == {"files": []}
