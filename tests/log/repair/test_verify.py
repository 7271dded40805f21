"""What verify finds: the file, the bytes, the rule and how bad it is, for every kind of file."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.log.sound import look, of_file, rules
from tests.log.stores import INDEXES, QUEUE_FILE, SEGMENT, SETTINGS, SLOTS, StoreMaker
from towline.format.files.checkpoint import Checkpoint
from towline.format.files.durable import Durable
from towline.format.files.durable_slots import SIZE
from towline.format.record import record
from towline.log.repair.verify import verify
from towline.log.repair.verify_report import PER_RULE_MAX, Findings, Weight
from towline.log.state.checkpoint_file import CheckpointFile
from towline.log.state.durable_file import DurableFile


def poke(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def queue_file(maker: StoreMaker, number: int, topic: str = "TopicA", queue_id: int = 0) -> tuple[Path, int]:
    """File and byte of an entry."""
    at = number * 20
    directory = maker.store.consumequeue / topic / str(queue_id)
    return directory / f"{at - at % QUEUE_FILE:020d}", at % QUEUE_FILE


def index_files(maker: StoreMaker) -> list[Path]:
    return sorted(maker.store.index.iterdir())


class TestASoundStore:
    def test_has_no_finding(self, maker: StoreMaker) -> None:
        found = look(maker)
        assert found.findings.rows == []
        assert found.weight == 0
        assert (found.log.log_min, found.log.end, found.log.records) == (0, maker.end, len(maker.records))
        assert [(one.verdict, one.used) for one in found.log.segments] == [
            ("sound", SEGMENT),
            ("sound", SEGMENT),
            ("sound", maker.end - 2 * SEGMENT),
        ]

    def test_may_begin_in_the_middle_of_a_log(self, tmp_path: Path) -> None:
        maker = StoreMaker(tmp_path, base=5 * SEGMENT)
        maker.fill(200)
        maker.dispatch(maker.end)
        maker.durable(maker.end, queues=maker.end)
        assert rules(look(maker)) == []

    def test_may_have_entries_of_records_that_were_deleted(self, maker: StoreMaker) -> None:
        maker.path(0).unlink()
        file = DurableFile(maker.root)
        file.save(Durable(flushed=maker.end, segment_base=2 * SEGMENT, queues_durable=maker.end, log_min=SEGMENT))
        file.close()
        assert rules(look(maker)) == []

    def test_may_have_been_shortened_by_a_real_broker(self, maker: StoreMaker) -> None:
        maker.path(0).unlink()
        poke(maker.root / "checkpoint", 0, bytes(8))
        assert rules(look(maker)) == ["CHECKPOINT"]

    def test_may_have_spare_segments(self, maker: StoreMaker) -> None:
        for base in (3, 4):
            maker.write(base * SEGMENT, b"\0")
        assert rules(look(maker)) == []

    def test_of_a_real_broker_has_no_durable_offset_and_no_identity(self, maker: StoreMaker) -> None:
        (maker.root / "durable").unlink()
        (maker.root / "identity.json").unlink()
        assert rules(look(maker)) == []

    def test_is_empty(self, tmp_path: Path) -> None:
        maker = StoreMaker(tmp_path)
        assert rules(look(maker)) == []

    def test_of_a_running_node_is_read_to_where_it_was_dispatched(self, maker: StoreMaker) -> None:
        limit = maker.records[200].at
        maker.write(maker.records[250].at, bytes(4))
        found = verify(maker.store, SETTINGS, limit=limit)
        assert found.findings.rows == []
        assert (found.log.records, found.log.end) == (200, limit)

    def test_without_a_configuration_of_its_topics_is_noted(self, maker: StoreMaker) -> None:
        for name in ("topics.json", "topics.json.bak"):
            (maker.store.config / name).unlink()
        found = look(maker)
        (told,) = found.findings.of("TOPIC_UNKNOWN")
        assert "2 topics have queues, but no configuration: TopicA, TopicB" in told.sentence
        assert found.weight is Weight.NOTE

    def test_may_have_a_queue_id_that_no_reader_takes(self, maker: StoreMaker) -> None:
        (maker.store.consumequeue / "TopicA" / "99999999999999999999").mkdir()
        assert [(row.rule, row.weight) for row in look(maker).findings.rows] == [("FOREIGN", Weight.NOTE)]
        maker.recover()

    def test_of_a_running_node_may_have_files_that_are_being_made(self, maker: StoreMaker) -> None:
        (maker.store.index / "20260101000000000.new").write_bytes(bytes(100))
        (maker.store.config / "topics.json.7.tmp").write_text("{")
        maker.path(3 * SEGMENT).touch()
        queue_file(maker, 500)[0].touch()
        assert rules(verify(maker.store, SETTINGS, limit=maker.end)) == []
        assert len(rules(look(maker))) == 4


# --- one fault each: what to do to the store; the file, the first byte, the rule, the weight

Fault = Callable[[StoreMaker], tuple[Path, int, str, Weight]]


def a_body(maker: StoreMaker) -> tuple[Path, int, str, Weight]:
    stored = maker.records[100]
    maker.write(stored.at + 300, b"\xff")
    return maker.path(stored.at), stored.at, "BODY_CRC", Weight.DAMAGE


def a_record_size(maker: StoreMaker) -> tuple[Path, int, str, Weight]:
    stored = maker.records[100]
    maker.write(stored.at + 1, b"\x01")
    return maker.path(stored.at), stored.at, "SIZE_PAST_END", Weight.DAMAGE


def zeros_inside(maker: StoreMaker) -> tuple[Path, int, str, Weight]:
    stored = maker.records[140]
    maker.write(stored.at, bytes(1000))
    return maker.path(stored.at), stored.at % SEGMENT, "SIZE_TOO_SMALL", Weight.DAMAGE


def a_place(maker: StoreMaker) -> tuple[Path, int, str, Weight]:
    stored = maker.records[100]
    maker.write(stored.at, maker.records[99].data)
    return maker.path(stored.at), stored.at, "PHYSICAL_OFFSET", Weight.DAMAGE


def properties(maker: StoreMaker) -> tuple[Path, int, str, Weight]:
    stored = maker.records[100]
    maker.write(stored.end - 3, b"\0")
    return maker.path(stored.at), stored.at, "PROPERTIES_FORM", Weight.DAMAGE


def the_last_record_of_a_segment(maker: StoreMaker) -> tuple[Path, int, str, Weight]:
    stored = next(one for one in reversed(maker.records) if one.at < SEGMENT)
    maker.write(stored.at + 300, b"\xff")
    return maker.path(0), stored.at, "BODY_CRC", Weight.DAMAGE


def the_first_record_of_a_segment(maker: StoreMaker) -> tuple[Path, int, str, Weight]:
    maker.write(SEGMENT + 4, b"\0")
    return maker.path(SEGMENT), 0, "MAGIC", Weight.DAMAGE


def the_last_record(maker: StoreMaker) -> tuple[Path, int, str, Weight]:
    stored = maker.records[-1]
    maker.write(stored.at + 300, b"\xff")
    return maker.path(stored.at), stored.at % SEGMENT, "BODY_CRC", Weight.DAMAGE


def a_blank(maker: StoreMaker) -> tuple[Path, int, str, Weight]:
    maker.write(maker.blanks[0] + 4, b"\0")
    return maker.path(0), maker.blanks[0], "MAGIC", Weight.DAMAGE


def what_a_blank_says(maker: StoreMaker) -> tuple[Path, int, str, Weight]:
    maker.write(maker.blanks[0] + 3, b"\xff")
    return maker.path(0), maker.blanks[0], "BLANK_REMAINING", Weight.HEALS


def a_segment(maker: StoreMaker) -> tuple[Path, int, str, Weight]:
    maker.path(SEGMENT).unlink()
    return maker.path(SEGMENT), 0, "MISSING", Weight.DAMAGE


def the_first_segment(maker: StoreMaker) -> tuple[Path, int, str, Weight]:
    maker.path(0).unlink()
    return maker.path(0), 0, "START_MISSING", Weight.DAMAGE


def a_short_segment(maker: StoreMaker) -> tuple[Path, int, str, Weight]:
    maker.path(SEGMENT).write_bytes(bytes(100))
    return maker.path(SEGMENT), 0, "SEGMENT_SIZE", Weight.DAMAGE


def a_foreign_file(maker: StoreMaker) -> tuple[Path, int, str, Weight]:
    path = maker.store.commitlog / "notes.txt"
    path.write_bytes(b"hello")
    return path, 0, "FOREIGN", Weight.HEALS


def a_file_without_bytes(maker: StoreMaker) -> tuple[Path, int, str, Weight]:
    maker.path(3 * SEGMENT).touch()
    return maker.path(3 * SEGMENT), 0, "EMPTY_FILE", Weight.HEALS


def behind_the_end(maker: StoreMaker) -> tuple[Path, int, str, Weight]:
    maker.write(maker.end + 500, b"\x07")
    return maker.path(maker.end), maker.end % SEGMENT, "BEHIND_THE_END", Weight.HEALS


def a_spare_segment_with_bytes(maker: StoreMaker) -> tuple[Path, int, str, Weight]:
    maker.write(4 * SEGMENT + 500, b"\x07")
    return maker.path(4 * SEGMENT), 0, "BEHIND_THE_END", Weight.HEALS


def a_torn_tail(maker: StoreMaker) -> tuple[Path, int, str, Weight]:
    maker.write(maker.end, maker.records[5].data[:200])
    return maker.path(maker.end), maker.end % SEGMENT, "TORN_TAIL", Weight.HEALS


def a_queue_entry(maker: StoreMaker) -> tuple[Path, int, str, Weight]:
    path, at = queue_file(maker, 20)
    poke(path, at + 7, b"\xff")
    return path, at, "QUEUE_ENTRY", Weight.HEALS


def a_queue_hole(maker: StoreMaker) -> tuple[Path, int, str, Weight]:
    path, at = queue_file(maker, 20)
    poke(path, at, bytes(20))
    return path, at, "QUEUE_MISSING", Weight.HEALS


def a_queue_file(maker: StoreMaker) -> tuple[Path, int, str, Weight]:
    path, _ = queue_file(maker, 20)
    path.unlink()
    return path, 0, "QUEUE_MISSING", Weight.HEALS


def the_last_queue_file(maker: StoreMaker) -> tuple[Path, int, str, Weight]:
    path = max((maker.store.consumequeue / "TopicB" / "1").iterdir())
    path.unlink()
    return path, 0, "QUEUE_MISSING", Weight.HEALS


def a_queue_file_of_another_size(maker: StoreMaker) -> tuple[Path, int, str, Weight]:
    path, _ = queue_file(maker, 20)
    path.write_bytes(path.read_bytes()[:100])
    return path, 0, "QUEUE_FILE_SIZE", Weight.HEALS


def a_queue_file_too_many(maker: StoreMaker) -> tuple[Path, int, str, Weight]:
    path, _ = queue_file(maker, 500)
    path.write_bytes(bytes(QUEUE_FILE))
    return path, 0, "QUEUE_EXTRA", Weight.HEALS


def an_entry_too_many(maker: StoreMaker) -> tuple[Path, int, str, Weight]:
    end = sum((one.topic, one.queue_id) == ("TopicA", 0) for one in maker.records)
    path, at = queue_file(maker, end + 1)
    poke(path, at + 3, b"\x01")
    return path, at, "QUEUE_EXTRA", Weight.HEALS


def a_queue_too_many(maker: StoreMaker) -> tuple[Path, int, str, Weight]:
    path, _ = queue_file(maker, 0, "TopicC", 3)
    path.parent.mkdir(parents=True)
    path.write_bytes(b"\0" * 11 + b"\x09" + bytes(QUEUE_FILE - 12))
    return path, 0, "QUEUE_FILLER", Weight.HEALS


def an_index_entry(maker: StoreMaker) -> tuple[Path, int, str, Weight]:
    path, at = index_files(maker)[1], 40 + 4 * SLOTS + 20 * 7
    poke(path, at, b"\x11")
    return path, at, "INDEX_ENTRY", Weight.HEALS


def an_index_chain(maker: StoreMaker) -> tuple[Path, int, str, Weight]:
    path, at = index_files(maker)[1], 40 + 4 * SLOTS + 20 * 7
    poke(path, at + 16, (7).to_bytes(4, "big"))  # a cycle
    return path, at, "INDEX_CHAIN", Weight.HEALS


def an_index_slot(maker: StoreMaker) -> tuple[Path, int, str, Weight]:
    path = index_files(maker)[1]
    cells = np.frombuffer(path.read_bytes()[40 : 40 + 4 * SLOTS], ">i4")
    slot = int(np.flatnonzero(cells)[0])
    poke(path, 40 + 4 * slot, bytes(4))
    return path, 40 + 4 * slot, "INDEX_SLOT", Weight.HEALS


def an_index_header(maker: StoreMaker) -> tuple[Path, int, str, Weight]:
    poke(index_files(maker)[0], 20, b"\x01")
    return index_files(maker)[0], 0, "INDEX_HEADER", Weight.HEALS


def an_index_file(maker: StoreMaker) -> tuple[Path, int, str, Weight]:
    files = index_files(maker)
    files[-1].unlink()
    return files[-2], 40 + 4 * SLOTS + 20 * INDEXES, "INDEX_MISSING", Weight.HEALS


def a_short_index_file(maker: StoreMaker) -> tuple[Path, int, str, Weight]:
    path = index_files(maker)[0]
    path.write_bytes(path.read_bytes()[:100])
    return path, 0, "INDEX_SIZE", Weight.HEALS


def a_strange_name_in_the_index(maker: StoreMaker) -> tuple[Path, int, str, Weight]:
    (maker.store.index / "garbage").write_bytes(b"x")
    return maker.store.index / "garbage", 0, "FOREIGN", Weight.HEALS


def a_durable_slot(maker: StoreMaker) -> tuple[Path, int, str, Weight]:
    for _ in range(2):  # so that both slots were written
        maker.durable(maker.end, queues=maker.end)
    poke(maker.root / "durable", 20, b"\x99")
    return maker.root / "durable", 0, "DURABLE_SLOT", Weight.HEALS


def both_durable_slots(maker: StoreMaker) -> tuple[Path, int, str, Weight]:
    (maker.root / "durable").write_bytes(b"\x01" * SIZE)
    return maker.root / "durable", 0, "DURABLE", Weight.DAMAGE


def a_failed_sync(maker: StoreMaker) -> tuple[Path, int, str, Weight]:
    file = DurableFile(maker.root)
    file.save(replace(file.load() or Durable(), sync_failed=True))
    file.close()
    return maker.root / "durable", 0, "SYNC_FAILED", Weight.DAMAGE


def a_checkpoint(maker: StoreMaker) -> tuple[Path, int, str, Weight]:
    poke(maker.root / "checkpoint", 7, b"\x99")
    return maker.root / "checkpoint", 0, "CHECKPOINT", Weight.HEALS


def a_short_checkpoint(maker: StoreMaker) -> tuple[Path, int, str, Weight]:
    (maker.root / "checkpoint").write_bytes(bytes(20))
    return maker.root / "checkpoint", 0, "CHECKPOINT", Weight.HEALS


def a_checkpoint_ahead(maker: StoreMaker) -> tuple[Path, int, str, Weight]:
    CheckpointFile(maker.root).save(Checkpoint(logics_msg_timestamp=maker.records[-1].timestamp + 1))
    return maker.root / "checkpoint", 8, "CHECKPOINT_AHEAD", Weight.HEALS


def the_identity(maker: StoreMaker) -> tuple[Path, int, str, Weight]:
    (maker.root / "identity.json").write_text("{")
    return maker.root / "identity.json", 0, "IDENTITY", Weight.DAMAGE


def a_topic_file(maker: StoreMaker) -> tuple[Path, int, str, Weight]:
    (maker.store.config / "topics.json").write_text("{")
    return maker.store.config / "topics.json", 0, "CONFIG", Weight.HEALS


def both_topic_files(maker: StoreMaker) -> tuple[Path, int, str, Weight]:
    for name in ("topics.json", "topics.json.bak"):
        (maker.store.config / name).write_text("[]")
    return maker.store.config / "topics.json", 0, "CONFIG_LOST", Weight.DAMAGE


def a_torn_backup(maker: StoreMaker) -> tuple[Path, int, str, Weight]:
    (maker.store.config / "topics.json.bak").write_text("")
    return maker.store.config / "topics.json.bak", 0, "CONFIG", Weight.HEALS


def no_durable_offset(maker: StoreMaker) -> tuple[Path, int, str, Weight]:
    (maker.root / "durable").unlink()
    return maker.root / "durable", 0, "NO_DURABLE", Weight.HEALS


def topics_of_another_content(maker: StoreMaker) -> tuple[Path, int, str, Weight]:
    path = maker.store.config / "topics.json"
    path.write_bytes((maker.store.config / "consumerOffset.json").read_bytes())
    return path, 0, "CONFIG", Weight.HEALS


def a_segment_beyond_every_log(maker: StoreMaker) -> tuple[Path, int, str, Weight]:
    path = maker.store.commitlog / "18446744073709486080"
    path.write_bytes(bytes(SEGMENT))
    return path, 0, "FOREIGN", Weight.HEALS


def a_link_that_leads_nowhere(maker: StoreMaker) -> tuple[Path, int, str, Weight]:
    path = maker.store.consumequeue / "TopicA" / "notes"
    path.symlink_to(maker.root / "nowhere")
    return path, 0, "FOREIGN", Weight.HEALS


def a_link_that_leads_nowhere_in_a_queue(maker: StoreMaker) -> tuple[Path, int, str, Weight]:
    path = maker.store.consumequeue / "TopicA" / "0" / "notes"
    path.symlink_to(maker.root / "nowhere")
    return path, 0, "FOREIGN", Weight.HEALS


def a_directory_for_a_config_file(maker: StoreMaker) -> tuple[Path, int, str, Weight]:
    path = maker.store.config / "x.json"
    path.mkdir()
    return path, 0, "CONFIG_LOST", Weight.DAMAGE


def a_directory_for_the_checkpoint(maker: StoreMaker) -> tuple[Path, int, str, Weight]:
    path = maker.root / "checkpoint"
    path.unlink()
    path.mkdir()
    return path, 0, "CHECKPOINT", Weight.HEALS


def a_directory_for_the_durable_offset(maker: StoreMaker) -> tuple[Path, int, str, Weight]:
    path = maker.root / "durable"
    path.unlink()
    path.mkdir()
    return path, 0, "DURABLE", Weight.DAMAGE


def a_staged_file(maker: StoreMaker) -> tuple[Path, int, str, Weight]:
    maker.store.staging.mkdir()
    (maker.store.staging / "next").write_bytes(bytes(10))
    return maker.store.staging / "next", 0, "LEFTOVER", Weight.HEALS


FAULTS: list[Fault] = [
    a_body,
    a_record_size,
    zeros_inside,
    a_place,
    properties,
    the_last_record_of_a_segment,
    the_first_record_of_a_segment,
    the_last_record,
    a_blank,
    what_a_blank_says,
    a_segment,
    the_first_segment,
    a_short_segment,
    a_foreign_file,
    a_file_without_bytes,
    behind_the_end,
    a_spare_segment_with_bytes,
    a_torn_tail,
    a_queue_entry,
    a_queue_hole,
    a_queue_file,
    the_last_queue_file,
    a_queue_file_of_another_size,
    a_queue_file_too_many,
    an_entry_too_many,
    a_queue_too_many,
    an_index_entry,
    an_index_chain,
    an_index_slot,
    an_index_header,
    an_index_file,
    a_short_index_file,
    a_strange_name_in_the_index,
    a_durable_slot,
    both_durable_slots,
    a_failed_sync,
    a_checkpoint,
    a_short_checkpoint,
    a_checkpoint_ahead,
    the_identity,
    a_topic_file,
    both_topic_files,
    a_torn_backup,
    no_durable_offset,
    topics_of_another_content,
    a_segment_beyond_every_log,
    a_link_that_leads_nowhere,
    a_link_that_leads_nowhere_in_a_queue,
    a_directory_for_a_config_file,
    a_directory_for_the_checkpoint,
    a_directory_for_the_durable_offset,
    a_staged_file,
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
class TestAFault:
    def test_is_found_by_file_byte_and_rule_and_weighed(self, maker: StoreMaker, fault: Fault) -> None:
        path, at, rule, weight = fault(maker)
        found = look(maker)
        told = [row for row in of_file(found, path) if row.rule == rule]
        assert told, found.findings.rows
        assert (told[0].at, told[0].weight) == (at, weight)
        assert found.weight == weight, found.findings.rows
        assert all(row.sentence and row.remedy for row in found.findings.rows)

    def test_is_only_looked_at(self, maker: StoreMaker, fault: Fault) -> None:
        fault(maker)
        before = {path: path.read_bytes() for path in maker.root.rglob("*") if path.is_file()}
        look(maker)
        assert {path: path.read_bytes() for path in maker.root.rglob("*") if path.is_file()} == before


class TestSeveralFaults:
    def test_of_a_log_are_all_found_and_sound_records_between_them_counted(self, maker: StoreMaker) -> None:
        for number in (10, 100, 101, 200):
            maker.write(maker.records[number].at + 300, b"\xff")
        found = look(maker)
        stretches = [
            (maker.records[first].at, maker.records[last].end) for first, last in ((10, 10), (100, 101), (200, 200))
        ]
        assert [(damage.start, damage.end) for damage in found.log.damages] == stretches
        assert found.log.records == len(maker.records) - 4
        assert [one.verdict for one in found.log.segments] == ["damaged", "damaged", "sound"]

    def test_a_record_inside_of_a_body_is_not_taken_for_the_next(self, tmp_path: Path) -> None:
        maker = StoreMaker(tmp_path)
        maker.fill(3)
        at = maker.end
        inner = record.encode(
            record.Record(topic=b"X", physical_offset=at + record.LAYOUT.size, store_timestamp=1, body=b"inner")
        )
        outer = maker.append(inner + bytes(100))
        maker.fill(3)
        maker.durable(maker.end)
        assert maker.log_bytes()[at + 88 : at + 88 + len(inner)] == inner
        maker.write(outer.at + 12, b"\xff")  # QUEUEID: no check of a record without property CRC covers it
        maker.write(outer.end - 1, b"\0")
        assert look(maker).log.damages[0].end == outer.end

    def test_a_gap_in_a_queues_numbers_is_found(self, tmp_path: Path) -> None:
        maker = StoreMaker(tmp_path)
        maker.fill(10)
        stored = maker.records[4]
        at = record.LAYOUT.offset["queue_offset"]
        maker.write(stored.at + at, (stored.queue_offset + 3).to_bytes(8, "big"))
        maker.durable(maker.end)
        found = look(maker)
        assert "is number 4 of queue 0 of TopicA, where number 1 is due" in found.findings.of("QUEUE_GAP")[0].sentence

    def test_a_number_given_twice_is_found(self, tmp_path: Path) -> None:
        maker = StoreMaker(tmp_path)
        maker.fill(10)
        stored = maker.records[8]
        maker.write(stored.at + record.LAYOUT.offset["queue_offset"], bytes(8))
        maker.durable(maker.end)
        (told,) = look(maker).findings.of("QUEUE_TWICE")
        assert told.at == stored.at

    def test_times_that_go_back_are_noted(self, tmp_path: Path) -> None:
        maker = StoreMaker(tmp_path)
        maker.fill(10)
        stored = maker.records[8]
        maker.write(stored.at + record.LAYOUT.offset["store_timestamp"], (5).to_bytes(8, "big"))
        maker.durable(maker.end)
        (told,) = look(maker).findings.of("TIME_ORDER")
        assert (told.at, told.weight) == (stored.at, Weight.NOTE)

    def test_no_file_floods_the_report(self, tmp_path: Path) -> None:
        findings = Findings(tmp_path)
        for number in range(PER_RULE_MAX + 7):
            findings.add(tmp_path / "index" / "1", number, number + 1, "INDEX_SLOT")
        assert len(findings.rows) == PER_RULE_MAX
        assert findings.dropped == {("index/1", "INDEX_SLOT"): 7}
