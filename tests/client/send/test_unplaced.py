"""Messages for a topic that is new to the producer: nobody waits for its queues, and their order stays."""

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import as_completed, wait
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from tests.client.standin import Standin
from tests.processes.waiting import await_
from towline.client.errors import ClientClosed, ClientForked, MessageTooLarge, ProducerFull, ResultPending
from towline.client.message import Message
from towline.client.producer import Producer
from towline.client.send import unplaced
from towline.client.send.futures import SendFuture, SendResult, UnplacedFuture
from towline.client.send.unplaced import THREADS_MAX
from towline.errors import IllegalProperty, NoAnswer, TowlineError, UnknownTopic
from towline.format.wire.frames import Kind, kind_of
from towline.limits import KIB

WAIT_S = 10.0


@pytest.fixture
def away(node: Standin) -> Iterator[Standin]:
    """The node, which is not there until it is started."""
    node.stop()
    yield node
    if node._stop.is_set():
        node.start()  # what stops it finds it running


@pytest.fixture
def gate(node: Standin, monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """The node answers no question before this is set."""
    opened, answer = threading.Event(), node._answer

    def answered_later(request_id: int, question: dict[str, Any]) -> list[bytes]:
        assert opened.wait(WAIT_S)
        return answer(request_id, question)

    monkeypatch.setattr(node, "_answer", answered_later)
    yield opened
    opened.set()


def bodies(node: Standin, topic: str) -> list[bytes]:
    return [record.body for record in node.stored(topic)]


def finders() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "towline producer finds topics"]


@contextmanager
def senders(producer: Producer, topics: list[str], count: int = 1, pause_s: float = 0.0) -> Iterator[None]:
    """Threads that send to each of the topics, again and again."""
    stop = threading.Event()

    def send() -> None:
        while not stop.wait(pause_s) if pause_s else not stop.is_set():
            for topic in topics:
                with suppress(ProducerFull):
                    producer.send_async(Message(topic, b"x" * 100), max_block_ms=100)

    threads = [threading.Thread(target=send) for _ in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def count_searches(producer: Producer, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The topics that the threads of the producer have searched for so far."""
    searched: list[str] = []
    find = producer._unplaced._find

    def counted(message: Message, timeout_ms: int) -> Any:
        searched.append(message.topic)
        return find(message, timeout_ms)

    monkeypatch.setattr(producer._unplaced, "_find", counted)
    return searched


@contextmanager
def unanswered(node: Standin, topic: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The node does what else it is asked, and answers about this topic afterwards."""
    held: list[tuple[Any, Any]] = []
    handle, ends = node._handle, threading.Event()

    def handle_others(server: Any, request: Any) -> None:
        while ends.is_set() and held:
            handle(*held.pop())
        if topic.encode() in bytes(request.parts[1]) and kind_of(request.parts[0]) == Kind.ASK and not ends.is_set():
            held.append((server, request))
        else:
            handle(server, request)

    monkeypatch.setattr(node, "_handle", handle_others)
    try:
        yield
    finally:
        ends.set()


class TestWaitingForATopic:
    def test_a_node_that_is_away_holds_up_nobody_and_gets_all_in_order_when_it_is_back(self, away: Standin) -> None:
        with Producer(away.endpoint) as producer:
            futures = [producer.send_async(Message("one", b"%d" % number)) for number in range(100)]
            assert not any(future.done() for future in futures)
            away.start()
            offsets = [future.result(WAIT_S).queue_offset for future in futures]
        assert offsets == list(range(100))
        assert bodies(away, "one") == [b"%d" % number for number in range(100)]

    def test_what_is_sent_while_they_go_comes_behind_them(self, node: Standin, gate: threading.Event) -> None:
        with Producer(node.endpoint, linger_ms=0, batch_bytes_max=KIB) as producer:
            futures = [producer.send_async(Message("one", b"%d" % number)) for number in range(200)]
            gate.set()
            futures += [producer.send_async(Message("one", b"%d" % number)) for number in range(200, 2_000)]
            assert [future.result(WAIT_S).queue_offset for future in futures] == list(range(2_000))
        assert bodies(node, "one") == [b"%d" % number for number in range(2_000)]

    @pytest.mark.parametrize(
        "call",
        [
            lambda producer: producer.send(Message("one", b"last")),
            lambda producer: producer.send_batch([Message("one", b"last")]),
            lambda producer: producer.send_bodies("one", [b"last"]),
        ],
        ids=["send", "send_batch", "send_bodies"],
    )
    def test_a_call_that_waits_sends_behind_them_too(
        self, node: Standin, gate: threading.Event, call: Callable[[Producer], object]
    ) -> None:
        with Producer(node.endpoint) as producer:
            for number in range(50):
                producer.send_async(Message("one", b"%d" % number))
            threading.Timer(0.05, gate.set).start()
            call(producer)
        assert bodies(node, "one") == [*(b"%d" % number for number in range(50)), b"last"]

    def test_a_topic_that_is_not_answered_holds_up_no_other(self, node: Standin, gate: threading.Event) -> None:
        with Producer(node.endpoint) as producer:
            gate.set()
            producer.route("t")
            gate.clear()
            waiting = producer.send_async(Message("one", b"1"))
            assert producer.send_async(Message("t", b"2")).unique_key
            assert not waiting.done()
            gate.set()
            assert waiting.result(WAIT_S).acknowledged

    def test_a_message_goes_as_it_was_given(self, away: Standin) -> None:
        message = Message("one", bytearray(b"given"), properties={"a": "1"}, keys=["k"])
        with Producer(away.endpoint) as producer:
            future = producer.send_async(message)
            message.body[:] = b"later"
            message.properties["a"] = message.keys[0] = "2"  # type: ignore[index]
            away.start()
            future.result(WAIT_S)
        [record] = away.stored("one")
        assert (record.body, b"\x012" in record.properties) == (b"given", False)
        assert f"UNIQ_KEY\x01{future.unique_key}".encode() in record.properties

    def test_more_topics_than_threads_have_their_outcome_in_time_though_all_are_sent_to_all_the_time(
        self, away: Standin
    ) -> None:
        with Producer(away.endpoint, delivery_timeout_ms=300) as producer:
            busy = [f"topic-{number}" for number in range(THREADS_MAX)]
            with senders(producer, busy, pause_s=0.005):
                await_(lambda: len(producer._lots) == THREADS_MAX, WAIT_S, "all of them wait")
                late = producer.send_async(Message("one", b"late"))
                assert isinstance(late.exception(WAIT_S), NoAnswer)
            away.start()

    def test_all_that_are_overdue_end_together(self, away: Standin, monkeypatch: pytest.MonkeyPatch) -> None:
        with Producer(away.endpoint, delivery_timeout_ms=200) as producer:
            searched = count_searches(producer, monkeypatch)
            futures = [producer.send_async(Message("one", b"%d" % number)) for number in range(500)]
            assert {type(future.exception(WAIT_S)) for future in futures} == {NoAnswer}
        assert len(searched) < 50

    def test_a_topic_is_asked_for_once_for_all_that_wait_for_it(
        self, node: Standin, gate: threading.Event, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with Producer(node.endpoint) as producer:
            searched = count_searches(producer, monkeypatch)
            futures = [producer.send_async(Message("t", b"%d" % number)) for number in range(1_000)]
            gate.set()
            assert all(future.result(WAIT_S).acknowledged for future in futures)
        assert searched == ["t"]

    def test_threads_that_send_without_a_pause_soon_wait_for_nobody(self, node: Standin, gate: threading.Event) -> None:
        with Producer(node.endpoint) as producer, senders(producer, ["one"], count=4):
            await_(lambda: producer._lots and len(producer._lots["one", ""].waiting) > 1_000, WAIT_S, "many wait")
            gate.set()
            await_(lambda: not producer._lots, WAIT_S, "none waits, while they go on")

    def test_who_sends_the_last_one_ends_the_lot_and_does_not_wait_for_its_thread(
        self, node: Standin, gate: threading.Event, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Beside one who sends all the time it gets neither lock nor interpreter for long, and all go the slow way."""
        monkeypatch.setattr(unplaced, "TOGETHER", 1)
        monkeypatch.setattr(unplaced, "LET_GO_S", 5.0)  # the thread sends one message, and is away then
        with Producer(node.endpoint) as producer:
            futures = [producer.send_async(Message("one", b"%d" % number)) for number in range(40)]
            gate.set()
            await_(lambda: producer._lots["one", ""].is_open, WAIT_S, "the lot is open")
            futures += [producer.send_async(Message("one", b"%d" % number)) for number in range(40, 60)]
            assert not producer._lots
            futures += [producer.send_async(Message("one", b"%d" % number)) for number in range(60, 70)]
            assert [future.result(WAIT_S).queue_offset for future in futures] == list(range(70))
        assert bodies(node, "one") == [b"%d" % number for number in range(70)]

    def test_a_batch_of_known_topics_does_not_wait_for_what_others_send(
        self, node: Standin, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with Producer(node.endpoint, delivery_timeout_ms=2_000) as producer:
            producer.route("t")
            with unanswered(node, "one", monkeypatch):
                waiting = producer.send_async(Message("one", b""))
                assert producer.send_batch([Message("t", b"")])[0].acknowledged
                assert not waiting.done()
            waiting.exception(WAIT_S)

    def test_a_thread_that_cannot_start_leaves_nothing_of_the_message(
        self, node: Standin, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def no_more(_: threading.Thread) -> None:
            raise RuntimeError("can't start new thread")

        with Producer(node.endpoint, buffer_bytes_max=4 * KIB) as producer:
            with monkeypatch.context() as patch:
                patch.setattr(threading.Thread, "start", no_more)
                for _ in range(10):
                    with pytest.raises(RuntimeError, match="can't start"):
                        producer.send_async(Message("one", bytes(KIB)))
            producer.flush(int(WAIT_S * 1_000))
            assert producer.send_async(Message("one", bytes(KIB))).result(WAIT_S).acknowledged

    def test_the_threads_that_ask_end_when_there_is_nothing_to_ask(self, node: Standin) -> None:
        with Producer(node.endpoint) as producer:
            producer.send_async(Message("one", b"")).result(WAIT_S)
            await_(lambda: not finders(), WAIT_S, "nobody asks any more")


class TestWhatBecomesOfThem:
    def test_a_topic_that_is_not_there_is_the_outcome_of_all_who_waited_for_it(
        self, node: Standin, gate: threading.Event
    ) -> None:
        with Producer(node.endpoint) as producer:
            futures = [producer.send_async(Message("unknown", b"")) for _ in range(50)]
            gate.set()
            assert {type(future.exception(WAIT_S)) for future in futures} == {UnknownTopic}
            assert producer.send(Message("one", b"")).acknowledged
        assert [each["topic"] for each in node.asked if each["op"] == "route"].count("unknown") <= 2

    def test_nobody_there_is_no_answer_when_the_time_of_a_delivery_is_over(self, away: Standin) -> None:
        with Producer(away.endpoint, delivery_timeout_ms=200) as producer:
            futures = [producer.send_async(Message(topic, b"")) for topic in ("one", "one", "t")]
            for future in futures:
                with pytest.raises(NoAnswer, match="200 ms"):
                    future.result(WAIT_S)

    def test_a_message_that_cannot_be_stored_takes_no_other_down(self, node: Standin, gate: threading.Event) -> None:
        with Producer(node.endpoint, compression=None) as producer:
            good = producer.send_async(Message("one", b"good"))
            with pytest.raises(IllegalProperty):
                producer.send_async(Message("one", b"", tags=""))
            large = producer.send_async(Message("one", bytes(5_000_000)))
            more = producer.send_async(Message("one", b"more"))
            gate.set()
            assert isinstance(large.exception(WAIT_S), MessageTooLarge)
            assert good.result(WAIT_S).queue_offset + 1 == more.result(WAIT_S).queue_offset

    def test_everyone_has_an_error_of_their_own_that_holds_no_other_message(
        self, node: Standin, gate: threading.Event
    ) -> None:
        with Producer(node.endpoint) as producer:
            futures = [producer.send_async(Message("unknown", b"")) for _ in range(10)]
            gate.set()
            errors = [future.exception(WAIT_S) for future in futures]
        assert len({id(error) for error in errors}) == len(errors)
        for error in errors:
            assert isinstance(error, UnknownTopic)
            assert (error.__traceback__, error.__context__, error.__cause__) == (None, None, None)

    def test_one_that_nobody_foresaw_is_logged_and_a_handler_of_the_log_may_send(
        self, node: Standin, caplog: pytest.LogCaptureFixture
    ) -> None:
        logged: list[SendFuture] = []

        class Sends(logging.Handler):
            def emit(self, record: logging.LogRecord) -> None:
                logged.append(producer.send_async(Message("one", record.getMessage().encode())))

        handler = Sends()
        with Producer(node.endpoint) as producer:
            logging.getLogger("towline.client.send.unplaced").addHandler(handler)
            try:
                bad = producer.send_async(Message("one", b"", flag="no number"))  # type: ignore[arg-type]
                assert bad.exception(WAIT_S) is not None
                await_(lambda: logged, WAIT_S, "it is logged")
            finally:
                logging.getLogger("towline.client.send.unplaced").removeHandler(handler)
            assert logged[0].result(WAIT_S).acknowledged
        assert "a message for one cannot be sent" in caplog.text
        assert "Traceback" in caplog.text

    @pytest.mark.parametrize("topic", ["t", "unknown"], ids=["on the I/O thread", "on one that asks"])
    def test_a_callback_may_close_the_producer_without_a_flush(
        self, node: Standin, topic: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        closed = threading.Event()

        def close(result: SendResult | None, error: TowlineError | None) -> None:
            producer.close(flush=False)
            closed.set()

        producer = Producer(node.endpoint)
        producer.route("t")
        with unanswered(node, "one", monkeypatch):
            waiting = [producer.send_async(Message("one", b"%d" % number)) for number in range(3)]
            producer.send_async(Message(topic, b""), close)
            assert closed.wait(WAIT_S)
        assert {type(future.exception(WAIT_S)) for future in waiting} == {ClientClosed}

    def test_they_count_in_the_buffer_until_they_have_their_outcome(self, away: Standin) -> None:
        with Producer(away.endpoint, buffer_bytes_max=20 * KIB, delivery_timeout_ms=200) as producer:
            first = producer.send_async(Message("one", bytes(15 * KIB)))
            with pytest.raises(ProducerFull):
                producer.send_async(Message("t", bytes(15 * KIB)))
            assert isinstance(first.exception(WAIT_S), NoAnswer)
            assert isinstance(producer.send_async(Message("t", bytes(15 * KIB))).exception(WAIT_S), NoAnswer)

    def test_closing_waits_for_them(self, away: Standin) -> None:
        producer = Producer(away.endpoint, linger_ms=60_000)
        future = producer.send_async(Message("one", b""))
        threading.Timer(0.05, away.start).start()
        producer.close()
        assert future.result(0).acknowledged

    def test_closing_without_a_flush_gives_them_up(self, away: Standin) -> None:
        producer = Producer(away.endpoint)
        futures = [producer.send_async(Message(topic, b"")) for topic in ("one", "t", "one")]
        producer.close(flush=False)
        for future in futures:
            with pytest.raises(ClientClosed):
                future.result(0)
        with pytest.raises(ClientClosed):
            producer.send_async(Message("one", b""))

    def test_a_flush_says_when_it_waited_in_vain(self, away: Standin) -> None:
        producer = Producer(away.endpoint)
        producer.send_async(Message("one", b""))
        with pytest.raises(ResultPending):
            producer.flush(10)
        producer.close(flush=False)


class TestFutures:
    def test_they_are_futures_of_the_standard_library_before_and_after(self, away: Standin) -> None:
        async def awaited(future: SendFuture) -> SendResult:
            return await asyncio.wait_for(asyncio.wrap_future(future), WAIT_S)

        with Producer(away.endpoint) as producer:
            futures = [producer.send_async(Message("one", b"%d" % number)) for number in range(4)]
            assert wait(futures, timeout=0.001).not_done == set(futures)
            assert [futures[0].cancel(), futures[0].done(), futures[0].running()] == [False, False, True]
            with pytest.raises(ResultPending, match="no result after 1 ms"):
                futures[0].result(0.001)
            waiting = threading.Thread(target=futures[1].result)  # from before it has a place
            waiting.start()
            threading.Timer(0.05, away.start).start()
            assert asyncio.run(awaited(futures[3])).queue_offset == 3
            assert set(as_completed(futures, timeout=WAIT_S)) == set(futures)
            waiting.join(WAIT_S)
            assert not waiting.is_alive()

    @pytest.mark.parametrize("is_new", [False, True], ids=["known topic", "new topic"])
    def test_a_callback_gets_the_result_or_the_error(self, node: Standin, gate: threading.Event, is_new: bool) -> None:
        called: list[tuple[SendResult | None, TowlineError | None]] = []
        threads: set[threading.Thread] = set()

        def note(result: SendResult | None, error: TowlineError | None) -> None:
            called.append((result, error))
            threads.add(threading.current_thread())

        with Producer(node.endpoint, linger_ms=1) as producer:
            if not is_new:
                gate.set()
                producer.route("one")
            future = producer.send_async(Message("one", b""), note)
            gate.set()
            await_(lambda: called, WAIT_S, "the callback of a result")
            lost = producer.send_async(Message("unknown", b""), callback=note)
            await_(lambda: len(called) > 1, WAIT_S, "the callback of an error")
        assert called == [(future.result(0), None), (None, lost.exception(0))]
        assert threading.main_thread() not in threads

    @pytest.mark.parametrize("is_new", [False, True], ids=["known topic", "new topic"])
    def test_a_callback_costs_the_same_however_many_are_there(
        self, node: Standin, gate: threading.Event, is_new: bool
    ) -> None:
        """They are added to one list."""
        with Producer(node.endpoint, linger_ms=60_000) as producer:
            gate.set()
            producer.route("t")
            gate.clear()
            future = producer.send_async(Message("one" if is_new else "t", b"", queue_id=0), print)
            future.add_done_callback(print)
            before = future.batch.callbacks
            assert before
            if is_new:
                future.add_done_callback(print)
            else:
                producer.send_async(Message("t", b"", queue_id=0), print)
            assert future.batch.callbacks is before
            before.clear()
            gate.set()
            producer.close()

    def test_in_the_child_of_a_fork_one_that_has_its_batch_ends_with_that(self, node: Standin) -> None:
        with Producer(node.endpoint, linger_ms=60_000) as producer:
            future = producer.send_async(Message("one", b""))
            await_(lambda: not producer._lots, WAIT_S, "it has its batch")
            assert isinstance(future, UnplacedFuture)
            future.forked(ClientForked("producer", 1))
            assert not future.done()

    def test_a_callback_that_raises_is_logged_and_harms_nobody(
        self, away: Standin, caplog: pytest.LogCaptureFixture
    ) -> None:
        def fail(result: SendResult | None, error: TowlineError | None) -> None:
            raise RuntimeError("in a callback")

        with Producer(away.endpoint) as producer:
            producer.send_async(Message("one", b""), fail)
            away.start()
            assert producer.send(Message("one", b"")).acknowledged
        assert "in a callback" in caplog.text
