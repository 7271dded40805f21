"""A program that never closes a client of a node, or forks beside one. It ends with 0 when nothing waited or was left.

python -m tests.processes.dropping '{"client": ..., "way": ..., "put": ..., "ring": ..., "serve": ..., "cluster": ...}'
"""

import gc
import json
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from towline.client.admin import AdminClient
from towline.client.cluster_admin import ClusterAdmin
from towline.client.consumer import Consumer
from towline.client.errors import ClientForked
from towline.client.group.consumer import GroupConsumer
from towline.client.group.subscription import Sql
from towline.client.message import Message
from towline.client.producer import Producer
from towline.client.request import reply
from towline.client.transaction import State, TransactionProducer
from towline.errors import TowlineError

from .waiting import await_

TOPIC: Final = "dropped"
GONE_S: Final = 60.0
ANSWERED_MS: Final = 60_000
BAD_FILTER: Final = "price >"
NO_QUEUE: Final = 99
BURST: Final = 200
FORKS: Final = 10

Given = dict[str, str]


@dataclass(frozen=True, slots=True)
class Kind:
    """`use` works, `misuse` raises; both take a client that `make` has made."""

    make: Callable[[Given], Any]
    use: Callable[[Any], object]
    misuse: Callable[[Any], object]
    make_bad: Callable[[Given], Any] | None = None  # the one that is misused, where that is another


def send(producer: Any) -> None:
    assert producer.send(Message(TOPIC, b"body")).acknowledged


def send_badly(producer: Any) -> None:
    producer.send(Message(TOPIC, b"body", queue_id=NO_QUEUE))


def poll(consumer: Any) -> None:
    await_(lambda: consumer.poll(1_000), GONE_S, "a message")


def request(producer: Any) -> None:
    """Somebody replies to it meanwhile."""
    with Consumer(GIVEN["serve"], "asked", start="first") as asked, Producer(GIVEN["put"]) as other:
        other.send(Message("asked", b"the first makes the topic"))
        done = threading.Event()

        def answer() -> None:
            while not done.is_set():
                for message in asked.poll(100):
                    if "CORRELATION_ID" in message.properties:
                        other.send(reply(message, b"yes"))

        thread = threading.Thread(target=answer)
        thread.start()
        try:
            assert producer.request(Message("asked", b"?"), ANSWERED_MS).body == b"yes"
        finally:
            done.set()
            thread.join()


def request_in_vain(producer: Any) -> None:
    producer.request(Message("nobody-replies", b"?"), 1_000)


def in_transaction(producer: Any) -> None:
    assert producer.send(Message(TOPIC, b"body"), lambda message: State.COMMIT).half.acknowledged


def checked(given: Given) -> TransactionProducer:
    """Its check knows the producer, as that of a service does."""
    known: list[TransactionProducer] = []

    def check(message: object) -> State:
        return State.COMMIT if known else State.UNKNOWN

    known.append(TransactionProducer(given["put"], "payers", check))
    return known[0]


def reading(endpoint: str, **more: Any) -> Callable[[Given], Consumer]:
    return lambda given: Consumer(given[endpoint], TOPIC, suspend_ms=500, **more)


def member(endpoint: str, topics: Any = TOPIC, **more: Any) -> Callable[[Given], GroupConsumer]:
    return lambda given: GroupConsumer(
        given[endpoint], f"group-{os.getpid()}-{time.monotonic_ns()}", topics, start="first", suspend_ms=500, **more
    )


def bad_member(endpoint: str) -> Callable[[Given], GroupConsumer]:
    return member(endpoint, {TOPIC: Sql(BAD_FILTER)})


def ask_badly(admin: Any) -> None:
    admin.bounds("nowhere")


KINDS: Final = {
    "producer": Kind(lambda given: Producer(given["put"]), send, send_badly),
    "ring-producer": Kind(lambda given: Producer(given["ring"]), send, send_badly),
    "requester": Kind(lambda given: Producer(given["put"]), request, request_in_vain),
    "transaction-producer": Kind(
        checked, in_transaction, lambda producer: producer.begin(Message(TOPIC, b"body", queue_id=NO_QUEUE))
    ),
    "consumer": Kind(reading("serve"), poll, poll, reading("serve", sql=BAD_FILTER)),
    "file-consumer": Kind(reading("files"), poll, poll, reading("files", sql=BAD_FILTER)),
    "group-consumer": Kind(member("serve"), poll, poll, bad_member("serve")),
    "ordered-consumer": Kind(member("serve", ordered=True), poll, poll, bad_member("serve")),
    "admin": Kind(lambda given: AdminClient(given["serve"]), lambda admin: admin.bounds(TOPIC), ask_badly),
    "cluster-producer": Kind(lambda given: Producer(given["cluster"]), send, send_badly),
    "cluster-consumer": Kind(reading("cluster"), poll, poll, reading("cluster", sql=BAD_FILTER)),
    "cluster-group": Kind(member("cluster"), poll, poll, bad_member("cluster")),
    "cluster-admin": Kind(lambda given: ClusterAdmin(given["cluster"]), lambda admin: admin.bounds(TOPIC), ask_badly),
}


class Loop:
    """A reference cycle that holds a client, as the frames of an exception that was kept do."""

    def __init__(self, held: Any, error: BaseException) -> None:
        self.held, self.error, self.me = held, error, self


def ours() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("towline")]


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def await_nothing_left(reference: "weakref.ref[Any]", before: int) -> None:
    def gone() -> bool:
        gc.collect()  # a thread of the client's may have held it for a moment when the first collection came
        return reference() is None

    await_(gone, GONE_S, "the client is collected")
    await_(lambda: not ours(), GONE_S, f"its threads end: {ours()}")
    await_(lambda: descriptors() <= before, GONE_S, f"its descriptors are closed: {before} before")


def collect_aside() -> None:
    """On another thread than the client's."""
    collector = threading.Thread(target=gc.collect, daemon=True)
    collector.start()
    collector.join(GONE_S)
    assert not collector.is_alive(), "the collection waits"


def warm(kind: Kind) -> int:
    """Whatever stays for good is there afterwards: how many descriptors are open then."""
    with kind.make(GIVEN) as client:
        kind.use(client)
    del client
    gc.collect()
    await_(lambda: not ours(), GONE_S, "the first client's threads end")
    return descriptors()


def dropped(kind: Kind) -> None:
    before = warm(kind)
    client = kind.make(GIVEN)
    reference = weakref.ref(client)
    kind.use(client)
    del client
    gc.collect()
    await_nothing_left(reference, before)


def collected(kind: Kind) -> None:
    before = warm(kind)
    gc.disable()

    def keep() -> "weakref.ref[Any]":
        client = (kind.make_bad or kind.make)(GIVEN)
        try:
            kind.misuse(client)
        except TowlineError as error:
            Loop(client, error)
            return weakref.ref(client)
        raise AssertionError("nothing was refused")

    reference = keep()
    collect_aside()
    gc.enable()
    await_nothing_left(reference, before)


def left_open(kind: Kind) -> None:
    global CLIENT
    CLIENT = kind.make(GIVEN)
    kind.use(CLIENT)


def left_open_after_an_error(kind: Kind) -> None:
    global CLIENT
    CLIENT = (kind.make_bad or kind.make)(GIVEN)
    try:
        kind.misuse(CLIENT)
    except TowlineError as error:
        CLIENT = Loop(CLIENT, error)


def forked(kind: Kind) -> None:
    """The child leaves the block of its parent's client, which goes on being of use to the parent."""
    with kind.make(GIVEN) as client:
        kind.use(client)
        child = os.fork()
        if not child:
            for _ in range(2):
                with pytest.raises(ClientForked, match=f"of process {os.getppid()}, which forked this one"):
                    kind.use(client)
            collect_aside()
            return
        await_child(child)
        with Producer(GIVEN["put"]) as other:
            send(other)
        kind.use(client)


def forked_with_its_own(kind: Kind) -> None:
    """The child has a client of its own beside the one that it may not use, and drops both."""
    client = kind.make(GIVEN)
    kind.use(client)
    child = os.fork()
    if not child:
        with kind.make(GIVEN) as own:
            kind.use(own)
        client = own = None
        collect_aside()
        return
    with Producer(GIVEN["put"]) as other:
        send(other)
    kind.use(client)
    await_child(child)
    client.close()


def dropped_with_messages_on_their_way(kind: Kind) -> None:
    """They have their outcome all the same."""
    before = warm(kind)
    producer = kind.make(GIVEN)
    reference = weakref.ref(producer)
    futures = [producer.send_async(Message(TOPIC, b"%d" % number)) for number in range(BURST)]
    del producer
    gc.collect()
    assert all(future.result(ANSWERED_MS / 1000).acknowledged for future in futures)
    await_nothing_left(reference, before)


def forked_with_messages_on_their_way(kind: Kind) -> None:
    """They are the parent's, and the child waits for none of them."""
    with kind.make(GIVEN) as producer:
        send(producer)
        stop = threading.Event()
        sender = threading.Thread(target=send_until, args=(producer, stop), daemon=True)
        sender.start()
        for _ in range(FORKS):
            future = producer.send_async(Message(TOPIC, b"on its way"))
            child = os.fork()
            if not child:
                with pytest.raises(ClientForked):
                    future.result(ANSWERED_MS / 1000)
                for ask in (send, ask_the_node):
                    with pytest.raises(ClientForked):
                        ask(producer)
                return
            await_child(child)
            assert future.result(ANSWERED_MS / 1000).acknowledged
        stop.set()
        sender.join(GONE_S)
        send(producer)


def forked_while_a_topic_is_asked_for(kind: Kind) -> None:
    """What waits for its topic is the parent's too."""
    with kind.make(GIVEN) as producer:
        send(producer)
        for number in range(FORKS):
            future = producer.send_async(Message(f"new-{os.getpid()}-{number}", b"on its way"))
            was_done = future.done()
            child = os.fork()
            if not child:
                if not was_done:
                    with suppress(ClientForked):  # it may have got its outcome before the fork
                        future.result(ANSWERED_MS / 1000)
                with pytest.raises(ClientForked):
                    producer.send_async(Message(f"new-{os.getpid()}", b"of the child"))
                return
            await_child(child)
            assert future.result(ANSWERED_MS / 1000).acknowledged


def send_until(producer: Any, stop: threading.Event) -> None:
    """Locks are held for much of the time."""
    while not stop.is_set():
        producer.send_batch([Message(TOPIC, b"one of many")] * BURST)


def ask_the_node(producer: Any) -> None:
    """A question to the node, which the producer's thread would ask."""
    producer.route("a-topic-that-nobody-asked-for-before")


def await_child(child: int) -> None:
    found: list[int] = []

    def ended() -> bool:
        pid, status = os.waitpid(child, os.WNOHANG)
        found.append(os.waitstatus_to_exitcode(status) if pid else 0)
        return pid == child

    await_(ended, GONE_S, "the child ends")
    assert found[-1] == 0, f"the child ended with {found[-1]}"


WAYS: Final = {
    each.__name__: each
    for each in (dropped, collected, left_open, left_open_after_an_error, forked, forked_with_its_own)
}
PRODUCERS: Final = ("producer", "ring-producer", "cluster-producer")
WAYS_OF_PRODUCERS: Final = {
    each.__name__: each
    for each in (
        dropped_with_messages_on_their_way,
        forked_with_messages_on_their_way,
        forked_while_a_topic_is_asked_for,
    )
}
GIVEN: Given = {}
CLIENT: Any = None


if __name__ == "__main__":
    GIVEN.update(json.loads(sys.argv[1]))
    (WAYS | WAYS_OF_PRODUCERS)[GIVEN["way"]](KINDS[GIVEN["client"]])
