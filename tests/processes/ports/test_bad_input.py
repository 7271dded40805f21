"""What a put refuses: by name, naming the record and the rule; nothing is published and the process goes on.

The node is configured as the benchmark measures it: body CRCs are checked.
"""

import os
import random
from pathlib import Path

import pytest

from tests.processes.wire import Request, WireClient, endpoint_of, records_of
from towline.format.record.rules import Rule
from towline.format.wire.frames import ASK, Kind, encode_put
from towline.format.wire.status import PutStatus
from towline.node.process.context import runtime_of
from towline.node.supervise.launch import start_node
from towline.runtime.positions import Counter, Duty, Position, Positions

TOPIC = b"orders"
SEGMENT = 4 << 20


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    store = tmp_path_factory.mktemp("bad-input")
    flags = {
        "mapped_file_size_commit_log": SEGMENT,
        "max_hash_slot_num": 1000,
        "max_index_num": 4000,
        "listen_port": 0,
        "ha_listen_port": 0,
        "auto_create_topic_enable": "false",
    }
    arguments = [word for key, value in flags.items() for word in ("--set", f"{key}={value}")]
    launched = start_node("master", store, [*arguments, "--without", "serve"], tied=True)
    yield store
    launched.end()


@pytest.fixture
def positions(node):
    return Positions.open(runtime_of(node).positions, writable=False)


@pytest.fixture
def client(node):
    client = WireClient(endpoint_of(runtime_of(node).root))
    client.create_topic(TOPIC.decode(), queues=4)
    yield client
    client.close()


def changed(request: Request, at: int, data: bytes) -> bytes:
    return request.data[:at] + data + request.data[at + len(data) :]


def flipped(request: Request, at: int) -> bytes:
    return changed(request, at, bytes([request.data[at] ^ 0x01]))


BODY_AT, TOPIC_AT = 88, 88 + 100 + 1


@pytest.mark.parametrize(
    ("field", "at", "rules"),
    [
        pytest.param("body", BODY_AT + 50, {Rule.BODY_CRC}, id="a body bit"),
        pytest.param(
            "length", 3, {Rule.PARTS_DO_NOT_ADD_UP, Rule.SIZE_PAST_END, Rule.SIZE_TOO_SMALL}, id="a length byte"
        ),
        pytest.param("topic", TOPIC_AT + 2, {Rule.TOPIC_MISMATCH}, id="a topic byte"),
    ],
)
def test_one_flipped_bit_in_record_250_of_500_refuses_the_request_by_name(client, positions, node, field, at, rules):
    request = records_of(TOPIC, 500)
    before = positions.get(Position.APPENDED)
    answer = client.put(request, flipped(request, request.start_of(250) + at))
    assert answer.status == PutStatus.MESSAGE_ILLEGAL
    assert (answer.record, answer.rule in rules) == (250, True), answer
    assert Rule(answer.rule).name in answer.sentence
    assert "record 250" in answer.sentence
    assert positions.get(Position.APPENDED) == before
    assert not any(tail_of(node, before, len(request.data))), "a refused request left bytes behind"
    assert client.put(request).status == PutStatus.PUT_OK


def tail_of(store: Path, offset: int, size: int) -> bytes:
    base = offset - offset % SEGMENT
    with (store / "commitlog" / f"{base:020d}").open("rb") as file:
        file.seek(offset - base)
        return file.read(size)


@pytest.mark.parametrize(
    ("at", "data", "rule"),
    [
        pytest.param(0, (50).to_bytes(4, "big"), Rule.SIZE_TOO_SMALL, id="a size below the smallest record"),
        pytest.param(0, (0x7FFFFFFF).to_bytes(4, "big"), Rule.SIZE_PAST_END, id="a size of 2 GiB"),
        pytest.param(0, (-1).to_bytes(4, "big", signed=True), Rule.SIZE_TOO_SMALL, id="a negative size"),
        pytest.param(4, b"\xda\xa3\x20\xa8", Rule.MAGIC, id="another magic"),
        pytest.param(4, b"\xcb\xd4\x31\x94", Rule.MAGIC, id="the magic of a blank"),
        pytest.param(12, (3).to_bytes(4, "big"), Rule.QUEUE_ID, id="another queue than its group's"),
        pytest.param(36, (0x20).to_bytes(4, "big"), Rule.STORE_HOST_FLAG, id="an IPv6 store host"),
        pytest.param(84, (101).to_bytes(4, "big"), None, id="a body length that is one too long"),
        pytest.param(BODY_AT + 100, b"\x00", None, id="a topic of no bytes"),
        pytest.param(TOPIC_AT + 6, b"\x7f\xff", Rule.PARTS_DO_NOT_ADD_UP, id="properties longer than the record"),
        pytest.param(TOPIC_AT + 8, b"\x00", Rule.PROPERTIES_FORM, id="a NUL byte in the properties"),
        pytest.param(8, b"\x00\x00\x00\x01", Rule.BODY_CRC, id="another CRC"),
    ],
)
def test_a_record_that_breaks_a_rule_is_refused_naming_it(client, positions, at, data, rule):
    request = records_of(TOPIC, 3)
    before = positions.get(Position.APPENDED)
    answer = client.put(request, changed(request, request.start_of(1) + at, data))
    assert (answer.status, answer.record) == (PutStatus.MESSAGE_ILLEGAL, 1), answer
    assert rule is None or Rule(answer.rule) is rule, answer
    assert positions.get(Position.APPENDED) == before


@pytest.mark.parametrize(
    ("count", "data", "said"),
    [
        pytest.param(4, None, "COUNT_MISMATCH", id="more records announced than sent"),
        pytest.param(2, None, "GROUP_SIZE", id="fewer records announced than sent"),
        pytest.param(3, b"short", "", id="five bytes"),
        pytest.param(1, b"8 bytes!", "", id="eight bytes"),
        pytest.param(1, b"nine bytes", "", id="ten bytes"),
    ],
)
def test_a_request_whose_numbers_do_not_fit_is_refused(client, positions, count, data, said):
    request = records_of(TOPIC, 3)
    before = positions.get(Position.APPENDED)
    answer = client.put(request, data, count=count)
    assert answer.status == PutStatus.MESSAGE_ILLEGAL
    assert said in answer.sentence
    assert positions.get(Position.APPENDED) == before


def test_an_unknown_topic_is_refused_when_topics_are_not_made_by_themselves(client):
    answer = client.put(records_of(b"nobody", 1))
    assert answer.status == PutStatus.TOPIC_NOT_EXIST
    assert "nobody" in answer.sentence


def test_a_queue_that_the_topic_does_not_have_is_refused_naming_those_it_has(client):
    answer = client.put(records_of(TOPIC, 1, queue_id=4))
    assert answer.status == PutStatus.UNKNOWN_QUEUE
    assert "0 to 3" in answer.sentence


def test_a_body_above_the_limit_is_refused(client):
    answer = client.put(records_of(TOPIC, 1, size=(4 << 20) + 1))
    assert answer.status == PutStatus.MESSAGE_ILLEGAL
    assert "allowed" in answer.sentence


def test_an_expired_request_is_refused_and_not_stored(client, positions):
    request = records_of(TOPIC, 1)
    client.welcome["now"] -= 1_000_000
    before = positions.get(Position.APPENDED)
    assert client.put(request).status == PutStatus.EXPIRED
    assert positions.get(Position.APPENDED) == before


@pytest.mark.parametrize("seed", range(5))
def test_random_bytes_cost_their_sender_the_link_and_the_store_nothing(node, client, positions, seed):
    random.seed(seed)
    refused = positions.duty(Duty.PUT).counter(Counter.REFUSED)
    before, pid = positions.get(Position.APPENDED), positions.duty(Duty.PUT).pid
    for _ in range(40):
        stranger = WireClient(endpoint_of(runtime_of(node).root))
        parts = [random.randbytes(random.choice((0, 1, 20, 5000))) for _ in range(random.randint(1, 4))]
        parts[0] = random.choice((b"", bytes([Kind.PUT]), bytes([Kind.ASK]), bytes([99]))) + parts[0]
        stranger.link.send(parts)
        stranger.receive(0.02)
        stranger.close()
    assert positions.get(Position.APPENDED) == before
    assert client.put(records_of(TOPIC, 1)).status == PutStatus.PUT_OK
    assert positions.duty(Duty.PUT).counter(Counter.REFUSED) > refused
    assert positions.duty(Duty.PUT).pid == pid
    os.kill(pid, 0)


def test_a_head_that_ends_inside_its_groups_costs_the_link(client):
    head = encode_put(1, 0, 1 << 60, [])
    client.link.send([head[:2] + b"\x00\x05" + head[4:], b"x" * 200])
    assert client.receive(5) is None
    assert client.link.lost


@pytest.mark.parametrize("queues", [b'"many"', b"Infinity", b"NaN", b"[]"])
def test_a_number_of_queues_that_is_none_costs_put_nothing(client, positions, queues):
    pid = positions.duty(Duty.PUT).pid
    client.link.send([ASK.pack(Kind.ASK, 1), b'{"op":"route","topic":"orders","queues":' + queues + b"}"])
    assert client.receive(5) is not None
    assert client.put(records_of(TOPIC, 1)).status == PutStatus.PUT_OK
    assert positions.duty(Duty.PUT).pid == pid
