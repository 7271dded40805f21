"""Clients that send what is no frame, send for ever, never read, or say nothing: one is closed, the others go on."""

import random
import struct
from pathlib import Path

import pytest

from tests.processes.waiting import await_
from towline.format.remoting.codes import RequestCode, ResponseCode
from towline.format.remoting.command import Command, Form, encode
from towline.limits import MIB
from towline.remoting.connections import HELD_MAX
from towline.runtime.remoting_counts import Ending, Total

from .conftest import RemotingNode
from .raw import RawClient, sent

MEMORY_MAX = 256 * MIB


def anonymous(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon:"))


@pytest.fixture
def honest(node: RemotingNode):
    """A client that is there before, and is served after."""
    with RawClient(node.port) as made:
        assert made.put("honest", b"before").code == 0
        yield made
        assert made.put("honest", b"after").code == 0
        assert "remoting" in node.pids()


@pytest.mark.usefixtures("honest")
@pytest.mark.parametrize(
    "data",
    [
        struct.pack(">I", 1 << 31),
        struct.pack(">I", (16 << 20) + 1),
        struct.pack(">I", 0),
        struct.pack(">I", 3),
        struct.pack(">II", 4, 1 << 24 | 5),
        struct.pack(">II", 8, 7 << 24 | 4) + b"1234",
        struct.pack(">II", 6, 2) + b"{}",
        b"GET / HTTP/1.1\r\n\r\n",
    ],
    ids=["2 GiB", "above 16 MiB", "0", "3", "header beyond the frame", "unknown form", "no code", "HTTP"],
)
def test_what_is_no_frame_closes_its_connection_and_is_counted(node: RemotingNode, data: bytes) -> None:
    before = node.ended(Ending.MALFORMED)
    with RawClient(node.port) as client:
        client.write(data)
        assert client.is_closed()
    assert node.ended(Ending.MALFORMED) == before + 1


@pytest.mark.parametrize("form", Form)
@pytest.mark.parametrize("plain", [True, False], ids=["by kernels", "by the interpreter"])
def test_a_header_that_is_cut_at_any_byte_closes_its_connection_and_is_counted(
    node: RemotingNode, honest: RawClient, form: Form, plain: bool
) -> None:
    """Its length and the frame's say so: the frame is whole."""
    properties = "UNIQ_KEY\x01" + "A" * 32 + "\x02" if plain else "TAGS\x01A"
    text = {name: str(value) for name, value in sent("honest", properties).items()}
    frame = b"".join(encode(Command(RequestCode.SEND_MESSAGE_V2, 5, 0, "", text, b"body", form, 409)))
    size, before = int.from_bytes(frame[5:8], "big"), node.ended(Ending.MALFORMED)
    for end in range(size):
        header = frame[8 : 8 + end]
        with RawClient(node.port, form) as client:
            client.write(struct.pack(">II", 4 + end + 4, form << 24 | end) + header + b"body")
            assert client.is_closed(), end
    assert node.ended(Ending.MALFORMED) == before + size


@pytest.mark.parametrize("member", ["code", "version", "remark", "language"])
def test_a_header_of_lists_in_lists_ends_no_process(node: RemotingNode, honest: RawClient, member: str) -> None:
    pid = node.pids()["remoting"]
    header = b'{"opaque":5,"%b":' % member.encode() + b"[" * 985 + b"]" * 985 + b"}"
    with RawClient(node.port) as client:
        client.write(struct.pack(">II", 4 + len(header), len(header)) + header)
        assert client.is_closed()
    assert honest.put("honest", b"afterwards").code == 0
    assert node.pids()["remoting"] == pid


@pytest.mark.parametrize("form", Form)
def test_a_frame_that_comes_byte_by_byte_is_one(node: RemotingNode, form: Form) -> None:
    text = {name: str(value) for name, value in sent("bytewise", "TAGS\x01A").items()}
    frame = b"".join(encode(Command(RequestCode.SEND_MESSAGE_V2, 5, 0, "", text, b"slow", form, 409)))
    with RawClient(node.port, form) as client:
        for byte in frame:
            client.write(bytes([byte]))
        assert (answer := client.read()).code == 0
        assert answer.opaque == 5


def test_any_damage_to_a_request_is_refused_or_understood_and_others_go_on(
    node: RemotingNode, honest: RawClient
) -> None:
    chance = random.Random(18)
    text = {name: str(value) for name, value in sent("damaged", "TAGS\x01A").items()}
    for round_ in range(400):
        form = Form(round_ % 2)
        frame = bytearray(b"".join(encode(Command(RequestCode.SEND_MESSAGE_V2, 5, 0, "", text, b"body", form, 409))))
        for _ in range(chance.randint(1, 3)):
            frame[chance.randrange(4, len(frame))] = chance.randrange(256)
        with RawClient(node.port, form) as client:
            client.write(bytes(frame))
            client.socket.settimeout(0.05 if round_ % 50 else 1.0)
            client.is_closed()
        if round_ % 50 == 0:
            assert honest.put("honest", b"meanwhile").code == 0


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"{}", b'{"clientID":""}', b'{"clientID":7}', b'{"clientID":"c","producerDataSet":7}',
     b'{"clientID":"c","producerDataSet":[{"groupName":""}]}', b"[" * 100_000, b'{"clientID":"' + b"x" * 256 + b'"}'],
    ids=["empty", "list", "no id", "empty id", "a number", "groups no list", "empty group", "deep", "long"],
)  # fmt: skip
def test_a_heartbeat_that_cannot_be_is_refused_and_counted(node: RemotingNode, client: RawClient, body: bytes) -> None:
    before = node.refused(ResponseCode.SYSTEM_ERROR)
    answer = client.ask(RequestCode.HEART_BEAT, {}, body)
    assert answer.code == 1
    assert node.refused(ResponseCode.SYSTEM_ERROR) == before + 1
    assert any(word in answer.remark for word in ("heartbeat", "producerDataSet", "no JSON"))


def test_a_client_has_so_many_names_on_one_connection(client: RawClient) -> None:
    codes = [client.heartbeat(f"c{number}@1", "pg").code for number in range(70)]
    assert codes == [0] * 64 + [1] * 6
    assert client.ask(RequestCode.UNREGISTER_CLIENT, {"clientID": "c0@1", "producerGroup": "pg"}).code == 0
    assert client.heartbeat("another@1", "pg").code == 0


def test_unfinished_frames_of_many_clients_are_bounded_together(node: RemotingNode, honest: RawClient) -> None:
    pid = node.pids()["remoting"]
    begun = struct.pack(">II", 16 << 20, 1 << 24 | 10) + bytes(8 * MIB)
    clients = []
    most, held, before = 0, 0, node.ended(Ending.MEMORY)
    try:
        for _ in range(60):
            clients.append(RawClient(node.port))
            try:
                clients[-1].write(begun)
            except OSError:
                continue
            most, held = max(most, anonymous(pid)), max(held, node.counts.total(Total.HELD))
            assert honest.put("honest", b"meanwhile").code == 0
    finally:
        for client in clients:
            client.close()
    assert most < MEMORY_MAX, f"{most >> 20} MiB"
    assert HELD_MAX // 2 < held <= HELD_MAX
    assert node.ended(Ending.MEMORY) > before
    await_(lambda: node.counts.total(Total.HELD) == 0, 10.0, "nothing is held when they have gone")


@pytest.mark.parametrize(
    ("code", "fields"),
    [
        (RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "x" * 60_000}),
        (RequestCode.SEND_MESSAGE_V2, sent("x" * 60_000, "")),
        (RequestCode.UPDATE_AND_CREATE_TOPIC, {"topic": "x" * 60_000, "readQueueNums": 1, "writeQueueNums": 1,
                                               "perm": 6}),
        (RequestCode.END_TRANSACTION, {"producerGroup": "x" * 60_000, "tranStateTableOffset": -1, "commitLogOffset": -1,
                                       "commitOrRollback": 8, "msgId": "k"}),
        (RequestCode.GET_MAX_OFFSET, {"topic": "x" * 60_000, "queueId": -5}),
        (RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, {"topic": "honest", "queueId": -5, "timestamp": -1}),
        (RequestCode.QUERY_CONSUMER_OFFSET, {"consumerGroup": "x" * 60_000, "topic": "honest", "queueId": 0}),
        (RequestCode.UPDATE_CONSUMER_OFFSET, {"consumerGroup": "g", "topic": "honest", "queueId": -1,
                                              "commitOffset": -1}),
        (RequestCode.VIEW_MESSAGE_BY_ID, {"offset": -1}),
        (RequestCode.CONSUMER_SEND_MSG_BACK, {"offset": -1, "group": "g", "delayLevel": 99}),
        (RequestCode.QUERY_MESSAGE, {"topic": "honest", "key": "k" * 60_000, "maxNum": -1, "beginTimestamp": -1,
                                     "endTimestamp": (1 << 63) - 1}),
        (RequestCode.RECALL_MESSAGE, {"topic": "honest", "recallHandle": "x" * 60_000}),
    ],
    ids=lambda value: str(value.name) if isinstance(value, RequestCode) else "",
)  # fmt: skip
def test_a_request_with_senseless_values_costs_nobody_anything(
    node: RemotingNode, honest: RawClient, code: RequestCode, fields: dict[str, object]
) -> None:
    """The links behind the port are everybody's: a question that put, schedule or serve would cut them for is not
    asked."""
    before = node.pids()
    with RawClient(node.port) as client:
        assert client.ask(code, fields, b"x").code is not None
        assert client.pull("g", "honest", 0, 0).code == 0, "serve goes on"
    assert honest.put("honest", b"meanwhile").code == 0
    assert node.pids() == before


def test_half_of_a_surrogate_pair_is_refused(node: RemotingNode, honest: RawClient) -> None:
    header = b'{"code":105,"opaque":1,"flag":0,"extFields":{"topic":"\\ud800"}}'
    body = b'{"clientID":"\\ud800","producerDataSet":[]}'
    beat = b'{"code":34,"opaque":2,"flag":0,"extFields":{}}'
    with RawClient(node.port) as client:
        client.write(struct.pack(">II", 4 + len(beat) + len(body), len(beat)) + beat + body)
        assert client.read().code == 1
        client.write(struct.pack(">II", 4 + len(header), len(header)) + header)
        assert client.is_closed()
