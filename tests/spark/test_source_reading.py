"""What the plan chooses and what its tasks read, against rows that no reader made. Without a JVM."""

import json
import re

import numpy as np
import pytest
from pyspark.sql.datasource import (
    InputPartition,
)
from pyspark.sql.types import LongType, StringType, StructField, StructType

from towline.arrow.columns import COLUMNS
from towline.arrow.errors import DamagedRecord, UnknownColumn
from towline.format.files.consume_queue import ENTRY
from towline.format.files.consume_queue import encode as encode_entry
from towline.format.files.consume_queue_ext import address
from towline.format.record.compression import Compressor
from towline.format.record.record import LAYOUT, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK, Record, encode
from towline.log.queues.consume_queue import ConsumeQueueFiles
from towline.spark import planning
from towline.spark.errors import (
    BadOption,
    DamagedQueue,
    MessagesGone,
    NotHere,
    UnknownOption,
    UnknownRead,
    WrongColumnType,
)
from towline.spark.options import SourceOptions
from towline.spark.planning import ReadPlan, divided, log_partitions, queue_partitions
from towline.spark.reading import LogPartition, LogSplit
from towline.spark.source import TowlineDataSource
from towline.spark.stores import StoreView

from .reads import by_place, only, planned, read, read_plan, read_source, reader
from .stores import NOON, QUEUE_FILE, SEGMENT, MadeStore

NARROW = ("topic", "queueId", "queueOffset", "commitLogOffset")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return MadeStore(tmp_path_factory.mktemp("made") / "store").whole()


@pytest.fixture
def own(tmp_path):
    """For a test that breaks it."""
    return MadeStore(tmp_path / "store").whole()


class TestEverything:
    def test_scan(self, made):
        plan = planned(made.root)
        assert plan.mode == "scan"
        assert read_plan(plan) == made.rows

    def test_queues(self, made):
        plan = planned(made.root, readMode="queue")
        assert plan.mode == "queue"
        rows = read_plan(plan)
        assert by_place(rows) == made.rows
        places = [(row["topic"], row["queueId"], row["queueOffset"]) for row in rows]
        assert places == sorted(places)

    def test_columns_come_in_the_order_that_was_asked_for(self, made):
        rows = read(made.root, ("tags", "topic"))
        assert rows == only(made.rows, ("tags", "topic"))
        assert list(rows[0]) == ["tags", "topic"]

    def test_tasks_that_run_twice_give_the_same(self, made):
        plan = planned(made.root, minPartitions="4")
        assert len(plan.partitions) > 1
        assert read_plan(plan) == read_plan(plan) == made.rows

    def test_batches_are_cut_by_rows_and_by_bytes(self, made):
        for options in ({"batchRows": "50"}, {"batchBytes": "16k"}):
            plan = planned(made.root, **options)
            sizes = [batch.num_rows for part in plan.partitions for batch in part.read(plan.reading)]
            assert max(sizes) <= 50
            assert sum(sizes) == len(made.rows)

    def test_a_task_that_began_late_reads_no_more_than_the_others(self, own):
        """The end is the plan's: what is written meanwhile is for the next read."""
        plan = planned(own.root)
        before = list(own.rows)
        own.fill(50).safe()
        assert read_plan(plan) == before

    @pytest.mark.parametrize("tasks", ["1", "7"])
    def test_of_a_backup(self, made, tmp_path, tasks):
        """Its last segment is as long as what it holds, and it has no queues."""
        backup = made.backup(tmp_path / "backup")
        assert read(backup, minPartitions=tasks) == [row | {"brokerName": "broker-x"} for row in made.rows]
        wanted = [row["commitLogOffset"] for row in made.rows if row["topic"] == "TopicB"]
        assert [row["commitLogOffset"] for row in read(backup, subscribe="TopicB")] == wanted

    def test_of_a_log_that_begins_inside_a_segment(self, own):
        """As a slave's, which was seeded: what stands before is nothing."""
        first = own.rows[130]["commitLogOffset"]
        assert first > SEGMENT / 2
        own.write(first - first % SEGMENT, bytes(first % SEGMENT))
        for base in range(0, first - first % SEGMENT, SEGMENT):
            own.path(base).unlink()
        own.safe(log_min=first)
        for mode in ("scan", "queue"):
            assert by_place(read(own.root, readMode=mode)) == own.rows[130:]


class TestChosen:
    def test_one_topic_of_many_is_read_by_its_queues(self, made):
        few = MadeStore(made.root.parent / "few").fill(400, topics=8).dispatch().safe()
        plan = planned(few.root, subscribe="TopicB")
        assert plan.mode == "queue"
        assert by_place(read_plan(plan)) == [row for row in few.rows if row["topic"] == "TopicB"]

    def test_what_queues_do_not_have_yet_is_read_from_the_log(self, tmp_path):
        """reput may be behind what is confirmed."""
        few = MadeStore(tmp_path / "few").fill(400, topics=8).dispatch()
        few.fill(60, topics=8).safe()
        for mode in ("auto", "queue"):
            plan = planned(few.root, subscribe="TopicB", readMode=mode)
            assert plan.mode == "queue"
            assert by_place(read_plan(plan)) == [row for row in few.rows if row["topic"] == "TopicB"]

    def test_far_behind_or_after_a_crash_queues_are_not_asked(self, tmp_path):
        few = MadeStore(tmp_path / "few").fill(100, topics=8).dispatch()
        few.fill(400, topics=8).safe()
        expected = [row for row in few.rows if row["topic"] == "TopicB"]
        assert planned(few.root, subscribe="TopicB").mode == "scan"
        assert read(few.root, subscribe="TopicB") == expected
        few.dispatch()
        assert planned(few.root, subscribe="TopicB").mode == "queue"
        few.store.abort.touch()
        assert planned(few.root, subscribe="TopicB").mode == "scan"
        assert read(few.root, subscribe="TopicB") == expected

    def test_most_of_a_store_is_scanned(self, made):
        plan = planned(made.root, subscribe="TopicA, TopicB")
        assert plan.mode == "scan"
        assert read_plan(plan) == [row for row in made.rows if row["topic"] in ("TopicA", "TopicB")]

    @pytest.mark.parametrize("mode", ["scan", "queue"])
    @pytest.mark.parametrize(
        ("options", "wanted"),
        [
            ({"subscribePattern": "Topic[AC]"}, lambda row: row["topic"] != "TopicB"),
            (
                {"assign": '{"TopicB": [1], "TopicC": [0]}'},
                lambda row: (row["topic"], row["queueId"]) in (("TopicB", 1), ("TopicC", 0)),
            ),
            ({"subExpression": "tag1 || tag3"}, lambda row: row["tags"] in ("tag1", "tag3")),
            ({"keys": "k7,k11"}, lambda row: row["keys"] in ("k7 all", "k11 all")),
            ({"uniqKeys": "U00000123"}, lambda row: row["uniqKey"] == "U00000123"),
            (
                {"startingTimestamp": str(NOON + 100_000), "endingTimestamp": str(NOON + 200_000)},
                lambda row: NOON + 100_000 <= row["storeTimestamp"].timestamp() * 1000 < NOON + 200_000,
            ),
            (
                {"startingOffsets": '{"TopicA": {"0": 20, "1": -1}}', "endingOffsets": '{"TopicB": {"0": 30}}'},
                lambda row: {
                    ("TopicA", 0): row["queueOffset"] >= 20,
                    ("TopicA", 1): False,
                    ("TopicB", 0): row["queueOffset"] < 30,
                }.get((row["topic"], row["queueId"]), True),
            ),
        ],
        ids=["pattern", "assign", "tags", "keys", "uniqKeys", "timestamps", "offsets"],
    )
    def test_options_choose_the_same_in_both_modes(self, made, mode, options, wanted):
        expected = [row for row in made.rows if wanted(row)]
        assert expected
        plan = planned(made.root, readMode=mode, **options)
        assert plan.mode == mode
        assert by_place(read_plan(plan)) == expected

    def test_physical_offsets_need_not_be_boundaries(self, made):
        start, end = made.rows[100]["commitLogOffset"] + 1, made.rows[300]["commitLogOffset"] + 1
        plan = planned(made.root, startingPhysicalOffset=str(start), endingPhysicalOffset=str(end))
        assert read_plan(plan) == made.rows[101:301]

    def test_segments_outside_of_the_offsets_are_not_opened(self, made):
        plan = planned(made.root, startingPhysicalOffset=str(SEGMENT), endingPhysicalOffset=str(2 * SEGMENT))
        assert {base for part in plan.partitions for base in part.facts.lengths} == {SEGMENT}

    def test_segments_before_and_after_a_time_are_not_opened(self, made):
        view = StoreView.open(made.root)
        times = [view.first_store_time(base) for base in view.segments]
        assert len(times) > 3
        slack = planning.CLOCK_SLACK_MS
        plan = planned(
            made.root, startingTimestamp=str(times[2] + slack + 1), endingTimestamp=str(times[2] + slack + 2)
        )
        assert min(base for part in plan.partitions for base in part.facts.lengths) == view.segments[2]

    def test_starting_at_the_end_is_refused(self, made):
        with pytest.raises(BadOption, match="startingOffsets"):
            planned(made.root, startingOffsets="latest")

    def test_an_offset_behind_the_end_is_refused(self, made):
        with pytest.raises(BadOption, match="ends at"):
            planned(made.root, startingOffsets='{"TopicA": {"0": 100000}}')

    def test_a_wrong_topic_is_named_with_the_nearest(self, made):
        with pytest.raises(UnknownRead, match="did you mean TopicA"):
            planned(made.root, subscribe="TopicAA")
        with pytest.raises(UnknownRead, match="queue 9 of topic TopicA"):
            planned(made.root, startingOffsets='{"TopicA": {"9": 0}}')


class TestHidden:
    @pytest.fixture
    def store(self, tmp_path):
        made = MadeStore(tmp_path / "store").fill(30)
        made.put("RMQ_SYS_TRACE_TOPIC", body=b"system")
        made.put("RMQ_SYS_TRANS_HALF_TOPIC", body=b"half", sys_flag=TRANSACTION_PREPARED)
        made.put("TopicA", body=b"rolled back", sys_flag=TRANSACTION_ROLLBACK)
        made.put("%RETRY%group", body=b"again")
        made.put("%DLQ%group", body=b"dead")
        return made.dispatch().safe()

    @pytest.mark.parametrize("mode", ["scan", "queue"])
    def test_system_topics_and_halves(self, store, mode):
        hidden = {b"system", b"half", b"rolled back"}
        assert by_place(read(store.root, readMode=mode)) == [row for row in store.rows if row["body"] not in hidden]

    def test_shown_where_asked_for(self, store):
        assert read(store.root, includeSystemTopics="true", includeHalves="true") == store.rows
        assert [row["body"] for row in read(store.root, subscribe="RMQ_SYS_TRACE_TOPIC")] == [b"system"]


def test_the_tags_code_of_a_delayed_message_is_when_it_is_due(tmp_path):
    made = MadeStore(tmp_path / "store")
    row = made.put("SCHEDULE_TOPIC_XXXX", 2, b"later", tags="red", DELAY="3", REAL_TOPIC="TopicA", REAL_QID="0")
    due = round(row["storeTimestamp"].timestamp() * 1000) + 10_000
    row["tagsCode"] = due
    made.dispatch().safe()
    for mode in ("scan", "queue"):
        assert read(made.root, includeSystemTopics="true", readMode=mode) == [row]
        # The code of such an entry is no hash: the tag itself is looked at.
        assert read(made.root, includeSystemTopics="true", readMode=mode, subExpression="red") == [row]
        assert read(made.root, includeSystemTopics="true", readMode=mode, subExpression="blue") == []


def test_without_queues_what_needs_them_is_refused(tmp_path):
    made = MadeStore(tmp_path / "store").fill(30).safe()
    for options in ({"readMode": "queue"}, {"startingOffsets": '{"TopicA": {"0": 1}}'}):
        with pytest.raises(BadOption, match="no consumequeue"):
            planned(made.root, **options)
    everything = {"startingOffsets": "earliest", "endingOffsets": "latest", "subscribePattern": "Topic.*"}
    assert read(made.root, **everything) == made.rows


def test_compressed_bodies(tmp_path):
    made = MadeStore(tmp_path / "store")
    body = b"towline " * 200
    stored, flag = Compressor("zlib", above=0).compress(body)
    made.put("TopicA", body=stored, sys_flag=flag, body_read=body)
    made.safe()
    assert read(made.root) == made.rows
    assert read(made.root, ("body",), decompress="false") == [{"body": stored}]


class TestSplits:
    def test_small_segments_are_read_together(self, made):
        assert len(planned(made.root).partitions) == 1
        assert len(planned(made.root, minPartitions="3").partitions) >= 3

    @pytest.mark.parametrize("size", [3_000, 10_000, 40_000])
    def test_splits_of_a_segment_begin_at_records_that_queues_name(self, made, size):
        """Whatever the size each record is read once, also one that begins in the last bytes before a border."""
        options, how = parsed(made), planned(made.root).reading
        with StoreView.open(made.root) as view:
            whole = [LogSplit(base, min(base + SEGMENT, made.end)) for base in view.segments]
            splits = divided(view, whole, size, options)
            facts = view.facts()
        assert len(splits) > len(whole)
        assert {split.start for split in splits} <= {row["commitLogOffset"] for row in made.rows}
        assert read_plan(ReadPlan("scan", how, [LogPartition(facts, (split,)) for split in splits])) == made.rows

    def test_without_queues_only_a_scan_knows_them_and_only_where_it_was_asked_for(self, tmp_path):
        made = MadeStore(tmp_path / "store").fill(300).safe()
        with StoreView.open(made.root) as view:
            whole = [LogSplit(0, SEGMENT)]
            assert divided(view, whole, 10_000, parsed(made)) == whole
            splits = divided(view, whole, 10_000, parsed(made, minPartitions="9"))
        assert len(splits) > 4
        assert {split.start for split in splits} <= {row["commitLogOffset"] for row in made.rows}

    def test_a_forged_message_in_a_body_is_no_border(self, tmp_path):
        """The body of each message holds messages that name the very places where they stand."""
        made = MadeStore(tmp_path / "store")
        for _ in range(400):
            inside = b""
            for _ in range(4):
                at = made.end + LAYOUT.size + len(inside)
                inside += encode(Record(topic=b"Forged", body=b"x" * 50, physical_offset=at))
            made.put("TopicA", body=inside)
        made.dispatch().safe()
        assert read(made.root, minPartitions="8") == made.rows
        assert by_place(read(made.root, readMode="queue")) == made.rows

    def test_partitions_of_queues_hold_every_message_once(self, made):
        plan = planned(made.root, readMode="queue", minPartitions="7")
        assert len(plan.partitions) == 7
        counts = [sum(split.count for split in part.splits) for part in plan.partitions]
        assert max(counts) - min(counts) <= len(counts)
        assert by_place(read_plan(plan)) == made.rows

    def test_a_batch_of_a_stream_is_cut_at_its_own_ends(self, made):
        """As the stream reader asks: from one boundary to another, wherever they lie."""
        start, end = made.rows[33]["commitLogOffset"], made.rows[400]["commitLogOffset"]
        with StoreView.open(made.root) as view:
            partitions = log_partitions(view, start, end, parsed(made))
            queues = queue_partitions(view, {("TopicA", 0): (3, 20), ("TopicB", 1): (0, 5)}, parsed(made))
        how = planned(made.root).reading
        assert read_plan(ReadPlan("scan", how, partitions)) == made.rows[33:400]
        found = [
            (row["topic"], row["queueId"], row["queueOffset"]) for row in read_plan(ReadPlan("queue", how, queues))
        ]
        assert found == [("TopicA", 0, n) for n in range(3, 20)] + [("TopicB", 1, n) for n in range(5)]


class TestLoss:
    """A segment that cleaning deletes between the plan and the task."""

    @pytest.mark.parametrize("mode", ["scan", "queue"])
    def test_is_an_error_that_names_it(self, own, mode):
        plan = planned(own.root, readMode=mode)
        own.path(SEGMENT).unlink()
        with pytest.raises(MessagesGone, match=own.path(SEGMENT).name):
            read_plan(plan)

    @pytest.mark.parametrize("mode", ["scan", "queue"])
    def test_or_a_gap_that_is_counted(self, own, mode, caplog):
        plan = planned(own.root, readMode=mode, failOnDataLoss="false")
        own.path(SEGMENT).unlink()
        left = [row for row in own.rows if not SEGMENT <= row["commitLogOffset"] < 2 * SEGMENT]
        assert by_place(read_plan(plan)) == left
        said = " ".join(record.getMessage() for record in caplog.records)
        assert own.path(SEGMENT).name in said
        if mode == "scan":
            assert f"{SEGMENT} bytes" in said
        else:
            counts = [int(count) for count in re.findall(r"\((\d+) messages\)", said)]
            assert sum(counts) == len(own.rows) - len(left)

    def test_of_a_queues_files(self, own, caplog):
        plan = planned(own.root, readMode="queue", failOnDataLoss="false")
        gone = next(path for path in sorted(own.store.consumequeue.glob("TopicA/0/*")))
        gone.unlink()
        first = QUEUE_FILE // 20
        left = [r for r in own.rows if (r["topic"], r["queueId"]) != ("TopicA", 0) or r["queueOffset"] >= first]
        assert by_place(read_plan(plan)) == left
        assert f"({first} messages)" in caplog.text or f"({own.numbers['TopicA', 0]} messages)" in caplog.text

    def test_before_the_read_began(self, own):
        own.safe(log_min=SEGMENT)
        own.path(0).unlink()
        first = min(
            r["queueOffset"]
            for r in own.rows
            if r["commitLogOffset"] >= SEGMENT and r["topic"] == "TopicA" and not r["queueId"]
        )
        asked = {"startingOffsets": '{"TopicA": {"0": 0}}', "assign": '{"TopicA": [0]}'}
        with pytest.raises(MessagesGone, match=rf"\({first} messages\)"):
            planned(own.root, **asked)
        rows = read(own.root, failOnDataLoss="false", **asked)
        assert [row["queueOffset"] for row in rows] == list(range(first, own.numbers["TopicA", 0]))
        with pytest.raises(MessagesGone, match=f"{SEGMENT - 10} bytes"):
            planned(own.root, startingPhysicalOffset="10")

    def test_a_machine_that_does_not_see_the_store_is_no_loss(self, own):
        plan = planned(own.root, failOnDataLoss="false")
        own.root.rename(own.root.parent / "elsewhere")
        with pytest.raises(NotHere, match="does not exist on"):
            read_plan(plan)


class TestDamage:
    @pytest.fixture
    def broken(self, own):
        """The size of a record of the second segment is none."""
        row = next(row for row in own.rows if row["commitLogOffset"] > SEGMENT + 5_000)
        own.write(row["commitLogOffset"], b"\x00\x00\x00\x05")
        return own, row

    def test_fails_naming_the_place(self, broken):
        own, row = broken
        with pytest.raises(DamagedRecord, match=str(row["commitLogOffset"])):
            read(own.root)

    def test_skips_it(self, broken):
        own, row = broken
        assert read(own.root, onCorruption="skip") == [one for one in own.rows if one is not row]

    def test_stops_at_it_in_its_segment(self, broken):
        own, row = broken
        at = row["commitLogOffset"]
        left = [one for one in own.rows if not at <= one["commitLogOffset"] < at - at % SEGMENT + SEGMENT]
        assert read(own.root, onCorruption="stop") == left

    @pytest.mark.parametrize("mode", ["scan", "queue"])
    def test_a_wrong_body_is_named_by_message_and_byte(self, own, mode):
        row = own.rows[50]
        own.write(row["commitLogOffset"] + LAYOUT.size + 2, b"~~")
        named = rf"{row['commitLogOffset']} .*message {row['queueOffset']} of queue {row['queueId']} of {row['topic']}"
        with pytest.raises(DamagedRecord, match=named):
            read(own.root, readMode=mode)
        rows = read(own.root, readMode=mode, onCorruption="skip")
        assert by_place(rows) == [one for one in own.rows if one is not row]

    def test_bodies_that_nobody_reads_are_checked_on_request(self, own):
        own.write(own.rows[50]["commitLogOffset"] + LAYOUT.size + 2, b"~~")
        assert len(read(own.root, ["commitLogOffset"])) == len(own.rows)
        with pytest.raises(DamagedRecord):
            read(own.root, ["commitLogOffset"], checkCrcs="true")
        assert len(read(own.root, checkCrcs="false")) == len(own.rows)

    @pytest.mark.parametrize("mode", ["scan", "queue"])
    def test_property_crcs_are_compared_where_the_last_start_insisted(self, own, mode):
        assert read(own.root, readMode=mode)
        own.store.run.mkdir(exist_ok=True)
        own.store.settings.write_text(json.dumps({"force_verify_prop_crc": True}))
        with pytest.raises(DamagedRecord, match="PROPERTY_CRC_MISSING"):
            read(own.root, readMode=mode)

    def test_an_entry_that_leads_elsewhere(self, own, caplog):
        files = ConsumeQueueFiles(own.store.consumequeue, QUEUE_FILE, 8)
        entry = files.read("TopicA", 0, 6, 1)
        files.write("TopicA", 0, 5, entry)  # two entries lead to one message
        files.close()
        with pytest.raises(DamagedQueue, match="entry 5"):
            read(own.root, readMode="queue")
        rows = by_place(read(own.root, readMode="queue", onCorruption="skip"))
        lost = ("TopicA", 0, 5)
        assert rows == [r for r in own.rows if (r["topic"], r["queueId"], r["queueOffset"]) != lost]
        assert "1 such entries" in caplog.text

    def test_an_entry_that_leads_to_nothing(self, own):
        """Of a size that no record has, close to where the bytes end."""
        files = ConsumeQueueFiles(own.store.consumequeue, QUEUE_FILE, 8)
        entry = np.frombuffer(encode_entry(own.end - 20, 20, 0), dtype=ENTRY)
        last = own.numbers["TopicB", 1] - 1
        files.write("TopicB", 1, last, entry)
        files.close()
        with pytest.raises(DamagedQueue, match=f"entry {last}"):
            read(own.root, readMode="queue")

    def test_a_size_that_reaches_over_the_segment(self, own):
        """Nothing of a full segment may be cut off: it is no torn tail."""
        row = [row for row in own.rows if row["commitLogOffset"] < SEGMENT][-5]
        own.write(row["commitLogOffset"], SEGMENT.to_bytes(4, "big"))
        with pytest.raises(DamagedRecord, match=str(row["commitLogOffset"])):
            read(own.root)
        assert read(own.root, onCorruption="skip") == [one for one in own.rows if one is not row]

    def test_a_size_that_reaches_over_the_safe_end(self, own):
        """In the last segment, with whole messages behind it: its parts show that it is damaged and not torn."""
        row = own.rows[-9]
        own.write(row["commitLogOffset"], (SEGMENT // 2).to_bytes(4, "big"))
        with pytest.raises(DamagedRecord, match=str(row["commitLogOffset"])):
            read(own.root)
        assert read(own.root, onCorruption="skip") == [one for one in own.rows if one is not row]

    def test_tags_of_a_queue_with_extensions_are_looked_at_in_the_log(self, own):
        """Its codes are addresses of units, and no hashes (spec 3.5)."""
        files = ConsumeQueueFiles(own.store.consumequeue, QUEUE_FILE, 8)
        chosen = [row for row in own.rows if (row["topic"], row["queueId"]) == ("TopicA", 0)]
        for number, row in enumerate(chosen):
            entry = encode_entry(row["commitLogOffset"], row["size"], address(number * 46))
            files.write("TopicA", 0, number, np.frombuffer(entry, dtype=ENTRY))
        files.close()
        rows = read(own.root, readMode="queue", assign='{"TopicA": [0]}', subExpression="tag2")
        assert rows == [row for row in chosen if row["tags"] == "tag2"]
        assert rows

    def test_a_torn_tail_is_not_read(self, own):
        """Half a record behind the safe end, with a head that is whole."""
        whole = list(own.rows)
        own.put("TopicA", body=b"torn" * 100)
        own.write(own.end - 200, bytes(200))
        own.safe(whole[-1]["commitLogOffset"] + whole[-1]["size"])
        assert read(own.root) == whole
        own.safe(own.end - 250)  # a slave's end may lie inside a record
        assert read(own.root) == whole


class TestSource:
    """The classes that Spark is given."""

    def test_reads_like_the_plan(self, made):
        assert read_source(reader(path=str(made.root))) == made.rows

    def test_its_schema_is_every_column_or_those_that_were_named(self, made):
        source = TowlineDataSource({"path": str(made.root)})
        assert source.schema().fieldNames() == list(COLUMNS)
        chosen = reader(path=str(made.root), columns="tags,topic")
        assert read_source(chosen) == only(made.rows, ("tags", "topic"))

    def test_a_schema_is_a_choice_of_columns(self, made):
        schema = StructType([StructField("queueOffset", LongType()), StructField("topic", StringType())])
        assert read_source(reader(schema, path=str(made.root))) == only(made.rows, ("queueOffset", "topic"))

    def test_no_column_at_all_still_counts(self, made):
        counting = reader(StructType([]), path=str(made.root))
        batches = [batch for part in counting.partitions() for batch in counting.read(part)]
        assert sum(batch.num_rows for batch in batches) == len(made.rows)

    def test_wrong_columns_are_refused_before_anything_is_read(self, made):
        for wrong, error, said in (
            (StructField("queueOfset", LongType()), UnknownColumn, "queueOffset"),
            (StructField("queueOffset", StringType()), WrongColumnType, "int64"),
            (StructField("tags", StringType(), nullable=False), WrongColumnType, "null"),
        ):
            with pytest.raises(error, match=said):
                reader(StructType([wrong]), path=str(made.root))

    def test_wrong_options_are_refused_with_the_schema_already(self):
        with pytest.raises(UnknownOption, match="did you mean readMode"):
            TowlineDataSource({"path": "/nowhere", "readMod": "scan"}).schema()

    def test_nothing_to_read(self, tmp_path):
        empty = MadeStore(tmp_path / "store")
        assert reader(path=str(empty.root)).partitions() == []
        assert read_source(reader(path=str(empty.root))) == []
        assert list(reader(path=str(empty.root)).read(InputPartition(None))) == []


def parsed(made, **options):
    return SourceOptions.parse({"path": str(made.root)} | options)
