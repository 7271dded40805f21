"""Queues of a store as partitions of Kafka, read back by our reader: what crosses, holes, where they begin and end."""

import base64
import json
import zlib

import numpy as np
import pytest

from tests.kafka.samples import rows_in
from tests.spark.stores import NOON, MadeStore
from towline.format.files.topics import DeletedTopic, TopicConfig, TopicTable, topics_content
from towline.format.record import skipped
from towline.format.record.record import COMPRESSED
from towline.kafka.exchange import names
from towline.kafka.exchange.export_digest import Digest
from towline.kafka.exchange.export_errors import NotAsExported
from towline.kafka.exchange.export_partition import verify
from towline.kafka.format import batch
from towline.kafka.format.building import gaps
from towline.kafka.format.checkpoints import HIGH_WATERMARKS, LOG_STARTS, RECOVERY_POINTS
from towline.kafka.format.partition_metadata import id_of
from towline.kafka.log.checking import check
from towline.kafka.log.log_directory import LogDirectory
from towline.kafka.log.partition import Partition
from towline.log.files.config_file import ConfigFile
from towline.log.state.queue_minima import NAME as MINIMA
from towline.log.state.queue_minima import QueueMinimum, minima_content
from towline.log.state.topics_file import TopicsConfig

from .exports import QUEUES, exported, sample, wanted
from .holes import absent

ID = "Zm9vYmFyYmF6cXV4MTIzNA"


@pytest.fixture
def made(tmp_path) -> MadeStore:
    return sample(tmp_path / "store")


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_each_message_of_a_queue_is_a_record_of_its_partition(made, tmp_path, compression):
    out = tmp_path / "out"
    done = exported(made, out, compression=compression, batch_bytes=2_000, segment_bytes=20_000)
    assert (done.messages, done.damaged, done.left_properties) == (400, 0, {"WAIT": 400})
    for number in range(QUEUES):
        directory = out / f"orders-{number}"
        assert rows_in(directory) == wanted(made, "orders", number)
        assert check(directory) == []
        partition = Partition(directory)
        assert len(partition.segments) > 1 or compression != "none"
        attributes = {each for _, _, rows in partition.scans() for each in rows["attributes"].tolist()}
        assert attributes == {batch.Compression[compression.upper()]}


def test_the_directory_is_as_a_clean_stop_leaves_it(made, tmp_path):
    out = tmp_path / "out"
    exported(made, out, topic_ids=[f"orders={ID}"])
    root = LogDirectory(out)
    assert root.stopped_cleanly
    ends = {("orders", 0): 134, ("orders", 1): 133, ("orders", 2): 133}
    assert root.offsets(RECOVERY_POINTS) == root.offsets(HIGH_WATERMARKS) == ends
    assert root.offsets(LOG_STARTS) == {}
    assert {each.topic_id for each in root.partitions()} == {id_of(ID)}
    assert [path.name for path in out.glob("*towline*")] == []


def test_a_body_that_was_compressed_is_a_value_as_it_was_sent(made, tmp_path):
    body = b"compressed " * 100
    for number in range(20):
        sent = (zlib.compress(body), COMPRESSED) if number % 3 else (b"plain", 0)
        made.put("orders", 1, sent[0], sys_flag=sent[1], body_read=body if number % 3 else None)
    exported(made.dispatch().safe(), tmp_path / "out")
    found = rows_in(tmp_path / "out" / "orders-1")
    assert found == wanted(made, "orders", 1)
    assert found[-1][3] == body


def test_records_that_were_imported_come_back_equal(tmp_path):
    """Null and empty, times of the log and none, keys and headers that no property can hold as they are."""
    made = MadeStore(tmp_path / "store")
    key = base64.b64encode(b"\x00\xff").decode()
    for number in range(40):
        stamped = {names.TIMESTAMP_TYPE: names.LOG_APPEND_TIME} if 10 <= number < 30 else {}
        made.put("t", 0, **{names.TOMBSTONE: names.TRUE, names.KEY: key}, **stamped)
        made.put("t", 0, b"", **{names.KEY: names.EMPTY_KEY, names.TIMESTAMP: "-1", names.PRODUCER: "1:0:7"})
    exported(made.dispatch().safe(), tmp_path / "out")
    (columns,) = Partition(tmp_path / "out" / "t-0").read()
    assert columns.records.key.to_list() == [b"\x00\xff", b""] * 40
    assert columns.records.value.to_list() == [None, b""] * 40
    times = [-1 if number % 2 else NOON + number * 1000 - 3 for number in range(80)]
    assert columns.records.timestamp.tolist() == times
    stamped = [number % 2 == 0 and 20 <= number < 60 for number in range(80)]
    assert (columns.of_batch("attributes") & batch.LOG_APPEND_TIME != 0).tolist() == stamped
    assert (columns.of_batch("producer_id") == -1).all()


# --- offsets


def test_offsets_that_nobody_had_stay_holes_at_the_end_too(tmp_path):
    made = MadeStore(tmp_path / "store")
    for number in range(10):
        made.put("t", 0, b"%d" % number)
    made.dispatch()
    absent(made, skipped.HOLE_FLAG, "t", 5)
    for number in range(10):
        made.put("t", 0, b"%d" % number)
    made.dispatch()
    absent(made, skipped.HOLE_FLAG, "t", 3)
    done = exported(made.safe(), tmp_path / "out")
    assert [(each.holes, each.damaged, each.end) for each in done.partitions] == [(8, 0, 28)]
    found = Partition(tmp_path / "out" / "t-0")
    assert [row[0] for row in rows_in(found.directory)] == [*range(10), *range(15, 25)]
    assert (found.start, found.end) == (0, 28)
    assert check(found.directory) == []


def test_numbers_of_a_stretch_that_a_repair_skipped_are_damage(made, tmp_path):
    made = MadeStore(tmp_path / "other")
    made.put("t", 0, b"one")
    made.dispatch()
    at = absent(made, skipped.FLAG, "t", 2)
    made.put("t", 0, b"two")
    done = exported(made.dispatch().safe(), tmp_path / "out", damaged="leave-out")
    assert (done.messages, done.damaged) == (2, 2)
    (partition,) = done.partitions
    assert [said.split(" is damaged")[0] for said in partition.damages] == [
        f"{made.path(at)} byte {at}: message {number} of queue 0 of t" for number in (1, 2)
    ]
    assert [row[0] for row in rows_in(tmp_path / "out" / "t-0")] == [0, 3]


def test_a_partition_begins_where_retention_has_cut_its_queue(made, tmp_path):
    ConfigFile(made.store.config / MINIMA).save(minima_content({("orders", 1): QueueMinimum(40, made.end)}))
    exported(made, tmp_path / "out")
    found = {each.number: each for each in LogDirectory(tmp_path / "out").partitions()}
    assert [(found[number].start, found[number].end) for number in range(QUEUES)] == [(0, 134), (40, 133), (0, 133)]
    assert found[1].segments[0].base == 40
    assert rows_in(found[1].directory) == wanted(made, "orders", 1)[40:]


def test_a_partition_begins_where_the_log_does(made, tmp_path):
    made.safe(log_min=made.segment_size)
    made.path(0).unlink()
    exported(made, tmp_path / "out")
    for number in range(QUEUES):
        rows = [row for row in made.rows if row["queueId"] == number and row["commitLogOffset"] >= made.segment_size]
        found = Partition(tmp_path / "out" / f"orders-{number}")
        assert found.start == rows[0]["queueOffset"] > 0
        assert rows_in(found.directory) == wanted(made, "orders", number)[found.start :]


def test_queues_without_messages_are_partitions_that_begin_where_they_go_on(made, tmp_path):
    """Those that the topic has, and one whose messages went with a topic of the same name."""
    topic = TopicConfig(topic_name="orders", read_queue_nums=5, write_queue_nums=5)
    deleted = {"orders": DeletedTopic(log_offset=0, floors={4: 77})}
    table = TopicTable(topics={"orders": topic}, deleted=deleted)
    TopicsConfig(made.store.config / "topics.json").save(topics_content(table))
    done = exported(made, tmp_path / "out")
    assert [(each.start, each.end) for each in done.partitions][3:] == [(0, 0), (77, 77)]
    found = Partition(tmp_path / "out" / "orders-4")
    assert (found.start, found.end, rows_in(found.directory)) == (77, 77, [])


def test_a_hole_wider_than_a_head_can_say_takes_several():
    data = gaps(10, 10 + 2**32)
    heads = [batch.decode(data[at : at + batch.SIZE].tobytes()) for at in range(0, len(data), batch.SIZE)]
    assert [head.base_offset for head in heads] == [10, 10 + 2**31 - 1, 10 + 2 * (2**31 - 1)]
    assert heads[-1].base_offset + heads[-1].last_offset_delta == 9 + 2**32
    assert {head.record_count for head in heads} == {0}


# --- what does not cross


def test_system_topics_and_messages_that_wait_are_named_and_counted(made, tmp_path):
    for number in range(7):
        made.put("SCHEDULE_TOPIC_XXXX", 2, b"later", REAL_TOPIC="orders", REAL_QID="0", DELAY="3")
        made.put("RMQ_SYS_TRANS_HALF_TOPIC", 0, b"half", REAL_TOPIC="orders" if number else "others")
        made.put("rmq_sys_wheel_timer", 0, b"timed", REAL_TOPIC="orders", TIMER_DELIVER_MS=str(NOON + 1_000 * number))
    for ended in (b"1", b"3,5,"):
        made.put("RMQ_SYS_TRANS_OP_HALF_TOPIC", 0, ended, tags="d")
    made.put("%RETRY%g", 0, b"again")
    ConfigFile(made.store.config / "delayOffset.json").save({"offsetTable": {"3": 4}})
    ConfigFile(made.store.config / "timerOffset.json").save({"deliveredDue": NOON + 2_000, "from": 1})
    done = exported(made.dispatch().safe(), tmp_path / "out")
    assert [each.document() for each in done.waiting] == [{"topic": "orders", "delayed": 3 + 4, "halves": 3}]
    system = {"RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer"}
    assert set(done.left_topics) == system | {"%RETRY%g"}
    assert {each.name.rpartition("-")[0] for each in done.partitions} == {"orders"}


def test_a_topic_gets_another_name(made, tmp_path):
    made.put("%DLQ%g", 0, b"dead")
    done = exported(made.dispatch().safe(), tmp_path / "out", topics=["%DLQ%g"], renames=["%DLQ%g=g.dead-letters"])
    assert [each.name for each in done.partitions] == ["g.dead-letters-0"]
    assert rows_in(tmp_path / "out" / "g.dead-letters-0") == wanted(made, "%DLQ%g", 0)


# --- the comparison


def test_what_was_read_back_is_compared_with_the_store(made, tmp_path):
    """Each column: a record more, another time, key, value or header is found."""
    done = exported(made, tmp_path / "out")
    partition = done.partitions[0]
    directory = tmp_path / "out" / partition.name
    verify(directory, partition, lambda _: None)
    for name in Digest.__slots__:
        other = type(partition).of_document(json.loads(json.dumps(partition.document())))
        setattr(other.digest, name, getattr(other.digest, name) ^ 1)
        with pytest.raises(NotAsExported, match="records" if name == "count" else name):
            verify(directory, other, lambda _: None)


def test_a_digest_does_not_depend_on_how_records_come_in_pieces(made, tmp_path):
    exported(made, tmp_path / "out", batch_bytes=2_000)
    partition = Partition(tmp_path / "out" / "orders-2")
    digests = []
    for size in (1_000, 10_000, 10**9):
        digest = Digest()
        for columns in partition.read(piece_size=size):
            digest.add_read(columns)
        digests.append(digest)
    assert digests[0] == digests[1] == digests[2]
    assert digests[0].count == 133
    assert np.all([digests[0].value, digests[0].headers])
