"""A bit flips in a body at rest: no reader hands it to its program, whatever way it reads."""

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.faults.noting import note
from tests.processes.damaging import flip
from tests.processes.nodes import Pair, TestNode, check_nothing_is_left, ended, ending, free_port
from tests.processes.stopping import stopped
from tests.processes.waiting import await_
from towline.client.admin import AdminClient
from towline.client.consumer import Consumer
from towline.client.errors import AskRefused, DamagedMessage
from towline.client.group.consumer import GroupConsumer
from towline.client.message import Message, ReceivedMessage
from towline.client.producer import Producer
from towline.client.request import reply
from towline.link.endpoints import ipc_endpoint
from towline.node.report.status import read_status
from towline.runtime.positions import Position
from towline.start import home

COUNT: Final = 20
BAD: Final = 7  # queue offset of the damaged message
DEADLINE_S: Final = 60.0
DEADLINE_MS: Final = 60_000
COMMAND: Final = "from towline.start import main; main()"


def body(topic: str, number: int) -> bytes:
    return b"<%s %03d>" % (topic.encode(), number) * 8


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestNode]:
    root = tmp_path_factory.mktemp("node") / "store"
    made = TestNode("master", root, listen_port=free_port(), ha_listen_port=0)
    with ending(made):
        made.start()
        yield made
        assert made.stop()
        check_nothing_is_left(made)


def tcp(node: TestNode) -> str:
    return str(node.facts["endpoints"]["remoting"][0])


def ipc(node: TestNode, service: str = "serve") -> str:
    return ipc_endpoint(node.runtime, service)


def fill(node: TestNode, topic: str, **more: Any) -> None:
    """COUNT messages in one queue, each with its number as a key."""
    with AdminClient(node.endpoint) as admin, Producer(node.endpoint) as producer:
        admin.create_topic(topic, 1)
        sent = producer.send_batch(Message(topic, body(topic, n), keys=[f"{topic}-{n}"], **more) for n in range(COUNT))
        assert all(result.acknowledged for result in sent)
    await_(lambda: node.at(Position.INDEXED) == node.at(Position.APPENDED), DEADLINE_S, "everything is indexed")


def damaged(node: TestNode, topic: str) -> int:
    """A filled topic, one of whose bodies is not what it was. Where its record begins in the log."""
    fill(node, topic)
    with AdminClient(ipc(node)) as admin:
        (found,) = admin.by_key(topic, f"{topic}-{BAD}")
        place = found.physical_offset
    assert place < flip(node, body(topic, BAD)) < place + len(found.raw)
    return place


def check_named(damage: DamagedMessage, topic: str, place: int) -> None:
    assert (damage.topic, damage.queue_id, damage.queue_offset) == (topic, 0, BAD)
    assert damage.physical_offset == place
    assert f"message {BAD} of queue 0 of {topic}, at byte {place} of the log, is damaged" in str(damage)
    assert ReceivedMessage(damage.record).keys == (f"{topic}-{BAD}",)


def objects(consumer: Consumer | GroupConsumer) -> list[bytes]:
    return [message.body for message in consumer.poll(1_000)]


def columns(consumer: Consumer | GroupConsumer) -> list[bytes]:
    found = consumer.poll_columns(1_000)
    return [] if found is None else found.bodies()


def read_up_to(read: Callable[[], list[bytes]], count: int) -> list[bytes]:
    """So many bodies. Raises what reading raises."""
    found: list[bytes] = []

    def all_came() -> bool:
        found.extend(read())
        return len(found) >= count

    await_(all_came, DEADLINE_S, f"{count} messages come")
    return found


def bodies(topic: str, *numbers: int) -> list[bytes]:
    return [body(topic, number) for number in numbers]


WAYS: Final = {"objects": objects, "columns": columns}
PLACES: Final = {"tcp": (tcp, True), "files": (ipc, True), "ipc": (ipc, False)}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("max_count", [1, 1000])
def test_a_consumer_gets_what_stands_before_then_an_error_and_seeks_behind_it(
    node: TestNode, way: str, place: str, max_count: int
) -> None:
    topic = f"read-{way}-{place}-{max_count}"
    at = damaged(node, topic)
    endpoint, files = PLACES[place]
    read = WAYS[way]
    with Consumer(endpoint(node), topic, reads_files=files, max_count=max_count, suspend_ms=200) as consumer:
        assert read_up_to(lambda: read(consumer), BAD) == bodies(topic, *range(BAD))
        for _ in range(2):  # nobody passes over it by asking again
            with pytest.raises(DamagedMessage) as met:
                read(consumer)
            check_named(met.value, topic, at)
            assert consumer.position() == {0: BAD}
        consumer.seek(met.value.queue_id, met.value.queue_offset + 1)
        rest = read_up_to(lambda: read(consumer), COUNT - BAD - 1)
        assert rest == bodies(topic, *range(BAD + 1, COUNT))
    note(1, wrong_bytes=0)


@pytest.mark.parametrize("way", WAYS)
def test_who_turns_the_check_off_is_handed_the_bytes_as_they_are(node: TestNode, way: str) -> None:
    topic = f"off-{way}"
    damaged(node, topic)
    read = WAYS[way]
    with Consumer(ipc(node), topic, check_crcs=False, suspend_ms=200) as consumer:
        found = read_up_to(lambda: read(consumer), COUNT)
    assert [number for number in range(COUNT) if found[number] != body(topic, number)] == [BAD]
    with GroupConsumer(ipc(node), f"{topic}-group", topic, start="first", check_crcs=False) as member:
        assert read_up_to(lambda: read(member), COUNT) == found


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("ordered", [False, True], ids=["in any order", "in order"])
def test_a_group_commits_what_stands_before_and_goes_on_when_somebody_seeks(
    node: TestNode, way: str, ordered: bool
) -> None:
    topic = f"group-{way}-{ordered}"
    at = damaged(node, topic)
    read = WAYS[way]
    with GroupConsumer(tcp(node), f"g-{topic}", topic, start="first", ordered=ordered) as member:
        assert read_up_to(lambda: read(member), BAD) == bodies(topic, *range(BAD))
        with pytest.raises(DamagedMessage) as met:
            read_up_to(lambda: read(member), 1)
        check_named(met.value, topic, at)
        member.commit()
        with AdminClient(ipc(node)) as admin:
            assert admin.group_offsets(f"g-{topic}", topic) == {topic: {0: BAD}}
    with GroupConsumer(tcp(node), f"g-{topic}", topic, ordered=ordered) as member:
        with pytest.raises(DamagedMessage) as met:  # it is not passed over by a member that comes later
            read_up_to(lambda: read(member), 1)
        member.seek(met.value.topic, met.value.queue_id, met.value.queue_offset + 1, met.value.broker_name)
        rest = read_up_to(lambda: read(member), COUNT - BAD - 1)
        assert rest == bodies(topic, *range(BAD + 1, COUNT))


def test_message_by_message_a_group_stops_before_it(node: TestNode) -> None:
    topic = "one-by-one"
    at = damaged(node, topic)
    handled: list[bytes] = []
    member = GroupConsumer(tcp(node), "listening", topic, start="first")
    with pytest.raises(DamagedMessage) as met:
        member.listen(lambda message: handled.append(message.body))
    check_named(met.value, topic, at)
    assert handled == bodies(topic, *range(BAD))
    with AdminClient(ipc(node)) as admin:
        assert admin.group_offsets("listening", topic) == {topic: {0: BAD}}


def test_lookups_name_it_and_status_counts_it_once(node: TestNode) -> None:
    before = read_status(node.store.root)["damaged"]["count"]
    at = damaged(node, "looked-up")
    with AdminClient(tcp(node)) as admin:
        for _ in range(2):
            with pytest.raises(AskRefused, match=f"RecordDamaged: the record at offset {at} of the log is damaged"):
                admin.by_offset(at)
        found = admin.by_key("looked-up", f"looked-up-{BAD}")
        assert (list(found), found.damaged) == ([], 1)
        with pytest.raises(DamagedMessage):
            admin.by_time("looked-up", 0)
    told = read_status(node.store.root)["damaged"]
    assert told["count"] == before + 1
    assert told["newest"]["offset"] == at
    assert Path(told["newest"]["segment"]).parent == node.store.commitlog
    shown = towline("master", "status", "--store", node.store.root).stdout
    assert f"readers found {before + 1} damaged records" in " ".join(shown.split())


def test_what_a_reader_found_is_counted_by_the_node(node: TestNode) -> None:
    at = damaged(node, "counted")
    before = read_status(node.store.root)["damaged"]["count"]
    with Consumer(tcp(node), "counted", suspend_ms=200) as consumer, pytest.raises(DamagedMessage):
        read_up_to(lambda: objects(consumer), COUNT)
    told = read_status(node.store.root)["damaged"]
    assert (told["count"], told["newest"]["offset"]) == (before + 1, at)


def towline(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", COMMAND, *map(str, words)], cwd=home(), capture_output=True, text=True, check=False
    )


def test_the_command_get_fails_by_name_unless_it_is_told_not_to_look(node: TestNode) -> None:
    topic = "got"
    at = damaged(node, topic)
    get = ("get", topic, "--store", node.store.root, "--max", COUNT, "--json")
    failed = towline(*get)
    assert failed.returncode != 0
    told = json.loads(failed.stdout)
    assert told["error"] == "DamagedMessage"
    assert f"message {BAD} of queue 0 of {topic}, at byte {at} of the log" in told["sentence"]
    assert len(json.loads(towline(*get, "--no-check-crcs").stdout)["messages"]) == COUNT
    behind = towline(*get, "--from", BAD + 1)
    assert len(json.loads(behind.stdout)["messages"]) == COUNT - BAD - 1


def test_a_requester_hears_that_its_reply_is_damaged_and_the_next_one_comes(node: TestNode) -> None:
    with AdminClient(node.endpoint) as admin:
        admin.create_topic("asked", 1)
    got: list[ReceivedMessage | DamagedMessage] = []

    def ask(producer: Producer) -> None:
        try:
            got.append(producer.request(Message("asked", b"question"), DEADLINE_MS))
        except DamagedMessage as damage:
            got.append(damage)

    with (
        Producer(node.endpoint) as asking,
        Producer(node.endpoint) as answering,
        Consumer(ipc(node), "asked", suspend_ms=200) as consumer,
    ):
        for number, answer in enumerate((b"a damaged answer" * 8, b"a sound answer" * 8)):
            thread = threading.Thread(target=ask, args=(asking,), daemon=True)
            thread.start()
            (request,) = await_(lambda: consumer.poll(200), DEADLINE_S, "the request comes")
            with stopped(node.pids()["serve"]):
                assert answering.send(reply(request, answer)).acknowledged
                if not number:
                    flip(node, answer)
            thread.join(DEADLINE_S)
    damage, sound = got
    assert isinstance(damage, DamagedMessage)
    assert damage.topic == "DefaultCluster_REPLY_TOPIC"
    assert isinstance(sound, ReceivedMessage)
    assert sound.body == b"a sound answer" * 8


# --- where another node has it whole


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    made = Pair(tmp_path_factory.mktemp("pair"), listen_port=free_port())
    ending = ended(*made.nodes)
    next(ending)
    try:
        made.start()
        yield made
    finally:
        next(ending, None)


def both(pair: Pair) -> list[str]:
    return [ipc(node) for node in pair.nodes]


@pytest.mark.parametrize("way", WAYS)
def test_another_node_of_the_group_is_read_instead(pair: Pair, way: str) -> None:
    topic = f"twice-{way}"
    at = damaged(pair.master, topic)
    pair.await_caught_up()
    read = WAYS[way]
    with Consumer(both(pair), topic, suspend_ms=200) as consumer:
        assert read_up_to(lambda: read(consumer), COUNT) == bodies(topic, *range(COUNT))
    with GroupConsumer(both(pair), f"g-{topic}", topic, start="first") as member:
        assert read_up_to(lambda: read(member), COUNT) == bodies(topic, *range(COUNT))
    with AdminClient(both(pair)) as admin:
        found = admin.by_offset(at)
        assert found is not None
        assert found.body == body(topic, BAD)
    assert read_status(pair.master.store.root)["damaged"]["newest"]["offset"] == at


def test_where_every_node_has_it_damaged_each_is_named(pair: Pair) -> None:
    topic = "everywhere"
    fill(pair.master, topic)
    pair.await_caught_up()
    for node in pair.nodes:
        flip(node, body(topic, BAD))
    with Consumer(both(pair), topic, suspend_ms=200) as consumer, pytest.raises(DamagedMessage) as met:
        read_up_to(lambda: objects(consumer), COUNT)
    assert all(endpoint in met.value.problem for endpoint in both(pair))
    assert all(read_status(node.store.root)["damaged"]["count"] for node in pair.nodes)
    note(1, wrong_bytes=0)
