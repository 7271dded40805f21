"""Retention of a topic on nodes that run: what is read, by whom, after which kill, on which node."""

from collections.abc import Iterator

import pytest

from tests.processes.aging import CLEANED_AT_ONCE, HOUR_S, clean, fill
from tests.processes.arming import RETENTION_STEPS, Arming
from tests.processes.nodes import INDEXES, SEGMENT, SLOTS, Pair, TestNode, check_nothing_is_left, ending, free_port
from tests.processes.replication.test_seeding import backup
from tests.processes.waiting import await_
from tests.processes.wire import WireClient, records_of
from towline.cli import store_backup
from towline.client.admin import AdminClient
from towline.client.consumer import Consumer
from towline.client.errors import AskRefused, NotInRocketmq
from towline.format.wire.status import GetStatus, PutStatus
from towline.log.recovery.recovery import RecoverySettings
from towline.log.repair.verify import verify
from towline.log.repair.verify_report import Weight
from towline.log.state.topics_file import read_table
from towline.node.process.context import runtime_of
from towline.runtime.positions import Position
from towline.runtime.queue_ends import QueueEnds

TOPIC = "kept"
QUEUES = 2
PER_FILE = 200  # entries
PER_REQUEST, BODY = 100, 1000
KEPT_BYTES = 150 * BODY
QUICK = {
    "clean_resource_interval": 50,
    "delete_consume_queue_files_interval": 5,
    "flush_interval_consume_queue": 50,
    "flush_consume_queue_least_pages": 0,
    "mapped_file_size_consume_queue": 20 * PER_FILE,
}
SHAPE = RecoverySettings(segment_size=SEGMENT, queue_file_size=20 * PER_FILE, index_slots=SLOTS, index_indexes=INDEXES)
WAIT_S = 60.0


@pytest.fixture
def node(tmp_path) -> Iterator[TestNode]:
    made = TestNode("master", tmp_path / "store", **QUICK)
    with ending(made):
        made.start()
        yield made


def serve_of(node: TestNode) -> str:
    return f"ipc://{node.runtime / 'serve.sock'}"


def administrator(node: TestNode) -> AdminClient:
    return AdminClient(node.endpoint)


def make_topic(node: TestNode, **retention: int) -> None:
    with administrator(node) as admin:
        admin.create_topic(TOPIC, QUEUES, **retention)


def alter_topic(node: TestNode, **retention: int) -> None:
    with administrator(node) as admin:
        admin.alter_topic(TOPIC, **retention)


def put(node: TestNode, requests: int, queue_id: int = 0) -> None:
    client = WireClient(node.endpoint)
    for _ in range(requests):
        answer = client.put(records_of(TOPIC.encode(), PER_REQUEST, queue_id=queue_id, size=BODY))
        assert answer.status == PutStatus.PUT_OK
    client.close()


def bounds(node: TestNode, queue_id: int = 0) -> tuple[int, int]:
    """As readers of this node are told."""
    ends = QueueEnds.open(runtime_of(node.store.root).queue_ends)
    place = ends.find(TOPIC.encode(), queue_id)
    found = ends.bounds(place) if place >= 0 else (0, 0)
    ends.close()
    return found


def await_bounds(node: TestNode, low: int, high: int, queue_id: int = 0) -> None:
    await_(lambda: bounds(node, queue_id) == (low, high), WAIT_S, f"queue {queue_id} is [{low}, {high})")


def files(node: TestNode, queue_id: int = 0) -> list[int]:
    directory = node.store.consumequeue / TOPIC / str(queue_id)
    return sorted(int(path.name) // (20 * PER_FILE) for path in directory.iterdir())


def check_sound(node: TestNode) -> None:
    """verify finds nothing that a start would not heal, and no queue that lacks entries."""
    found = verify(node.store, SHAPE)
    wrong = [str(row) for row in found.findings.rows if row.rule.startswith("QUEUE") or row.weight is Weight.DAMAGE]
    assert not wrong


def test_what_is_too_old_is_read_no_more_and_what_comes_then_is(node):
    make_topic(node, retention_ms=3_000)
    put(node, 1)
    with Consumer(serve_of(node), TOPIC, suspend_ms=100) as quick, Consumer(serve_of(node), TOPIC) as late:
        assert late.position() == {0: 0, 1: 0}, "it stands at the first message, and reads none"
        put(node, 4)
        await_(lambda: quick.poll(100), WAIT_S, "they are read at first")
        await_bounds(node, 500, 500)
        await_(lambda: files(node) == [2], WAIT_S, "whole files of it are gone")
        put(node, 1)
        came = await_(lambda: late.poll(100), WAIT_S, "what came then is read")
        assert came[0].queue_offset == 500
        assert late.missed == 500
        assert [(move.from_offset, move.to_offset, move.status) for move in late.moved] == [
            (0, 500, GetStatus.OFFSET_TOO_SMALL)
        ]
    assert node.stop()
    check_sound(node)
    check_nothing_is_left(node)


def test_lookups_leave_out_what_was_cut_and_the_log_still_has_it(node):
    make_topic(node)
    put(node, 5)
    await_(lambda: bounds(node)[1] == 500, WAIT_S, "they are dispatched")
    with AdminClient(serve_of(node)) as admin:
        (first,) = admin.by_unique_key(TOPIC, "00000000", max_count=1)
        oldest = admin.by_offset(0)
        assert (oldest.queue_offset, first.queue_offset) == (0, 400)
        assert admin.by_id(oldest.message_id).queue_offset == 0
        alter_topic(node, retention_bytes=KEPT_BYTES)
        await_(lambda: bounds(node)[0] > 300, WAIT_S, "the queue is cut")
        low, high = bounds(node)
        assert high - low == KEPT_BYTES // len(records_in_log(node))
        for asked in (lambda: admin.by_offset(0), lambda: admin.by_id(oldest.message_id)):
            with pytest.raises(AskRefused, match=f"begins at {low} by now"):
                asked()
        assert [found.queue_offset for found in admin.by_unique_key(TOPIC, "00000000")] == [400]
        assert admin.by_unique_key(TOPIC, "00000000", end=oldest.store_timestamp) == []
        assert [found.queue_offset for found in admin.by_time(TOPIC, 0, max_count=1)] == [low]
        assert admin.offset_at(TOPIC, 0, 0) == low
        assert admin.bounds(TOPIC)[0] == (low, high)
    assert node.at(Position.LOG_MIN) == 0


def records_in_log(node: TestNode) -> bytes:
    """A record of these, which all have the same size."""
    data = (node.store.commitlog / f"{0:020d}").read_bytes()
    return data[: int.from_bytes(data[:4])]


def test_requests_of_rocketmqs_clients_see_the_same(tmp_path):
    port = free_port()
    node = TestNode("master", tmp_path / "store", **(QUICK | {"listen_port": port}))
    with ending(node):
        node.start()
        make_topic(node, retention_bytes=KEPT_BYTES)
        with Consumer(f"rocketmq://127.0.0.1:{port}", TOPIC, timeout_ms=30_000) as consumer:
            assert consumer.position() == {0: 0, 1: 0}
            put(node, 5)
            await_(lambda: bounds(node)[0] > 300, WAIT_S, "the queue is cut")
            low, high = bounds(node)
            with AdminClient(f"rocketmq://127.0.0.1:{port}", timeout_ms=30_000) as admin:
                assert admin.bounds(TOPIC)[0] == (low, high)
                assert admin.offset_at(TOPIC, 0, 0) == low
                assert [found.queue_offset for found in admin.by_unique_key(TOPIC, "00000000")] == [400]
                with pytest.raises(AskRefused, match=f"begins at {low} by now"):
                    admin.by_offset(0)
                with pytest.raises(NotInRocketmq, match="fileReservedTime"):
                    admin.alter_topic(TOPIC, retention_ms=60_000)
            came = await_(lambda: consumer.poll(500), WAIT_S, "what is left is read")
            assert came[0].queue_offset == low
            assert consumer.missed == low
        assert node.stop()


def test_it_is_shown_changed_and_taken_away_and_what_is_cut_stays_so(node):
    make_topic(node, retention_ms=3_600_000, retention_bytes=KEPT_BYTES)
    put(node, 6)
    await_(lambda: bounds(node)[0] > 0, WAIT_S, "the queue is cut")
    low, high = bounds(node)
    with administrator(node) as admin:
        shown = next(row for row in admin.topics() if row["topic"] == TOPIC)
        assert (shown["retention_ms"], shown["retention_bytes"]) == (3_600_000, KEPT_BYTES)
        gone = admin.alter_topic(TOPIC, retention_ms=-1, retention_bytes=-1)
        assert (gone["retention_ms"], gone["retention_bytes"]) == (None, None)
        with pytest.raises(AskRefused, match="kept for 5 ms"):
            admin.alter_topic(TOPIC, retention_ms=5)
    put(node, 1)
    await_bounds(node, low, high + PER_REQUEST)
    node.kill_all(seed=1)
    check_sound(node)
    node.start()
    await_bounds(node, low, high + PER_REQUEST)
    assert node.stop()
    node.start()
    await_bounds(node, low, high + PER_REQUEST)


def test_a_start_that_derives_all_queues_again_shows_nothing_that_was_cut(node):
    make_topic(node, retention_bytes=KEPT_BYTES)
    put(node, 6)
    await_(lambda: bounds(node)[0] > 0, WAIT_S, "the queue is cut")
    low, high = bounds(node)
    alter_topic(node, retention_bytes=-1)
    assert node.stop()
    for path in (node.store.consumequeue / TOPIC / "0").iterdir():
        path.unlink()
    (node.store.run / "known.json").unlink(missing_ok=True)
    node.start()
    seen = set()
    await_(lambda: seen.add(bounds(node)) or bounds(node) == (low, high), WAIT_S, "the queue is as it was")
    assert all(begin in (0, low) or begin == end for begin, end in seen), seen
    assert not any(begin < min(low, end) for begin, end in seen), "nothing that was cut was to be seen"


@pytest.fixture(scope="module")
def arming(tmp_path_factory: pytest.TempPathFactory) -> Arming:
    return Arming(tmp_path_factory.mktemp("arming"))


@pytest.fixture(scope="module")
def armed(tmp_path_factory: pytest.TempPathFactory, arming: Arming) -> Iterator[TestNode]:
    made = TestNode("master", tmp_path_factory.mktemp("armed"), **QUICK)
    with ending(made), pytest.MonkeyPatch.context() as patch:
        arming.announce(patch)
        made.start()
        make_topic(made, retention_bytes=KEPT_BYTES)
        yield made
        assert made.stop()
        check_sound(made)


@pytest.mark.parametrize("step", RETENTION_STEPS)
def test_a_kill_at_each_step_shows_nothing_again(armed, arming, step):
    before, lows = armed.pids(), [bounds(armed)[0]]
    arming.arm(f"{step}=kill@{RETENTION_STEPS[step]}")
    for _ in range(60):
        put(armed, 1)
        lows.append(bounds(armed)[0])
        if arming.fired:
            break
    arming.await_fired()
    armed.await_restarted("reput", before)
    put(armed, 4)
    high = armed_end(armed)
    await_(lambda: lows.append(bounds(armed)[0]) or bounds(armed)[0] > high - 200, WAIT_S, "it goes on cutting")
    armed.kill_all(seed=len(step))
    check_sound(armed)
    armed.start()
    lows.append(bounds(armed)[0])
    await_(lambda: bounds(armed)[1] == high, WAIT_S, "all is dispatched again")
    lows.append(bounds(armed)[0])
    assert lows == sorted(lows)
    first = high - 150 // 2 // PER_FILE * PER_FILE
    await_(lambda: files(armed)[0] >= bounds(armed)[0] // PER_FILE, WAIT_S, "files below go")
    assert files(armed)[-1] == (first - 1) // PER_FILE


def armed_end(node: TestNode) -> int:
    await_(lambda: node.at(Position.DISPATCHED) == node.at(Position.APPENDED), WAIT_S, "all is dispatched")
    return bounds(node)[1]


def test_a_slave_cuts_by_the_same_rule_and_shows_no_more_as_a_master(tmp_path):
    pair = Pair(tmp_path, **QUICK)
    pair.slave.flags = [*pair.slave.flags, *(w for k, v in QUICK.items() for w in ("--set", f"{k}={v}"))]
    heir = TestNode("master", pair.slave.store.root, ha_listen_port=0, **QUICK)
    with ending(*pair.nodes, heir):
        pair.start()
        make_topic(pair.master, retention_bytes=KEPT_BYTES)
        put(pair.master, 6)
        put(pair.master, 4, queue_id=1)
        for queue_id, high in ((0, 600), (1, 400)):
            for node in pair.nodes:
                await_(lambda node=node, q=queue_id, high=high: bounds(node, q)[0] > high - 200, WAIT_S, "it is cut")
            assert bounds(pair.master, queue_id) == bounds(pair.slave, queue_id)
        low, high = bounds(pair.slave)
        await_(lambda: TOPIC in read_table(pair.slave.store).topics, WAIT_S, "the slave knows the topic")
        assert read_table(pair.slave.store).topics[TOPIC].retention_bytes == KEPT_BYTES
        alter_topic(pair.master, retention_bytes=-1)
        await_(
            lambda: read_table(pair.slave.store).topics[TOPIC].retention_bytes is None, WAIT_S, "the slave hears of it"
        )
        assert pair.stop() == (True, True)
        heir.start()
        await_bounds(heir, low, high)
        put(heir, 1)
        await_bounds(heir, low, high + PER_REQUEST)
        assert heir.stop()
        check_sound(heir)


def test_a_restored_backup_shows_nothing_that_was_cut_before_it(node, tmp_path):
    make_topic(node, retention_bytes=KEPT_BYTES)
    put(node, 6)
    await_(lambda: bounds(node)[0] > 0, WAIT_S, "the queue is cut")
    low, high = bounds(node)
    alter_topic(node, retention_bytes=-1)
    backup(node, tmp_path / "backup")
    restored = TestNode("master", tmp_path / "restored", ha_listen_port=0, **QUICK)
    store_backup.restore_store(tmp_path / "backup", restored.store.root, "master", as_json=True)
    with ending(restored):
        restored.start()
        await_bounds(restored, low, high)
        assert restored.stop()
        check_sound(restored)


def test_a_topic_that_is_kept_longer_keeps_the_log_for_as_long(tmp_path):
    """file_reserved_time is one hour."""
    node = TestNode("master", tmp_path / "store", **(CLEANED_AT_ONCE | QUICK))
    with ending(node):
        node.start()
        fill(node)
        make_topic(node, retention_ms=3 * HOUR_S * 1000)
        clean(node, 2)
        before = node.store.node_log.read_text()
        assert node.at(Position.LOG_MIN) == 0
        assert "removed segment" not in before
        alter_topic(node, retention_ms=-1)
        clean(node, 2)
        await_(lambda: node.at(Position.LOG_MIN) > 0, WAIT_S, "the log is cleaned by its own time again")
        assert node.stop()
