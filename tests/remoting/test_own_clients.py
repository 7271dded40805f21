"""Our own clients at the remoting port: one address for all that they ask of a node."""

import os
import signal
import socket
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

from tests.processes.nodes import check_nothing_is_left, ending
from tests.processes.waiting import await_
from tests.processes.wire import records_of
from towline.client.admin import AdminClient
from towline.client.consumer import Consumer
from towline.client.errors import AskRefused, RequestTimeout
from towline.client.group.consumer import GroupConsumer
from towline.client.link.connection import own_facts
from towline.client.link.rpc import Caller
from towline.client.message import Message, ReceivedMessage
from towline.client.producer import Producer
from towline.client.request import reply
from towline.client.transaction import State, TransactionProducer
from towline.errors import LinkRefused
from towline.format.remoting.codes import RequestCode
from towline.format.remoting.wire_message import decode_message, encode_message
from towline.format.wire.frames import (
    ASK,
    PUT_ANSWER,
    Buffer,
    Group,
    Kind,
    Pull,
    encode_pull,
    encode_put,
    expect,
    json_part,
    kind_of,
    read_json,
)
from towline.limits import MIB
from towline.link.handshake import encode_greeting
from towline.link.keys import ENVIRONMENT, make_node_keys, new_key, revoke_key
from towline.remoting.connections import capacity
from towline.remoting.tunnels import WAITING_MAX
from towline.runtime.remoting_counts import Ending, Total

from .conftest import RemotingNode, remoting_node
from .raw import RawClient

DEADLINE_S: Final = 60.0
MEMORY_MAX: Final = 300 * MIB


def address(node: RemotingNode) -> str:
    return node.address


def bodies(consumer: Consumer, count: int) -> list[bytes]:
    found: list[bytes] = []
    until = time.monotonic() + DEADLINE_S
    while len(found) < count:
        assert time.monotonic() < until, f"{len(found)} of {count} came"
        found += [message.body for message in consumer.poll(1_000)]
    return found


# --- every client


def test_what_is_sent_in_each_way_is_read_once(node: RemotingNode) -> None:
    sent = [b"%d" % number for number in range(2_000)]
    with Producer(address(node)) as producer, Consumer(address(node), "ways", start="first") as consumer:
        assert producer.send(Message("ways", sent[0], tags="red", keys=["k"])).acknowledged
        assert all(
            result.acknowledged for result in producer.send_batch(Message("ways", body) for body in sent[1:1_000])
        )
        assert all(result.acknowledged for result in producer.send_bodies("ways", sent[1_000:]))
        assert sorted(bodies(consumer, len(sent))) == sorted(sent)


def test_a_message_and_an_answer_of_megabytes_pass(node: RemotingNode) -> None:
    large = [os.urandom(3 * MIB + number) for number in range(4)]
    with Producer(address(node), compression=None) as producer:
        assert all(result.acknowledged for result in producer.send_batch(Message("large", body) for body in large))
    with Consumer(address(node), "large", max_bytes=8 * MIB) as consumer:
        assert sorted(bodies(consumer, len(large))) == sorted(large)


def test_records_that_stand_back_to_back_are_read_from_the_log(node: RemotingNode) -> None:
    """The node names their place to its remoting process, and their bytes cross one socket: so it reads the files. A
    client on the machine reads them itself, and none of the node's processes does."""
    sent = [os.urandom(1_000) for _ in range(4_000)]
    with Producer(address(node), compression=None) as producer:
        producer.send_bodies("stretch", sent, queue_id=0)
    readers = [node.pids()[name] for name in ("remoting", "serve")]
    for reads_files in (False, True):
        before = [read_by(pid) for pid in readers]
        with Consumer(address(node), "stretch", reads_files=reads_files) as consumer:
            assert bodies(consumer, len(sent)) == sent
        remoting, serve = (read_by(pid) - each for pid, each in zip(readers, before, strict=True))
        assert (remoting > 4_000 * 1_000) is not reads_files
        assert serve < 1_000 * 1_000


def read_by(pid: int) -> int:
    """Bytes that a process has read so far."""
    lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    return int(lines[0].removeprefix("rchar: "))


def test_delays_and_their_cancellation(node: RemotingNode) -> None:
    now = time.time_ns() // 1_000_000
    with Producer(address(node)) as producer, Consumer(address(node), "later", start="first") as consumer:
        due = producer.send(Message("later", b"due", deliver_at=now + 1_000))
        never = producer.send(Message("later", b"never", deliver_at=now + 1_500))
        assert producer.cancel(never.handle).acknowledged
        assert due.acknowledged
        assert bodies(consumer, 1) == [b"due"]


def test_transactions_end_and_are_checked(node: RemotingNode) -> None:
    checked = threading.Event()

    def check(message: ReceivedMessage) -> State:
        checked.set()
        return State.COMMIT

    with (
        TransactionProducer(address(node), "payers", check=check) as producer,
        Consumer(address(node), "paid", start="first") as consumer,
    ):
        producer.commit(producer.begin(Message("paid", b"committed"))[0])
        producer.rollback(producer.begin(Message("paid", b"rolled back"))[0])
        producer.begin(Message("paid", b"checked"))
        assert sorted(bodies(consumer, 2)) == [b"checked", b"committed"]
        assert checked.is_set()


def test_a_request_is_replied_to(node: RemotingNode) -> None:
    ending_ = threading.Event()

    def answer() -> None:
        with Consumer(address(node), "asked", start="first") as consumer, Producer(address(node)) as producer:
            while not ending_.is_set():
                for message in consumer.poll(50):
                    producer.send(reply(message, message.body.upper()))

    with Producer(address(node)) as producer:
        producer.make_topic("asked")
        thread = threading.Thread(target=answer)
        thread.start()
        try:
            assert producer.request(Message("asked", b"hello"), 20_000).body == b"HELLO"
        finally:
            ending_.set()
            thread.join()
        with pytest.raises(RequestTimeout):
            producer.request(Message("nobody", b"hello"), 200)


def test_members_share_a_group_also_with_those_of_the_other_port(node: RemotingNode) -> None:
    sent = {b"%d" % number for number in range(400)}
    with Producer(address(node)) as producer, AdminClient(address(node)) as admin, ExitStack() as stack:
        admin.create_topic("shared", 4)
        ends = (address(node), f"ipc://{node.runtime}/serve.sock")
        members = [stack.enter_context(GroupConsumer(end, "sharing", "shared", start="first")) for end in ends]
        await_(lambda: [len(poll_queues(member)) for member in members] == [2, 2], DEADLINE_S, "two queues each")
        producer.send_batch(Message("shared", body, queue_id=int(body) % 4) for body in sent)
        found: list[set[bytes]] = [set(), set()]
        until = time.monotonic() + DEADLINE_S
        while set().union(*found) != sent:
            assert time.monotonic() < until
            for member, bodies_of in zip(members, found, strict=True):
                bodies_of |= {message.body for message in member.poll(50)}
        assert all(found)
        assert not found[0] & found[1]
        for member in members:
            member.commit()
        await_(lambda: admin.describe_group("sharing")["lag"] == 0, DEADLINE_S, "the commits")


def test_what_a_member_sends_back_comes_again_by_the_same_port(node: RemotingNode) -> None:
    with (
        Producer(address(node)) as producer,
        GroupConsumer(address(node), "sending-back", "sent-back", start="first") as member,
    ):
        assert producer.send(Message("sent-back", b"x")).acknowledged
        (first,) = await_(lambda: member.poll(100), DEADLINE_S, "the message")
        assert first.retry_later(1)
        (again,) = await_(lambda: member.poll(100), DEADLINE_S, "the retry")
        assert (again.body, again.reconsume_times) == (b"x", 1)


def poll_queues(member: GroupConsumer) -> list[int]:
    member.poll(10)
    return [queue for topic, queue in member.assignment() if topic == "shared"]


def test_an_admin_asks_put_and_serve_at_one_address(node: RemotingNode) -> None:
    with AdminClient(address(node)) as admin, Producer(address(node)) as producer:
        assert admin.create_topic("administered", 3)["read_queues"] == 3
        with pytest.raises(AskRefused, match="exists already"):
            admin.create_topic("administered", 3)
        admin.alter_topic("administered", perm=6)
        sent = producer.send(Message("administered", b"x", keys=["found"]))
        await_(lambda: admin.by_key("administered", "found"), DEADLINE_S, "its index")
        assert admin.by_unique_key("administered", sent.unique_key)[0].body == b"x"
        assert "administered" in {row["topic"] for row in admin.topics()}
        admin.delete_topic("administered")
        assert "administered" not in {row["topic"] for row in admin.topics()}


def test_the_page_says_how(node: RemotingNode) -> None:
    page = (Path(__file__).parents[2] / "docs" / "rocketmq.md").read_text()
    blocks = [block.partition("```")[0] for block in page.split("```python\n")[1:]]
    assert blocks
    for block in blocks:
        exec(block.replace("127.0.0.1:10911", f"127.0.0.1:{node.port}"), {})


# --- kills


@pytest.mark.parametrize("label", ["remoting", "put", "serve"])
def test_a_kill_loses_nothing_acknowledged_and_clients_go_on(node: RemotingNode, label: str) -> None:
    topic = f"killed-{label}"
    acknowledged: set[bytes] = set()
    number = 0
    with Producer(address(node)) as producer, Consumer(address(node), topic, start="first") as consumer:
        found: list[bytes] = []
        producer.make_topic(topic)
        for _ in range(2):
            for _ in range(300):
                body = b"%d" % number
                number += 1
                if producer.send(Message(topic, body)).acknowledged:
                    acknowledged.add(body)
                found += [message.body for message in consumer.poll(0)]
            before = node.pids()
            os.kill(before[label], signal.SIGKILL)
            futures = [producer.send_async(Message(topic, b"after %d %d" % (number, each))) for each in range(100)]
            acknowledged |= {
                b"after %d %d" % (number, each) for each, future in enumerate(futures) if future.result().acknowledged
            }
            node.await_restarted(label, before)
        until = time.monotonic() + DEADLINE_S
        while not acknowledged <= set(found):
            assert time.monotonic() < until, f"{len(acknowledged - set(found))} are missing"
            found += [message.body for message in consumer.poll(100)]
    if label == "serve":
        assert len(found) == len(set(found))  # nothing was sent again, and positions are the reader's


# --- bad input


class WireClient(RawClient):
    """Speaks our protocol message by message."""

    def say(self, *parts: Buffer) -> None:
        self.write(b"".join(encode_message(parts, from_node=False)))

    def greet(self, role: str, **facts: object) -> dict[str, object]:
        """The welcome. Raises LinkRefused."""
        self.say(*encode_greeting({"role": role, "cluster": "", "store": "", "name": "raw", **facts}))
        parts = self.hear()
        facts = read_json(parts[1])
        if kind_of(parts[0]) == Kind.REFUSAL:
            raise LinkRefused(str(facts["code"]), str(facts["sentence"]))
        return facts

    def hear(self) -> list[Buffer]:
        """Raises ConnectionResetError, TimeoutError."""
        command = self.read()
        assert (command.code, command.is_answer) == (RequestCode.TOWLINE, True)
        return decode_message(command.body)


def test_who_does_not_greet_or_greets_as_nobody_is_refused_by_name(node: RemotingNode) -> None:
    with WireClient(node.port) as client:
        client.say(ASK.pack(Kind.ASK, 1), json_part({"op": "topics"}))
        assert read_json(client.hear()[1])["code"] == "NOT_GREETED"
        for role in ("schedule", "slave", "peer", "", "x" * 1_000):
            with pytest.raises(LinkRefused, match="has no use at this port"):
                client.greet(role)
        with pytest.raises(LinkRefused, match="you belong to cluster"):
            client.greet("producer", cluster="another")
        assert client.greet("producer")["broker_role"] == "master"


BAD = {
    "no parts": [b""],
    "five parts": [b"\5" + bytes(20)],
    "cut": [b"\2" + bytes(3)],
    "goes on": [b"\1\0\0\0\1xyz"],
    "a kind of nobody": [b"\1\0\0\0\1\xee"],
    "an answer": [b"\1\0\0\0\x16" + bytes([Kind.PUT_ANSWER]) + bytes(21)],
    "a question of no JSON": [b"".join([b"\2\0\0\0\x09\0\0\0\2", ASK.pack(Kind.ASK, 1), b"[]"])],
    "a question whose op is a list": [b"".join([b"\2\0\0\0\x09\0\0\0\x09", ASK.pack(Kind.ASK, 1), b'{"op":[]}'])],
    "a question without an op": [b"".join([b"\2\0\0\0\x09\0\0\0\2", ASK.pack(Kind.ASK, 1), b"{}"])],
    "a put cut": [b"".join([b"\2\0\0\0\x05\0\0\0\2", bytes([Kind.PUT]) + bytes(4), b"xx"])],
    "a put without groups": [b"".join([b"\2\0\0\0\x1c\0\0\0\2", bytes([Kind.PUT]) + bytes(27), b"xx"])],
}  # fmt: skip


@pytest.mark.parametrize("body", [body for [body] in BAD.values()], ids=list(BAD))
def test_a_message_that_cannot_be_ends_its_connection_with_a_reason(node: RemotingNode, body: bytes) -> None:
    before = node.pids()
    with WireClient(node.port) as client:
        client.greet("producer")
        client.send(RequestCode.TOWLINE, {}, body)
        refused = read_json(client.hear()[1])
        assert (refused["code"], bool(refused["sentence"])) == ("MALFORMED", True)
        assert client.is_closed()
    with Producer(address(node)) as producer:
        assert producer.send(Message("honest", b"x")).acknowledged
    assert node.pids() == before


def test_a_put_whose_groups_are_not_its_records_is_refused_and_costs_nobody_anything(node: RemotingNode) -> None:
    before = node.pids()
    with WireClient(node.port) as client, Producer(address(node)) as honest:
        assert honest.send(Message("honest", b"x")).acknowledged
        client.greet("producer")
        now = time.time_ns() // 1_000_000 + 10_000
        heads = [
            encode_put(1, 0, now, [Group(b"honest", 0, 1, 90)]),
            encode_put(2, 0, now, [Group(b"honest", 0, 1, 100), Group(b"honest", 0, 1, 100)]),
            encode_put(3, 0, now, [Group(b"honest", 99, 1, 100)]),
            encode_put(4, 0, now, [Group(b"never made", 0, 1, 100)]),
            encode_put(5, 0, now, [Group(b"\xff" * 300, 0, 1, 100)]),
            encode_put(6, 0, 1, [Group(b"honest", 0, 1, 100)]),
            encode_put(7, 9_999, now, [Group(b"honest", 0, 1, 100)]),
            encode_put(8, 0, now, [Group(b"honest", 0, 1, 100)]),
        ]
        for number, head in enumerate(heads, 1):
            client.say(head, bytes(100))
            answer = client.hear()
            assert expect(PUT_ANSWER, answer[0])[4] == number
            assert expect(PUT_ANSWER, answer[0])[1] != 0
            assert honest.send(Message("honest", b"meanwhile")).acknowledged
        client.say(encode_put(9, 0, now, [Group(b"x" * 65_000, 0, 1, 1)] * 200), bytes(100))
        assert client.is_closed() or client.is_closed()
    assert node.pids() == before


def test_a_consumer_has_no_records_to_send(node: RemotingNode) -> None:
    with WireClient(node.port) as client:
        client.greet("consumer")
        client.say(encode_put(1, 0, 0, [Group(b"honest", 0, 1, 100)]), bytes(100))
        assert "records come from producers" in str(read_json(client.hear()[1])["sentence"])


def anonymous(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) << 10


def test_who_asks_for_megabytes_and_reads_none_costs_no_memory_and_nobody_time(node: RemotingNode) -> None:
    with Producer(address(node), compression=None) as producer:
        producer.send_bodies("unread", [bytes(100_000)] * 300, queue_id=0)
        pid = node.pids()["remoting"]
        with WireClient(node.port) as client:
            client.greet("consumer")
            client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            for number in range(1, 200):
                client.say(*encode_pull(Pull(number, b"unread", 0, 0, 1_000, 4 * MIB, 0)))
            for _ in range(100):
                assert producer.send(Message("honest", b"meanwhile")).acknowledged
            assert anonymous(pid) < MEMORY_MAX
        assert node.pids()["remoting"] == pid


def test_so_many_clients_are_served_at_once_and_the_next_is_told(node: RemotingNode) -> None:
    _, most = capacity()  # of this machine's descriptors
    with ExitStack() as stack:
        clients = [stack.enter_context(WireClient(node.port)) for _ in range(most)]
        for client in clients:
            client.greet("consumer")
        with WireClient(node.port) as one_more, pytest.raises(LinkRefused, match=f"{most} clients are served"):
            one_more.greet("consumer")

    def served() -> bool:
        with WireClient(node.port) as client:
            try:
                return bool(client.greet("consumer"))
            except LinkRefused:
                return False

    await_(served, DEADLINE_S, "room again")


def test_requests_for_a_process_that_is_away_are_bounded(node: RemotingNode) -> None:
    pid = node.pids()["schedule"]
    with WireClient(node.port) as client:
        client.greet("producer")
        os.kill(pid, signal.SIGSTOP)
        try:
            question = [ASK.pack(Kind.ASK, 1), json_part({"op": "transaction_list", "group": "g"})]
            for _ in range(WAITING_MAX + 1):
                client.say(*question)
            assert client.is_closed()
        finally:
            os.kill(pid, signal.SIGCONT)


# --- keys


@pytest.fixture
def locked(tmp_path: Path) -> RemotingNode:
    ring = tmp_path / "ring"
    make_node_keys(ring)
    for name, roles in {"payer": ["producer"], "reader": ["consumer"], "chief": ["admin"]}.items():
        new_key(ring, name, roles)
    return remoting_node(tmp_path / "store", keys_dir=ring)


def test_who_forwards_commits_may_do_nothing_else(node: RemotingNode) -> None:
    asked = Caller(address(node), own_facts("forwarder", "slave", ""))
    with pytest.raises(AskRefused, match="is for clients"):
        asked.ask("topics", {}, 5_000)
    asked.close()
    request = records_of(b"nobodys", 1)
    put = encode_put(1, 0, 1 << 60, [Group(b"nobodys", 0, 1, len(request.data))]), request.data
    for said in (encode_pull(Pull(1, b"nobodys", 0, 0, 1, 1_000, 0)), put):
        with WireClient(node.port) as client:
            client.greet("forwarder")
            client.say(*said)
            assert client.is_closed()


def test_a_greeting_is_signed_where_the_node_has_keys(
    locked: RemotingNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ring = tmp_path / "ring"

    def show(name: str) -> None:
        monkeypatch.setenv(ENVIRONMENT, str(ring / "handed" / f"{name}.secret.json"))

    with ending(locked):
        locked.start()
        with Producer(address(locked)) as producer, pytest.raises(LinkRefused, match="a key is wanted"):
            producer.send(Message("signed", b"x"))
        show("reader")
        with Producer(address(locked)) as producer, pytest.raises(LinkRefused, match="greets as 'producer'"):
            producer.send(Message("signed", b"x"))
        show("payer")
        with Producer(address(locked)) as producer:
            assert producer.send(Message("signed", b"x")).acknowledged
            with pytest.raises(AskRefused, match="is for admins"):
                producer.make_topic("mine")
        assert locked.counts.total(Total.OWN_REFUSED) == 3
        asked = Caller(address(locked), own_facts("producer", "payer", ""))
        for op in ("query_offset", "queue_entries", "group_commit", "bounds"):
            with pytest.raises(AskRefused, match="is for consumers and admins"):
                asked.ask(op, {"topic": "signed", "group": "g"}, 5_000)
        asked.close()
        show("reader")
        with Consumer(address(locked), "signed", start="first") as consumer:
            assert bodies(consumer, 1) == [b"x"]
        asked = Caller(address(locked), own_facts("consumer", "reader", ""))
        for op in ("transaction_list", "transaction_end", "transaction_watch"):
            with pytest.raises(AskRefused, match="is for producers and admins"):
                asked.ask(op, {"group": "g"}, 5_000)
        asked.close()
        asked = Caller(address(locked), own_facts("forwarder", "reader", ""))
        with pytest.raises(LinkRefused, match="greets as 'forwarder'"):
            asked.ask("group_commit", {"group": "g", "offsets": {}}, 5_000)
        asked.close()
        show("chief")
        with AdminClient(address(locked)) as admin:
            assert admin.create_topic("made", 1)
            revoke_key(ring, "chief")
            await_(lambda: locked.ended(Ending.REVOKED), DEADLINE_S, "the end of who is there with it")
            with pytest.raises(LinkRefused, match="was revoked"):
                admin.topics()
        new_key(ring, "chief", ["admin"])
        with WireClient(locked.port) as client, pytest.raises(LinkRefused, match="signature of 'chief' is wrong"):
            client.greet("admin", access_key="chief", signed_at=0, signature="0" * 64)
        revoke_key(ring, "chief")
        with AdminClient(address(locked)) as admin, pytest.raises(LinkRefused, match="was revoked"):
            admin.topics()
        assert locked.stop()
        check_nothing_is_left(locked)
