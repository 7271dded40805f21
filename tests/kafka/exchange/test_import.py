"""What an import makes of a log directory: messages with the numbers, keys, headers and times of its records."""

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings

from tests.kafka.exchange.imports import (
    SEGMENT,
    AtOnce,
    Hole,
    InTurn,
    Message,
    bring,
    directory,
    log_of,
    messages_of,
    numbered,
    queues_of,
    settings,
    write,
    write_large,
)
from tests.kafka.golden import KEYS, MESSAGES, TIMES, VALUES
from tests.kafka.samples import ROWS, T0, of_rows, plain, risen, rows_in, write_plain, write_transactions
from towline.format.record import property_crc
from towline.kafka.exchange import names
from towline.kafka.exchange.import_errors import RecordTooLarge
from towline.kafka.exchange.import_plan import Plan
from towline.kafka.exchange.import_report import document_of, topic_rows
from towline.kafka.format.building import Form, end_transaction
from towline.kafka.format.control import ControlType
from towline.kafka.format.records import Records
from towline.kafka.log.files import LOG
from towline.kafka.log.rolling import LogConfig
from towline.kafka.log.writer import PartitionWriter
from towline.log.repair.verify import verify
from towline.log.repair.verify_report import Weight
from towline.log.state.checkpoint_file import CheckpointFile
from towline.log.state.topics_file import read_table
from towline.node.store.store_shape import shape_of
from towline.places import Store


def rows(messages: list[Message]) -> list[tuple]:
    return [message.row for message in messages]


def test_offsets_keys_values_headers_and_times_are_those_of_the_records(tmp_path):
    """Of batches with each compression, with nulls and headers."""
    source = directory(tmp_path / "kafka")
    write_plain(source)
    done = bring(source, tmp_path / "store", tmp_path)
    assert rows(messages_of(tmp_path / "store", "topic")) == rows_in(source / "topic-0")
    (found,) = topic_rows(done.plan)
    assert (found["messages"], found["holes"], found["queues"]) == (300, 0, 1)


@given(drawn=ROWS)
@hypothesis_settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_records_come_back_as_they_were(tmp_path_factory, drawn):
    """Keys and headers of any bytes, offsets with holes of any size."""
    tmp = tmp_path_factory.mktemp("any")
    source = directory(tmp / "kafka")
    wanted = risen(drawn)
    write(source, "topic", 3, of_rows(wanted))
    bring(source, tmp / "store", tmp)
    assert rows(messages_of(tmp / "store", "topic", 3)) == wanted
    at = wanted[0][0]
    for each in queues_of(tmp / "store")["topic", 3]:  # every number is a message's or a hole's
        assert (each.first if isinstance(each, Hole) else each.offset) == at
        at = each.end if isinstance(each, Hole) else at + 1
    assert at == wanted[-1][0] + 1


KEYS_AND_PROPERTIES = {
    "text is KEYS": (b"order-17", {names.KEYS: "order-17"}),
    "other scripts too": ("Straße".encode(), {names.KEYS: "Straße"}),
    "null is nothing": (None, {}),
    "nothing": (b"", {names.KEY: "="}),
    "a space": (b"a b", {names.KEY: "YSBi"}),
    "a control character": (b"a\tb", {names.KEY: "YQli"}),
    "DEL": (b"\x7f", {names.KEY: "fw=="}),
    "no UTF-8": (b"\xff\x00", {names.KEY: "/wA="}),
    "a surrogate": (b"\xed\xa0\x80", {names.KEY: "7aCA"}),
    "an overlong form": (b"\xc0\xaf", {names.KEY: "wK8="}),
}


@pytest.mark.parametrize(("key", "wanted"), KEYS_AND_PROPERTIES.values(), ids=KEYS_AND_PROPERTIES)
def test_a_key_is_keys_where_that_can_say_it_and_base64_elsewhere(tmp_path, key, wanted):
    source = directory(tmp_path / "kafka")
    write(source, "topic", 0, Records.of([0], [T0], [key], [b"v"]))
    bring(source, tmp_path / "store", tmp_path)
    (message,) = messages_of(tmp_path / "store", "topic")
    assert (message.properties, message.key) == (wanted, key)


HEADERS = {
    "plain ones": ([("trace", b"1"), ("from", b"a b")], {"trace": "1", "from": "a b"}),
    "a name twice": ([("a", b"1"), ("a", b"2")], None),
    "a null": ([("a", None)], None),
    "an empty value": ([("a", b"")], None),
    "an empty name": ([("", b"1")], None),
    "bytes": ([("a", b"\x01")], None),
    "no UTF-8": ([("a", b"\xff")], None),
    "a name of RocketMQ's": ([("TAGS", b"red")], None),
    "a name of ours": ([("KAFKA_KEY", b"x")], None),
    "a system name": ([("__CRC32#", b"x")], None),
    "33 of them": ([(f"h{number}", b"1") for number in range(33)], None),
    "32 of them": ([(f"h{number}", b"1") for number in range(32)], {f"h{number}": "1" for number in range(32)}),
}


@pytest.mark.parametrize(("headers", "wanted"), HEADERS.values(), ids=HEADERS)
def test_headers_are_user_properties_where_all_are_plain_and_one_property_elsewhere(tmp_path, headers, wanted):
    source = directory(tmp_path / "kafka")
    write(source, "topic", 0, Records.of([0], [T0], [None], [b"v"], [headers]))
    bring(source, tmp_path / "store", tmp_path)
    (message,) = messages_of(tmp_path / "store", "topic")
    assert message.headers == headers
    assert (message.properties if wanted else list(message.properties)) == (wanted or [names.HEADERS])


def test_what_the_other_properties_say(tmp_path):
    source = directory(tmp_path / "kafka")
    with PartitionWriter(source, "topic", 0) as writer:
        writer.append(Records.of([0, 1], [T0, -1], [None] * 2, [b"v", None]))
        writer.append(Records.of([2], [T0], [None], [b"v"]), Form(append_time=T0 + 5))
        form = Form(producer_id=2**40, producer_epoch=7, base_sequence=2**31 - 1, transactional=True)
        writer.append(Records.of([3, 4], [T0, T0], [None] * 2, [b"v", b"w"]), form)
        writer.append_batches(end_transaction(ControlType.COMMIT, 5, T0, 2**40, 7, 11))
    bring(source, tmp_path / "store", tmp_path)
    found = messages_of(tmp_path / "store", "topic")
    ours = {names.TRANSACTIONAL: "true"}
    assert [message.properties for message in found] == [
        {},
        {names.TOMBSTONE: "true", names.TIMESTAMP: "-1"},
        {names.TIMESTAMP_TYPE: "LogAppendTime"},
        {names.PRODUCER: "1099511627776:7:2147483647"} | ours,
        {names.PRODUCER: "1099511627776:7:0"} | ours,
    ]
    assert [message.timestamp for message in found] == [T0, -1, T0 + 5, T0, T0]
    assert [message.found.born_timestamp for message in found][1] == 0


def test_aborted_records_and_control_batches_are_holes(tmp_path):
    """And a partition that ends with one goes on behind it. What is open is left out if so chosen."""
    source = directory(tmp_path / "kafka")
    write_transactions(source)
    done = bring(source, tmp_path / "store", tmp_path, open_="leave-out")
    assert queues_of(tmp_path / "store")["tx", 0][-1] == Hole(3, 4)
    assert [message.offset for message in messages_of(tmp_path / "store", "tx")] == [0, 1, 2]
    (found,) = topic_rows(done.plan)
    assert (found["control"], found["aborted"], found["left_open"], found["holes"]) == (1, 0, 8, 1)


def test_of_aborted_transactions_nothing_crosses(tmp_path):
    source = directory(tmp_path / "kafka")
    with PartitionWriter(source, "tx", 0) as writer:
        for first, kind in ((0, ControlType.ABORT), (4, ControlType.COMMIT), (8, ControlType.ABORT)):
            form = Form(producer_id=7, producer_epoch=3, base_sequence=first, transactional=True)
            writer.append(numbered(3, first), form)
            writer.append_batches(end_transaction(kind, first + 3, T0, 7, 3, 11))
    done = bring(source, tmp_path / "store", tmp_path)
    assert [message.offset for message in messages_of(tmp_path / "store", "tx")] == [4, 5, 6]
    assert queues_of(tmp_path / "store")["tx", 0][-1] == Hole(7, 12)
    (found,) = topic_rows(done.plan)
    assert (found["control"], found["aborted"], found["holes"]) == (3, 6, 5)


def test_a_queue_begins_where_the_partition_does(tmp_path):
    source = directory(tmp_path / "kafka")
    write(source, "topic", 0, numbered(5, 1000), start=1000)
    bring(source, tmp_path / "store", tmp_path)
    assert [message.offset for message in messages_of(tmp_path / "store", "topic")] == list(range(1000, 1005))


def test_of_an_empty_partition_the_next_number_is_kept(tmp_path):
    source = directory(tmp_path / "kafka")
    PartitionWriter(source, "topic", 0, start=500).close()
    PartitionWriter(source, "topic", 1).close()
    bring(source, tmp_path / "store", tmp_path)
    assert queues_of(tmp_path / "store") == {("topic", 0): [Hole(499, 500)]}
    assert read_table(Store(tmp_path / "store")).topics["topic"].write_queue_nums == 2


@pytest.mark.parametrize(("magic", "kind"), MESSAGES, ids=lambda each: getattr(each, "name", each))
def test_messages_of_magic_0_and_1_cross(tmp_path, magic, kind):
    source = directory(tmp_path / "kafka")
    (source / "old-0").mkdir()
    (source / "old-0" / f"{0:020}{LOG}").write_bytes(bytes.fromhex(MESSAGES[magic, kind]))
    bring(source, tmp_path / "store", tmp_path)
    found = messages_of(tmp_path / "store", "old")
    times = TIMES if magic else [-1] * 3
    assert rows(found) == list(zip([40, 41, 42], times, KEYS, VALUES, [[]] * 3, strict=True))


@pytest.mark.parametrize("tasks", [InTurn, AtOnce], ids=["in turn", "at once"])
def test_topics_of_many_partitions_fill_segments(tmp_path, tasks):
    """Also where units are written each by itself; and a store of ours finds nothing wrong with it."""
    source = directory(tmp_path / "kafka")
    for number in range(3):
        write_large(source, "large", number, 400 * number + 300)
    for number in range(5):
        write(source, "small", number, plain(20, 7 * number), start=7 * number)
    done = bring(source, tmp_path / "store", tmp_path, tasks=tasks)
    for path in sorted(source.glob("*-*")):
        topic, _, number = path.name.rpartition("-")
        assert rows(messages_of(tmp_path / "store", topic, int(number))) == rows_in(path)
    assert done.plan.segments > 4
    store = Store(tmp_path / "store")
    recovery, delays = shape_of(store, settings(tmp_path))
    found = verify(store, recovery, delays_ms=delays, limit=None, progress=lambda size: None)
    assert {row.rule for row in found.findings.rows} == {"QUEUE_BEHIND", "INDEX_BEHIND"}
    assert found.weight is Weight.HEALS
    assert found.log.records == sum(count.records + count.hole_records for count in done.plan.counts)


def test_one_import_follows_another_in_the_same_store(tmp_path):
    first, second = directory(tmp_path / "one"), directory(tmp_path / "two")
    write(first, "a", 0, numbered(30))
    write(second, "b", 0, numbered(40))
    bring(first, tmp_path / "store", tmp_path)
    before = log_of(tmp_path / "store")
    done = bring(second, tmp_path / "store", tmp_path)
    after = log_of(tmp_path / "store")
    assert after[:30] == before
    assert after[30].physical_offset == done.plan.base == SEGMENT
    assert after[30].store_timestamp >= before[-1].store_timestamp
    assert sorted(read_table(Store(tmp_path / "store")).topics) == ["a", "b"]


def test_property_crcs_and_ipv6_hosts_are_written_where_the_store_has_them(tmp_path):
    source = directory(tmp_path / "kafka")
    write_transactions(source)
    more = 'enabled_append_prop_crc = true\nforce_verify_prop_crc = true\nbroker_ip1 = "::1"\nlisten_port = 10999\n'
    bring(source, tmp_path / "store", tmp_path, more, open_="leave-out")
    found = messages_of(tmp_path / "store", "tx")
    assert [message.offset for message in found] == [0, 1, 2]
    assert {str(message.found.store_host) for message in found} == {"[::1]:10999"}
    assert all(property_crc.ends_with(one.properties) for one in log_of(tmp_path / "store"))
    store = Store(tmp_path / "store")
    recovery, delays = shape_of(store, settings(tmp_path, more))
    assert recovery.force_property_crc
    verified = verify(store, recovery, delays_ms=delays, limit=None, progress=lambda size: None)
    assert verified.weight is Weight.HEALS


def test_only_named_topics_cross_under_the_names_that_are_given(tmp_path):
    source = directory(tmp_path / "kafka")
    for topic in ("a.b", "c", "d", "__consumer_offsets"):
        write(source, topic, 0, numbered(3))
    bring(source, tmp_path / "store", tmp_path, topics=("a.b", "c"), renames=("a.b=a_b",))
    assert sorted(queues_of(tmp_path / "store")) == [("a_b", 0), ("c", 0)]


def test_tombstones_are_dropped_and_large_records_left_out_where_that_is_chosen(tmp_path):
    source = directory(tmp_path / "kafka")
    bodies = [b"v", None, b"x" * 5000, b"w"]
    large = [[], [], [], [(f"h{number}", b"x" * 3000) for number in range(20)]]
    write_rows = Records.of([0, 1, 2, 3], [T0] * 4, [b"k"] * 4, bodies, large)
    with PartitionWriter(source, "topic", 0, LogConfig()) as writer:
        writer.append(write_rows)
    chosen = {"tombstones": "drop", "too_large": "leave-out"}
    done = bring(source, tmp_path / "store", tmp_path, "max_message_size = 4096\n", **chosen)
    assert queues_of(tmp_path / "store")["topic", 0][1:] == [Hole(1, 4)]
    (found,) = topic_rows(done.plan)
    assert (found["messages"], found["tombstones_dropped"], found["left_out"]) == (1, 1, 2)


@pytest.mark.parametrize("tasks", [InTurn, AtOnce])
def test_a_message_that_no_segment_has_room_for_is_refused_or_left_out(tmp_path, tasks):
    """Wherever it stands: the first of its queue, the last, or the only one."""
    source, too_large = directory(tmp_path / "kafka"), (0, 3, 9)
    bodies = [b"x" * (SEGMENT if number in too_large else 20_000) for number in range(10)]
    with PartitionWriter(source, "topic", 0, LogConfig()) as writer:
        writer.append(Records.of(list(range(10)), [T0] * 10, [b"k"] * 10, bodies), Form(batch_size=100_000))
    write(source, "only", 0, numbered(1, 0, SEGMENT), Form(batch_size=100_000), config=LogConfig())
    with pytest.raises(RecordTooLarge, match=f"a message of the record at offset 0 is above .* {SEGMENT - 8} bytes"):
        bring(source, tmp_path / "store", tmp_path, tasks=tasks)
    done = bring(source, tmp_path / "store", tmp_path, tasks=tasks, too_large="leave-out")
    found = queues_of(tmp_path / "store")
    kept = [row for row in rows_in(source / "topic-0") if row[0] not in too_large]
    assert [each.row for each in found["topic", 0] if isinstance(each, Message)] == kept
    assert [each for each in found["topic", 0] if isinstance(each, Hole)] == [Hole(3, 4), Hole(9, 10)]
    assert found["only", 0] == [Hole(0, 1)]
    assert document_of(done, 1.0)["left_out"] == 4


def test_what_slaves_have_not_is_confirmed_by_a_master_alone_that_does_not_wait_for_them(tmp_path):
    """Nobody reads what a failover would take back."""
    source = directory(tmp_path / "kafka")
    write(source, "topic", 0, numbered(20))
    waits = 'broker_role = "SYNC_MASTER"\nin_sync_replicas = 2\ntotal_replicas = 2\n'
    for name, more, confirmed in (("alone", "", True), ("waits", waits, False)):
        done = bring(source, tmp_path / name, tmp_path, more)
        checkpoint = CheckpointFile(tmp_path / name).load()
        assert checkpoint is not None
        assert checkpoint.confirm_phy_offset == (done.plan.new_end if confirmed else 0)


def test_a_torn_batch_is_left_out_where_that_is_chosen_and_the_source_stays(tmp_path):
    source = directory(tmp_path / "kafka")
    path = write(source, "topic", 0, numbered(20)) / f"{0:020}{LOG}"
    data = path.read_bytes()
    path.write_bytes(data[:-5])
    done = bring(source, tmp_path / "store", tmp_path, torn="cut")
    found = messages_of(tmp_path / "store", "topic")
    assert [message.offset for message in found] == list(range(len(found)))
    assert 10 < len(found) < 20
    assert document_of(done, 1.0)["torn"] == 1
    assert path.read_bytes() == data[:-5]


def test_holes_above_a_million_take_several_records(tmp_path):
    source = directory(tmp_path / "kafka")
    with PartitionWriter(source, "topic", 0) as writer:
        writer.append(Records.of([0], [T0], [None], [b"v"]))
        writer.append(Records.of([2_500_000], [T0], [None], [b"v"]))
    bring(source, tmp_path / "store", tmp_path)
    found = queues_of(tmp_path / "store")["topic", 0]
    assert found[1:4] == [Hole(1, 1_000_001), Hole(1_000_001, 2_000_001), Hole(2_000_001, 2_500_000)]


def test_a_plan_says_the_same_when_it_is_read_again(tmp_path):
    source = directory(tmp_path / "kafka")
    write_large(source, "large", 0, 900)
    done = bring(source, tmp_path / "store", tmp_path, tasks=AtOnce, renames=("large=small",))
    assert Plan.of(done.plan.content()) == done.plan
