"""Transactions through a node: what is committed is seen, what is rolled back never, whatever is killed when."""

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.processes.arming import Arming
from tests.processes.nodes import QUEUE_FILE, SEGMENT, TestNode, check_nothing_is_left, ended
from tests.processes.readable import bodies, read_all
from tests.processes.waiting import await_
from towline.client.admin import AdminClient
from towline.client.consumer import Consumer
from towline.client.errors import AskRefused, PutRefused, ReadRefused, TransactionRefused
from towline.client.message import Message, ReceivedMessage
from towline.client.transaction import State, Transaction, TransactionProducer
from towline.format.files.topics import loads_fastjson
from towline.format.record.properties import UNIQ_KEY, decode
from towline.format.record.record import TRANSACTION_COMMIT, TRANSACTION_MASK, Record
from towline.format.record.record import decode as decode_record
from towline.format.wire.frames import ASK, Kind, json_part
from towline.format.wire.status import PutStatus
from towline.link.context import close_context, new_context
from towline.link.dealer import Link
from towline.link.endpoints import ipc_endpoint
from towline.log.commitlog.commit_log import CommitLogReader
from towline.log.queues.consume_queue import ConsumeQueueFiles

DEADLINE_MS = 20_000
DEADLINE_S = 60.0
CHECK_MAX = 9  # whoever is slow to answer is asked again
HALVES = "RMQ_SYS_TRANS_HALF_TOPIC"
OPS = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
ASIDE = "TRANS_CHECK_MAX_TIME_TOPIC"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory, arming: Arming) -> Iterator[TestNode]:
    made = TestNode(
        "master",
        tmp_path_factory.mktemp("node"),
        ha_listen_port=0,
        transaction_time_out=300,
        transaction_check_interval=200,
        transaction_check_max=CHECK_MAX,
        flush_consumer_offset_interval=100,
    )
    cleaning = ended(made)
    next(cleaning)
    try:
        with pytest.MonkeyPatch.context() as patch:
            arming.announce(patch)
            made.start()
        yield made
        assert made.stop()
        check_nothing_is_left(made)
    finally:
        next(cleaning, None)


@pytest.fixture
def producer(node: TestNode) -> Iterator[TransactionProducer]:
    with TransactionProducer(node.endpoint, "tx") as producer:
        yield producer


def halves(node: TestNode) -> dict[int, Record]:
    """What the files of the store hold: no reader of the node sees halves."""
    queues = ConsumeQueueFiles(node.store.consumequeue, QUEUE_FILE, 8)
    log = CommitLogReader(node.store.commitlog, SEGMENT)
    log.load()
    with AdminClient(ipc_endpoint(node.runtime, "schedule")) as admin:
        end = admin.transaction_status()["half_next"]
    try:
        entries = queues.read(HALVES, 0, 0, end)
        places = zip(entries["physical_offset"].tolist(), entries["record_size"].tolist(), strict=True)
        return {number: decode_record(log.slice(at, at + size)) for number, (at, size) in enumerate(places)}
    finally:
        log.close()


def always(state: State) -> Callable[[object], State]:
    return lambda _: state


def test_a_half_is_seen_when_it_is_committed_and_never_when_rolled_back(
    node: TestNode, producer: TransactionProducer
) -> None:
    seen_inside: list[object] = []

    def lookups() -> list[ReceivedMessage]:
        with AdminClient(ipc_endpoint(node.runtime, "serve")) as admin:
            return admin.by_key("first", "k")

    def execute(message: Message) -> State:
        seen_inside.extend([*bodies(node, "first"), *lookups()])
        return State.COMMIT

    committed = producer.send(Message("first", b"yes", tags="a", keys=["k"], queue_id=2), execute)
    assert seen_inside == []
    assert (committed.state, committed.ended) == (State.COMMIT, PutStatus.PUT_OK)
    dropped = producer.send(Message("first", b"no"), always(State.ROLLBACK))
    assert (dropped.state, dropped.ended) == (State.ROLLBACK, PutStatus.PUT_OK)
    producer.send(Message("first", b"last"), always(State.COMMIT))
    messages = read_all(node, "first", least=2)
    assert sorted(message.body for message in messages) == [b"last", b"yes"]
    (message,) = (message for message in messages if message.body == b"yes")
    await_(lambda: [found.raw for found in lookups()] == [message.raw], DEADLINE_S, "it is looked up by its key")
    assert (message.queue_id, message.tags, message.keys) == (2, "a", ("k",))
    assert message.unique_key == committed.transaction.unique_key
    record = message.record
    assert record.sys_flag & TRANSACTION_MASK == TRANSACTION_COMMIT
    assert record.prepared_transaction_offset == committed.half.physical_offset
    assert message.properties["REAL_TOPIC"] == "first"


def test_an_open_half_is_found_by_nobody(node: TestNode, producer: TransactionProducer) -> None:
    before = time.time_ns() // 1_000_000 - 1_000
    transaction, half = producer.begin(Message("unseen", b"half", keys=["k"]))
    await_(lambda: transaction.first in halves(node), DEADLINE_S, "it is dispatched")
    with AdminClient(ipc_endpoint(node.runtime, "serve")) as admin:
        for topic in ("unseen", HALVES):
            assert admin.by_key(topic, "k") == []
            assert admin.by_unique_key(topic, transaction.unique_key) == []
        with pytest.raises(AskRefused, match="transaction is committed"):
            admin.by_offset(half.physical_offset)
        assert admin.by_time("unseen", before) == []
    with (
        Consumer(ipc_endpoint(node.runtime, "serve"), HALVES) as consumer,
        pytest.raises(ReadRefused, match="transaction is committed"),
    ):
        consumer.poll(100)
    assert bodies(node, "unseen") == []
    assert producer.rollback(transaction) is PutStatus.PUT_OK


def test_ends_that_cannot_be_are_answered_by_name(node: TestNode, producer: TransactionProducer) -> None:
    kept, stored = producer.begin(Message("names", b"kept"))
    assert stored.acknowledged
    assert producer.commit(kept) is PutStatus.PUT_OK
    dropped, _ = producer.begin(Message("names", b"dropped"))
    assert producer.rollback(Transaction.read(str(dropped))) is PutStatus.PUT_OK
    open_one, _ = producer.begin(Message("names", b"open"))

    def name_of(end: Callable[[Transaction], PutStatus], transaction: Transaction) -> str:
        with pytest.raises(TransactionRefused) as caught:
            end(transaction)
        return caught.value.name

    assert name_of(producer.commit, kept) == "ALREADY_COMMITTED"
    assert name_of(producer.rollback, kept) == "ALREADY_COMMITTED"
    assert name_of(producer.commit, dropped) == "ALREADY_ROLLED_BACK"
    assert name_of(producer.rollback, dropped) == "ALREADY_ROLLED_BACK"
    stranger = Transaction(kept.first, kept.unique_key, "others")
    assert name_of(producer.commit, stranger) == "ANOTHER_GROUP", "how it ended is its own group's"
    assert name_of(producer.commit, Transaction(kept.first, dropped.unique_key, "tx")) == "NO_SUCH_TRANSACTION"
    first, key = open_one.first, open_one.unique_key
    assert name_of(producer.commit, Transaction(first, key, "others")) == "ANOTHER_GROUP"
    assert name_of(producer.commit, Transaction(first, "no such key", "tx")) == "NO_SUCH_TRANSACTION"
    assert name_of(producer.commit, Transaction(first + 1000, key, "tx")) == "NO_SUCH_TRANSACTION"
    assert producer.commit(open_one) is PutStatus.PUT_OK
    assert bodies(node, "names", 2) == [b"kept", b"open"]


def test_a_half_for_a_topic_of_the_brokers_own_is_refused(producer: TransactionProducer) -> None:
    with pytest.raises(PutRefused, match="REAL_TOPIC"):
        producer.begin(Message(OPS, b"x"))


def await_put_aside(node: TestNode, transaction: Transaction) -> ReceivedMessage:
    """Its message, in the topic of those that were checked too often."""

    def put_aside() -> list[ReceivedMessage]:
        return [message for message in read_all(node, ASIDE) if message.unique_key == transaction.unique_key]

    (message,) = await_(put_aside, DEADLINE_S, "it is put aside")
    return message


def test_a_half_without_room_for_its_checks_is_refused_by_name(node: TestNode) -> None:
    with TransactionProducer(node.endpoint, "large", always(State.UNKNOWN)) as producer:
        with pytest.raises(PutRefused, match="HALF_TOO_LARGE"):
            producer.begin(Message("large", b"", properties={"MORE": "x" * (32_767 - 200)}))
        largest, _ = producer.begin(Message("large", b"", properties={"MORE": "x" * (32_767 - 330)}))
        message = await_put_aside(node, largest)
    assert message.properties["TRANSACTION_CHECK_TIMES"] == str(CHECK_MAX)


@pytest.mark.parametrize("compression", ["zlib", "lz4", "zstd"])
def test_a_compressed_body_is_checked_and_committed_as_it_was_sent(node: TestNode, compression: str) -> None:
    body, topic, asked = b"towline " * 4000, f"packed-{compression}", []

    def check(message: ReceivedMessage) -> State:
        asked.append(message.body)
        return State.COMMIT

    with TransactionProducer(node.endpoint, topic, check, compression=compression) as producer:
        producer.send(Message(topic, body), always(State.COMMIT))
        producer.send(Message(topic, body), always(State.UNKNOWN))
        found = read_all(node, topic, least=2)
    assert [message.body for message in found] == [body, body]
    assert set(asked) == {body}
    assert all(len(message.raw) < len(body) // 4 for message in found), "it stays compressed on its way"


def test_who_left_a_transaction_open_is_asked(node: TestNode) -> None:
    asked: list[ReceivedMessage] = []

    def check(message: ReceivedMessage) -> State:
        asked.append(message)
        return State.COMMIT if message.body == b"commit" else State.ROLLBACK

    with TransactionProducer(node.endpoint, "checked", check) as producer:
        kept = producer.send(Message("checked", b"commit", queue_id=1), always(State.UNKNOWN))
        dropped = producer.send(Message("checked", b"rollback"), always(State.UNKNOWN))
        assert (kept.ended, dropped.ended) == (None, None)
        (message,) = read_all(node, "checked", least=1)
        assert (message.body, message.queue_id, message.unique_key) == (b"commit", 1, kept.transaction.unique_key)

        def dropped_is_over() -> bool:
            with pytest.raises(TransactionRefused) as caught:
                producer.commit(dropped.transaction)
            return caught.value.name == "ALREADY_ROLLED_BACK"

        await_(lambda: {message.body for message in asked} == {b"commit", b"rollback"}, DEADLINE_S, "both are asked")
        await_(dropped_is_over, DEADLINE_S, "it is rolled back")
    assert {message.topic for message in asked} == {"checked"}
    assert all(message.properties["PGROUP"] == "checked" for message in asked)


def test_what_is_checked_too_often_is_put_aside(node: TestNode) -> None:
    checked = threading.Event()

    def check(message: ReceivedMessage) -> State:
        checked.set()
        return State.UNKNOWN

    with TransactionProducer(node.endpoint, "silent", check) as producer:
        transaction, _ = producer.begin(Message("aside", b"forgotten", queue_id=0))
        message = await_put_aside(node, transaction)
        with pytest.raises(TransactionRefused, match="ALREADY_PUT_ASIDE"):
            producer.commit(transaction)
    assert checked.is_set()
    assert bodies(node, "aside") == []
    assert message.body == b"forgotten"
    assert message.properties["REAL_TOPIC"] == "aside"
    assert message.properties["TRANSACTION_CHECK_TIMES"] == str(CHECK_MAX)
    assert message.properties["TRAN_PREPARED_QUEUE_OFFSET"] == str(transaction.first)


STEPS = {  # where, and what the transaction that is ended then is
    "put.before_publish": "an end that put did not finish",
    "put.after_publish": "message and op record stored, nobody knows",
    "schedule.before_end": "a half, stored",
    "schedule.after_end": "put has answered, the producer was not told",
}


@pytest.mark.parametrize(
    ("step", "state"),
    [*((step, State.COMMIT) for step in STEPS), *((step, State.ROLLBACK) for step in STEPS if "after" in step)],
)
def test_a_kill_loses_no_commit_and_shows_no_rollback(node: TestNode, arming: Arming, step: str, state: State) -> None:
    topic = f"{step.replace('.', '-')}-{state.value}"

    def execute(message: Message) -> State:
        arming.arm(f"{step}=kill")
        return state

    with TransactionProducer(node.endpoint, topic, always(state)) as producer:
        result = producer.send(Message(topic, b"body"), execute)
        arming.await_fired()
        assert result.ended is PutStatus.PUT_OK
        producer.send(Message(topic, b"after"), always(State.COMMIT))
        messages = read_all(node, topic, least=2 if state is State.COMMIT else 1)
    found = [message.unique_key for message in messages if message.body == b"body"]
    if state is State.COMMIT:
        assert found == [result.transaction.unique_key], "seen once: the put is asked for only when it is not there"
    else:
        assert found == []


def test_a_half_that_was_stored_when_put_died_is_ended_by_a_check(node: TestNode, arming: Arming) -> None:
    with TransactionProducer(node.endpoint, "half-kill", always(State.COMMIT)) as producer:
        producer.send(Message("half-kill", b"before"), always(State.COMMIT))
        arming.arm("put.after_publish=kill")
        result = producer.send(Message("half-kill", b"body"), always(State.UNKNOWN))
        arming.await_fired()
        messages = read_all(node, "half-kill", least=2)
        keys = [message.unique_key for message in messages if message.body == b"body"]
        producer.send(Message("half-kill", b"last"), always(State.COMMIT))
        assert [message.body for message in read_all(node, "half-kill", least=3)].count(b"body") == 1
        assert keys == [result.transaction.unique_key], "the producer stored the half twice, with one unique key"


def test_a_check_that_was_stored_when_the_process_died_is_made_again(node: TestNode, arming: Arming) -> None:
    with TransactionProducer(node.endpoint, "check-kill", always(State.COMMIT)) as producer:
        arming.arm("schedule.after_check=kill")
        result = producer.send(Message("check-kill", b"body"), always(State.UNKNOWN))
        arming.await_fired()
        (message,) = read_all(node, "check-kill", least=1)
    assert message.unique_key == result.transaction.unique_key


def test_a_check_survives_a_kill_of_the_whole_node(node: TestNode) -> None:
    with TransactionProducer(node.endpoint, "restart") as producer:
        result = producer.send(Message("restart", b"open"), always(State.UNKNOWN))
        producer.send(Message("restart", b"seen"), always(State.COMMIT))
        gone = producer.send(Message("restart", b"gone"), always(State.ROLLBACK))
    node.kill_all(7)
    node.start()
    asked: list[bytes] = []

    def check(message: ReceivedMessage) -> State:
        asked.append(message.body)
        return State.COMMIT

    with TransactionProducer(node.endpoint, "restart", check) as producer:
        assert bodies(node, "restart", 2) == [b"open", b"seen"]
        with pytest.raises(TransactionRefused, match="ALREADY_ROLLED_BACK"):
            producer.commit(gone.transaction)
        with pytest.raises(TransactionRefused, match="ALREADY_COMMITTED"):
            producer.commit(result.transaction)
    assert set(asked) == {b"open"}


def test_the_disk_holds_what_rocketmq_reads(node: TestNode, producer: TransactionProducer) -> None:
    result = producer.send(Message("disk", b"body"), always(State.COMMIT))
    await_(lambda: result.transaction.first in halves(node), DEADLINE_S, "it is dispatched")
    half = halves(node)[result.transaction.first]
    assert decode(half.properties)[UNIQ_KEY] == result.transaction.unique_key
    assert half.sys_flag & TRANSACTION_MASK == 0

    def ops() -> list[str | None]:
        return [op.tags for op in read_all(node, OPS) if op.body == b"%d" % result.transaction.first]

    await_(ops, DEADLINE_S, "the op record is dispatched")
    assert ops() == ["d"]
    ends = {HALVES: max(halves(node)) + 1, OPS: read_all(node, OPS)[-1].queue_offset + 1}

    def saved() -> bool:
        path = Path(node.store.config / "consumerOffset.json")
        table = loads_fastjson(path.read_text(), str(path))["offsetTable"] if path.exists() else {}
        found = {topic: table.get(f"{topic}@CID_RMQ_SYS_TRANS", {}).get("0") for topic in (HALVES, OPS)}
        return found == ends

    await_(saved, DEADLINE_S, "the offsets of both system topics are saved")


@pytest.mark.parametrize(
    "parts",
    [
        [b""],
        [ASK.pack(Kind.ASK, 1), b"no json"],
        [ASK.pack(Kind.ASK, 1), json_part({"op": "transaction_end", "first": 0})],
        [ASK.pack(Kind.ASK, 1), json_part({"op": "transaction_watch", "group": "g", "wait_ms": "x" * 2000})],
        [ASK.pack(Kind.ASK, 1), json_part({"op": "route", "topic": "t"}), b"more"],
    ],
)
def test_what_is_no_question_cuts_its_own_link_alone(
    node: TestNode, producer: TransactionProducer, parts: list[bytes]
) -> None:
    context = new_context()
    link = Link(context, ipc_endpoint(node.runtime, "schedule"), {"role": "producer"})
    link.greet(DEADLINE_MS)
    link.send(parts)
    await_(lambda: link.lost or link.receive(), DEADLINE_S, "the link is cut")
    assert link.lost
    link.close()
    close_context(context)
    assert producer.send(Message("bad-input", b"x"), always(State.COMMIT)).ended is PutStatus.PUT_OK
