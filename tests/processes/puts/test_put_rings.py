"""Puts through shared memory: used where they can be, given up where either side dies, and trusted in nothing."""

import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from contextlib import nullcontext
from itertools import islice
from pathlib import Path

import pytest

from tests.processes.grouping import serve_of
from tests.processes.load import Load
from tests.processes.nodes import TestNode, check_nothing_is_left, ended, free_port
from tests.processes.ring_client import LAST, NEVER, STEPS, WHOLE, RawRing
from tests.processes.stored import Stored, check_load
from tests.processes.waiting import await_
from tests.processes.wire import records_of
from tests.processes.without_rings import without_rings
from towline.client.consumer import Consumer
from towline.client.message import Message
from towline.client.producer import Producer
from towline.client.send.io_thread import IoThread
from towline.format.wire.frames import Group, encode_put
from towline.format.wire.put_ring import HEAD_SIZE, PAD, SIZE_BITS, Word, request_word
from towline.format.wire.status import PutStatus
from towline.limits import KIB
from towline.link.put_ring import NAME
from towline.runtime.positions import Position

TOPIC = "rings"
RINGS = 3
GONE_S = 60.0


def started(store: Path, **settings: object) -> TestNode:
    node = TestNode("master", store, flush_disk_type="ASYNC_FLUSH", ha_listen_port=free_port(), **settings)
    node.start()
    return node


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    made = started(tmp_path_factory.mktemp("rings"), shared_memory_puts_max=RINGS, shared_memory_puts_size=64 * KIB)
    ending = ended(made)
    next(ending)
    with Producer(made.endpoint) as producer:
        producer.send(Message(TOPIC, b"first"))
    yield made
    assert made.stop()
    check_nothing_is_left(made)
    next(ending, None)


def rings_of(node: TestNode) -> int:
    """How many rings put has mapped."""
    maps = Path(f"/proc/{node.pids()['put']}/maps").read_text()
    return maps.count(NAME)


def await_rings(node: TestNode, count: int) -> None:
    await_(lambda: rings_of(node) == count, GONE_S, f"{count} rings")


@pytest.fixture
def raw(node):
    await_rings(node, 0)
    client = RawRing(node.endpoint)
    yield client
    client.close()


class TestAProducer:
    def test_uses_a_ring_by_itself_and_leaves_nothing_of_it(self, node):
        await_rings(node, 0)
        with Producer(node.endpoint, linger_ms=1_000) as producer:
            assert producer.send(Message(TOPIC, b"before")).acknowledged
            results = producer.send_batch([Message(TOPIC, b"%d" % number) for number in range(100)])  # it has room
            assert {result.status for result in results} == {PutStatus.PUT_OK}
            found = producer.statistics
            assert rings_of(node) == 1
        assert found.requests >= 2
        assert found.through_ring >= found.requests - 1  # the first one may go before put has taken the ring
        await_rings(node, 0)

    def test_takes_the_answer_of_a_single_message_on_the_thread_that_sends_it(self, node, monkeypatch):
        threads = Counter()
        handle = IoThread._handle_answer

        def noted(io_thread, answer):
            threads[threading.current_thread()] += 1
            handle(io_thread, answer)

        monkeypatch.setattr(IoThread, "_handle_answer", noted)
        offsets = []
        with Producer(node.endpoint) as producer:

            def sent():
                offsets.extend(producer.send(Message("single", b"x", queue_id=0)).queue_offset for _ in range(100))
                return threads[threading.main_thread()]

            await_(sent, GONE_S, "an answer on this thread: it is the I/O thread's where put takes longer than a spin")
        assert offsets == list(range(len(offsets)))
        assert threads.total() == len(offsets)

    def test_sends_full_batches_on_the_thread_that_fills_them_and_calls_back_on_its_own(self, node, monkeypatch):
        senders, called = Counter(), Counter()
        send = IoThread._send_request

        def noted(io_thread, link, batches):
            senders[threading.current_thread()] += 1
            return send(io_thread, link, batches)

        monkeypatch.setattr(IoThread, "_send_request", noted)
        with Producer(node.endpoint, batch_bytes_max=4 * KIB, linger_ms=1_000) as producer:
            producer.send(Message("filled", b"first", queue_id=0))
            futures = [producer.send_async(Message("filled", b"%d" % n, queue_id=0)) for n in range(3_000)]
            for future in futures:
                future.add_done_callback(lambda _: called.update([threading.current_thread()]))
            producer.flush()
            bulk = producer.send_bodies("filled", [b"%d" % n for n in range(3_000)], queue_id=0)
            assert [future.result().queue_offset for future in futures] == list(range(1, 3_001))
        assert sum(result.count for result in bulk) == 3_000
        assert [result.queue_offset for result in bulk] == sorted(result.queue_offset for result in bulk)
        assert senders[threading.main_thread()] > 0
        assert called.total() == 3_000
        others = [thread for thread in called if not isinstance(thread, IoThread)]
        assert set(others) <= {threading.main_thread()}, "what was finished before is called back at once"

    def test_of_which_many_threads_send_at_once_loses_and_doubles_nothing(self, node):
        done = []

        def send(producer, name):
            futures = []
            for number in range(150):
                if number % 3:
                    futures.append(producer.send_async(Message("many", b"%s %d later" % (name, number), queue_id=0)))
                done.append(producer.send(Message("many", b"%s %d" % (name, number), queue_id=0)).queue_offset)
            done.extend(future.result().queue_offset for future in futures)

        with Producer(node.endpoint, linger_ms=0.5) as producer:
            threads = [threading.Thread(target=send, args=(producer, b"%d" % number)) for number in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(GONE_S)
        assert sorted(done) == list(range(4 * (150 + 100)))

    @pytest.mark.parametrize("way", ["a ring", "a socket"])
    def test_has_no_message_stored_before_its_birth(self, node, way):
        topic = f"born-{way[2:]}"
        with nullcontext() if way == "a ring" else without_rings(), Producer(node.endpoint) as producer:
            for number in range(1_000):
                producer.send(Message(topic, b"%d" % number, queue_id=0))
        with Consumer(serve_of(node), topic) as consumer:
            found = list(islice(consumer, 1_000))
        early = Counter(each.store_timestamp - each.born_timestamp for each in found)
        assert min(early) >= 0, early

    def test_of_another_machine_has_none(self, tmp_path):
        node = started(tmp_path / "store", listen_port=free_port())
        for _ in ended(node):
            with Producer(node.facts["endpoints"]["remoting"][0]) as producer:
                assert producer.send(Message(TOPIC, b"far")).acknowledged
                assert producer.statistics.through_ring == 0
            assert node.stop()

    def test_beyond_the_last_ring_uses_the_socket(self, node):
        await_rings(node, 0)
        producers = [Producer(node.endpoint) for _ in range(RINGS + 1)]
        try:
            for producer in producers:
                for number in range(5):
                    assert producer.send(Message(TOPIC, b"%d" % number)).acknowledged
            assert [producer.statistics.through_ring > 0 for producer in producers] == [True] * RINGS + [False]
            assert rings_of(node) == RINGS
        finally:
            for producer in producers:
                producer.close()

    def test_waits_where_the_ring_is_full_and_sends_what_is_too_large_over_the_socket_in_its_order(self, node):
        bodies = [os.urandom(size) for size in (20 * KIB, 40 * KIB, 100, 200 * KIB, 100, 20 * KIB, 20 * KIB, 100) * 20]
        with Producer(node.endpoint, batch_bytes_max=48 * KIB, linger_ms=0, compression=None) as producer:
            futures = [producer.send_async(Message("mixed", body, queue_id=0)) for body in bodies]
            results = [future.result() for future in futures]
            found = producer.statistics
        assert [result.queue_offset for result in results] == list(range(len(bodies)))
        assert 20 <= found.through_ring < found.requests

    def test_that_is_refused_hears_the_same_sentence(self, node):
        told = []
        for client in (RawRing(node.endpoint), None):
            request = records_of(b"absent topic", 1)
            if client is not None:
                told.append(client.put(request))
                client.close()
        (answer,) = told
        assert PutStatus(answer.status) is not PutStatus.PUT_OK
        assert answer.sentence


@pytest.mark.parametrize("step", [*STEPS, LAST])
def test_a_client_killed_inside_a_request_leaves_nothing_of_it(node, step):
    await_rings(node, 0)
    before = node.at(Position.APPENDED)
    command = [sys.executable, "-m", "tests.processes.ring_client", node.endpoint, TOPIC, step]
    done = subprocess.run(command, cwd=Path(__file__).parents[3], timeout=50, capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    await_rings(node, 0)
    size = len(records_of(TOPIC.encode(), 2).data)
    wanted = WHOLE + (step == LAST)  # visible is a request from its last store on
    await_(lambda: node.at(Position.APPENDED) == before + wanted * size, GONE_S, "the whole requests are stored")
    with Producer(node.endpoint) as producer:
        assert producer.send(Message(TOPIC, b"after")).acknowledged
        assert node.at(Position.APPENDED) > before + wanted * size


def _first(raw: RawRing, word: int, tail: int) -> None:
    raw.ring.memory.words[HEAD_SIZE >> 3] = word
    raw.ring.memory.words[Word.REQUESTS_TAIL] = tail


def _put_head(groups: int = 1) -> bytes:
    return encode_put(1, 0, NEVER, [Group(TOPIC.encode(), 0, 1, 200)] * groups)


def _head_of_other_kind(raw: RawRing) -> None:
    raw.ring.send(b"\x0c" + _put_head()[1:], bytes(200))


def _head_cut_short(raw: RawRing) -> None:
    raw.ring.send(_put_head()[:-3], bytes(200))


def _moved_back(raw: RawRing) -> None:
    raw.put(records_of(TOPIC.encode(), 1))
    raw.ring.memory.words[Word.REQUESTS_TAIL] = 0


def _answers_moved_back(raw: RawRing) -> None:
    raw.put(records_of(TOPIC.encode(), 1))
    raw.ring.memory.words[Word.ANSWERS_HEAD] = -8
    request = records_of(TOPIC.encode(), 1)

    def seen() -> bool:
        """At the latest when there would be no room for answers any more."""
        for _ in range(200):
            raw.ring.send(raw.head(request), request.data)
        return bool(raw.ring.memory.words[Word.CUT])

    await_(seen, 3 * GONE_S, "the place that moved back is seen")


HOSTILE = {
    "a tail beyond the ring": (lambda raw: _first(raw, 8, 1 << 40), "position"),
    "a tail before its head": (_moved_back, "position"),
    "an entry beyond the ring": (lambda raw: _first(raw, request_word(30, SIZE_BITS), 64 * KIB), "larger"),
    "a head beyond its entry": (lambda raw: _first(raw, request_word(1000, 100), 200), "no put"),
    "a pad beyond the tail": (lambda raw: _first(raw, PAD, 64), "larger"),
    "a head that is no put": (_head_of_other_kind, "no put"),
    "a head that ends too soon": (_head_cut_short, "no put"),
    "the place of the answers moved back": (_answers_moved_back, "position"),
}


@pytest.mark.parametrize(("harm", "why"), HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_client_is_cut_off_by_name_and_harms_nobody(node, raw, harm, why):
    pid = node.pids()["put"]
    load = Load(node.endpoint, "beside", 1, count=2000)
    load.start()
    load.await_acked(200)
    harm(raw)
    await_(lambda: raw.ring.memory.words[Word.CUT], GONE_S, "the ring is cut off")
    load.finish()
    assert load.outcomes == {"PUT_OK": 2000}
    assert node.pids()["put"] == pid
    assert why in node.store.node_log.read_text().rsplit("cut off", 1)[1]


def test_whatever_a_client_changes_after_put_has_looked_is_not_stored(node, raw):
    """Its bytes change all the time while put takes them: what is stored passed every check as it is stored."""
    good = records_of(TOPIC.encode(), 1)
    bad = bytes(len(good.data))
    before = node.at(Position.APPENDED)
    statuses = set()
    for number in range(300):
        assert raw.ring.send(raw.head(good, number), good.data)
        at = HEAD_SIZE + 8 + len(raw.head(good, number))
        while not raw.ring.waits:
            raw.ring.memory.view[at : at + len(bad)] = bad
            raw.ring.memory.view[at : at + len(good.data)] = good.data
        statuses.add(raw.answer().status)
    assert statuses <= {PutStatus.PUT_OK, PutStatus.MESSAGE_ILLEGAL}
    end = node.at(Position.APPENDED)
    await_(lambda: node.at(Position.DISPATCHED) >= end, GONE_S, "everything is dispatched")
    assert node.at(Position.DISPATCH_STOPPED) == 0
    assert end >= before


def test_a_killed_put_costs_nothing_that_was_acknowledged_and_its_clients_make_new_rings(node):
    load = Load(node.endpoint, "killed", 7, count=6000)
    load.hold(1000)
    before = node.pids()
    load.start()
    load.await_acked(1000)
    os.kill(before["put"], signal.SIGKILL)
    at_kill = len(load.acked)
    node.await_restarted("put", before)
    load.finish()
    assert len(load.acked) == load.count
    assert load.count - at_kill >= 1000
    end = node.at(Position.APPENDED)
    await_(lambda: node.at(Position.DISPATCHED) >= end, GONE_S, "everything is dispatched")
    stored = Stored(node.store, end)
    assert check_load(stored, load) <= 400  # what was under way
    stored.check_queues()
    stored.close()


def test_a_node_that_offers_no_rings_is_used_through_its_socket(tmp_path):
    node = started(tmp_path / "store", shared_memory_puts=False)
    for _ in ended(node):
        with Producer(node.endpoint) as producer:
            assert producer.send(Message(TOPIC, b"one")).acknowledged
            assert producer.statistics.through_ring == 0
        assert node.stop()


def test_what_is_not_on_the_disk_yet_is_stored_and_answered_when_it_is_or_by_name_when_that_takes_too_long(tmp_path):
    node = TestNode("master", tmp_path / "store", sync_flush_timeout=4000, ha_listen_port=free_port())
    for _ in ended(node):
        node.start()
        raw = RawRing(node.endpoint)
        raw.ask({"op": "route", "topic": TOPIC})
        request = records_of(TOPIC.encode(), 1)
        assert raw.put(request, 0).status == PutStatus.PUT_OK
        flush = node.pids()["flush"]
        for statuses in (PutStatus.PUT_OK,), (PutStatus.FLUSH_DISK_TIMEOUT, PutStatus.PUT_OK):
            before = node.at(Position.APPENDED)
            os.kill(flush, signal.SIGSTOP)
            try:
                for number in range(3):
                    assert raw.ring.send(raw.head(request, number), request.data)
                end = before + 3 * len(request.data)
                await_(lambda end=end: node.at(Position.APPENDED) == end, GONE_S, "three requests are stored")
                if len(statuses) == 1:
                    assert raw.ring.receive() is None
                    assert node.at(Position.FLUSHED) == before
                else:
                    await_(lambda raw=raw: raw.ring.waits, GONE_S, "they are answered by name")
            finally:
                os.kill(flush, signal.SIGCONT)
            answers = [raw.answer() for _ in range(3)]
            assert [answer.request_id for answer in answers] == [0, 1, 2]
            assert answers[0].status == statuses[0]
            assert {answer.status for answer in answers} <= set(statuses)
            assert [answer.places[0][1] for answer in answers] == [before + n * len(request.data) for n in range(3)]
            await_(lambda end=end: node.at(Position.FLUSHED) >= end, GONE_S, "all of it is on the disk")
        raw.close()
        assert node.stop()
