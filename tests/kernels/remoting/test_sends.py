"""The kernel of plain sends, beside what the interpreter makes of the same frames."""

import contextlib
import json
import random
from collections.abc import Callable
from itertools import accumulate

import numpy as np
import pytest

from towline.errors import MalformedFrame
from towline.format.record.properties import UNIQ_KEY
from towline.format.record.properties import decode as decode_properties
from towline.format.remoting.batch import member, members_of
from towline.format.remoting.codes import RequestRefused
from towline.format.remoting.command import Command, Form, decode, encode
from towline.format.remoting.headers import SendMessage, read_header
from towline.format.remoting.stored import BrokerFacts, stored_message
from towline.kernels.remoting.members import MEMBERS_MAX
from towline.kernels.remoting.sends import BROKEN, SENT, TEXT_MAX, read_sends

BROKER = BrokerFacts("c1", 18, 60)
PROPERTIES = "KEYS\x01k\x02UNIQ_KEY\x01" + "A" * 32 + "\x02WAIT\x01true\x02TAGS\x01TagA"
FIELDS = {
    "a": "pg", "b": "topic-A", "c": "TBW102", "d": "4", "e": "3", "f": "0", "g": "1700000000000", "h": "-7",
    "i": PROPERTIES, "j": "0", "k": "false", "m": "false", "n": "broker-a", "bname": "broker-a",
}  # fmt: skip
MEMBERS = [
    member(7, b"first", b"TAGS\x01A"),
    member(-1, b"", b""),
    member(0, b"third", "KEYS\x01\u4e2d\u6587\x02".encode()),
]
BATCH = b"".join(MEMBERS)


def frame(
    form: Form,
    fields: dict[str, str] | None = None,
    body: bytes = b"body",
    flag: int = 0,
    code: int = 310,
    opaque: int = 77,
) -> bytes:
    return b"".join(encode(Command(code, opaque, flag, "", FIELDS if fields is None else fields, body, form, 409)))


def read(data: bytes, rows: int = 64):
    sends = np.zeros(rows, SENT)
    text = np.zeros(rows * TEXT_MAX, np.uint8)
    count = read_sends(np.frombuffer(data, np.uint8), len(data), sends, text)
    return sends[:count], text.tobytes()


def batch(form: Form, fields: dict[str, str] | None = None, body: bytes = BATCH, flag: int = 0) -> bytes:
    return frame(form, {**FIELDS, "m": "true", **(fields or {})}, body, flag, 320)


def check_equal(row, text: bytes, data: bytes) -> None:
    """A plain row says what the interpreter reads."""
    command = decode(data[row["begin"] : row["begin"] + row["size"]])
    header = read_header(SendMessage, command.fields, letters=True)
    topic = text[row["topic_at"] :][: row["topic_size"]]
    properties = text[row["properties_at"] :][: row["properties_size"]]
    assert command.code in (310, 320)
    assert (command.opaque, command.is_one_way) == (row["opaque"], bool(row["one_way"]))
    assert (topic.decode(), row["queue_id"], row["sys_flag"]) == (header.topic, header.queue_id, header.sys_flag)
    assert (row["born_timestamp"], row["flag"]) == (header.born_timestamp, header.flag)
    assert data[row["body_at"] :][: row["body_size"]] == bytes(command.body)
    key = text[row["key_at"] :][: row["key_size"]].decode()
    assert bool(row["batch"]) == (header.batch or command.code == 320)
    if row["batch"]:
        members = list(members_of(bytes(command.body)))
        content = sum(len(each.body) + len(each.properties) for each in members)
        assert (row["records"], row["content"]) == (len(members), content)
        assert key == decode_properties(header.properties.encode()).get(UNIQ_KEY, "")
        return
    assert (row["records"], row["content"]) == (1, row["body_size"] + row["properties_size"])
    stored = stored_message(header, header.queue_id, 0, BROKER)
    ours = {"CLUSTER": "c1", "MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
    assert decode_properties(properties) | ours == decode_properties(stored.properties)
    assert (stored.topic, stored.queue_id) == (header.topic, header.queue_id)
    assert key == stored.unique_key


@pytest.mark.parametrize("form", Form)
def test_a_plain_send_is_read_as_the_interpreter_reads_it(form: Form) -> None:
    data = frame(form) + frame(form, body=b"", flag=2) + frame(form, {**FIELDS, "i": PROPERTIES + "\x02"})
    sends, text = read(data + b"\0\0\1")
    assert list(sends["plain"]) == [1, 1, 1]
    assert list(sends["one_way"]) == [0, 2, 0]
    for row in sends:
        check_equal(row, text, data)


@pytest.mark.parametrize("form", Form)
@pytest.mark.parametrize(
    "changed",
    [
        {"b": "%RETRY%g"}, {"b": ""}, {"b": "x" * 128}, {"b": None}, {"a": None}, {"e": "1.5"}, {"e": ""},
        {"e": "2147483648"}, {"g": "9" * 19}, {"j": "1"}, {"m": "true"}, {"m": "1"}, {"i": ""}, {"i": "KEYS\x01k\x02"},
        {"i": PROPERTIES + "\x02DELAY\x013"}, {"i": PROPERTIES + "\x02TRAN_MSG\x01true"},
        {"i": PROPERTIES + "\x02CLUSTER\x01x"}, {"i": PROPERTIES + "\x02__RMQ.TRANSIENT.a\x01x"},
        {"i": PROPERTIES + "\x02\x01x"}, {"i": PROPERTIES + "\x02name"}, {"i": "x" * 33_000},
    ],
    ids=lambda value: ",".join(f"{name}={str(text)[-20:]!r}" for name, text in value.items()),
)  # fmt: skip
def test_what_is_not_plain_is_left_to_the_interpreter(form: Form, changed: dict[str, str | None]) -> None:
    fields = {name: text for name, text in {**FIELDS, **changed}.items() if text is not None}
    sends, _ = read(frame(form, fields) + frame(form))
    assert list(sends["plain"]) == [0, 1]


@pytest.mark.parametrize("form", Form)
@pytest.mark.parametrize(("code", "word"), [(310, "true"), (320, "true"), (320, "false"), (320, None)])
@pytest.mark.parametrize("properties", ["", PROPERTIES, "WAIT\x01true\x02", f"TAGS\x01a\x02\x02{PROPERTIES}"])
def test_a_batch_is_read_as_the_interpreter_reads_it(form: Form, code: int, word: str | None, properties: str) -> None:
    given = {**FIELDS, "i": properties, "m": word}
    fields = {name: text for name, text in given.items() if text is not None}
    data = frame(form) + frame(form, fields, BATCH, code=code) + frame(form, fields, MEMBERS[1], 2, code) + frame(form)
    sends, text = read(data)
    assert list(sends["plain"]) == [1] * 4
    assert list(sends["batch"]) == [0, 1, 1, 0]
    assert list(sends["records"]) == [1, 3, 1, 1]
    for row in sends:
        check_equal(row, text, data)


@pytest.mark.parametrize("form", Form)
def test_a_batch_that_is_cut_empty_or_too_long_is_left_to_the_interpreter(form: Form) -> None:
    whole = {0, *accumulate(map(len, MEMBERS))}
    for end in range(len(BATCH) + 1):
        ((row,), _) = read(batch(form, body=BATCH[:end]))
        assert row["plain"] == (end in whole and end > 0)
    for count, plain in ((MEMBERS_MAX, 1), (MEMBERS_MAX + 1, 0)):
        assert read(batch(form, body=MEMBERS[1] * count))[0]["plain"] == plain
    for size, end, plain in ((32_767, b"\x02", 1), (32_766, b"v", 1), (32_767, b"v", 0), (65_535, b"\x02", 0)):
        body = member(0, b"x", b"k\x01" + b"v" * (size - 3) + end)
        assert read(batch(form, body=body))[0]["plain"] == plain


@pytest.mark.parametrize("at", [0, 16, 25])
@pytest.mark.parametrize("size", [-(1 << 31), -22, -1, 0, 1, 21, 1 << 16, (1 << 31) - 1])
def test_a_batch_whose_sizes_do_not_add_up_is_left_to_the_interpreter(at: int, size: int) -> None:
    """Of its first message: all of it, its body, its properties."""
    width = 2 if at == 25 else 4
    body = BATCH[:at] + (size & (1 << 8 * width) - 1).to_bytes(width, "big") + BATCH[at + width :]
    with pytest.raises(MalformedFrame):
        list(members_of(body))
    assert read(batch(Form.JSON, body=body))[0]["plain"] == 0


@pytest.mark.parametrize("form", Form)
def test_other_requests_and_answers_are_left_to_the_interpreter(form: Form) -> None:
    sends, _ = read(frame(form, code=34) + frame(form, flag=1) + frame(form, code=320))
    assert list(sends["plain"]) == [0, 0, 0]
    assert sends["size"].sum() == len(frame(form, code=34) + frame(form, flag=1) + frame(form, code=320))


@pytest.mark.parametrize("length", [0, 3, (16 << 20) + 1, 0xFFFF_FFFF])
def test_a_length_that_cannot_be_ends_the_reading(length: int) -> None:
    sends, _ = read(frame(Form.JSON) + length.to_bytes(4, "big") + bytes(100))
    assert list(sends["size"])[-1] == BROKEN
    assert len(sends) == 2


def test_json_with_spaces_other_orders_and_escapes() -> None:
    fields = ",".join(f'"{name}" : "{text}"' for name, text in FIELDS.items() if name != "i")
    escaped = PROPERTIES.replace("\x01", "\\u0001").replace("\x02", "\\u0002").replace("TagA", 'a\\/b\\"c\\\\d\\u0041')
    header = (
        f' {{ "extFields" : {{ "i":"{escaped}" , {fields} }} , "remark":"x", "opaque":-5 , "code" : 310,"flag":0}} '
    )
    data = (8 - 4 + len(header)).to_bytes(4, "big") + len(header).to_bytes(4, "big") + header.encode()
    sends, text = read(data)
    assert list(sends["plain"]) == [1]
    check_equal(sends[0], text, data)
    for bad in ("\\u00fc", "\\n", "\\ud800", "\\u00"):
        other = header.replace("\\u0041", bad)
        damaged = (4 + len(other)).to_bytes(4, "big") + len(other).to_bytes(4, "big") + other.encode()
        assert list(read(damaged)[0]["plain"]) == [0]


@pytest.mark.parametrize("form", Form)
@pytest.mark.parametrize("made", [frame, batch])
def test_any_damage_is_plain_only_where_the_interpreter_agrees(form: Form, made: Callable[[Form], bytes]) -> None:
    chance = random.Random(19)
    whole = made(form)
    plain = 0
    for _ in range(20_000):
        data = bytearray(whole)
        for _ in range(chance.randint(1, 3)):
            place = chance.randrange(4, len(data))
            data[place] = chance.choice((chance.randrange(256), data[place] ^ 1 << chance.randrange(8)))
        sends, text = read(bytes(data), 2)
        (row,) = sends
        if row["plain"]:
            with contextlib.suppress(UnicodeDecodeError):
                bytes(data).decode()
            plain += 1
            try:
                check_equal(row, text, bytes(data))
            except (MalformedFrame, RequestRefused) as error:
                raise AssertionError(f"the interpreter refuses {bytes(data)!r}: {error}") from error
    assert plain > 1_000


# --- headers that are cut or say something twice


def framed(form: Form, header: bytes, body: bytes = b"body") -> bytes:
    """A frame around a header, with both lengths right."""
    mark = form << 24 | len(header)
    return (4 + len(header) + len(body)).to_bytes(4, "big") + mark.to_bytes(4, "big") + header + body


def header_of(data: bytes) -> bytes:
    return data[8 : 8 + int.from_bytes(data[5:8], "big")]


def check_agreed(data: bytes) -> tuple[bool, bool]:
    """Whether the kernel takes the frame, and whether the interpreter finds a send in it: wherever the kernel does."""
    (row,), text = read(data, 2)
    assert (row["begin"], row["size"]) == (0, len(data))
    try:
        read_header(SendMessage, decode(data).fields, letters=True)
        understood = True
    except (MalformedFrame, RequestRefused):
        understood = False
    if row["plain"]:
        assert understood, data
        check_equal(row, text, data)
    return bool(row["plain"]), understood


@pytest.mark.parametrize("form", Form)
@pytest.mark.parametrize("made", [frame, batch])
def test_a_header_that_is_cut_at_any_byte_is_nobodys_with_lengths_that_fit_it(
    form: Form, made: Callable[[Form], bytes]
) -> None:
    """The frame is whole, and what ends too soon is the header: a cut frame would only be waited for."""
    whole = made(form)
    header = header_of(whole)
    assert check_agreed(framed(form, header, whole[8 + len(header) :])) == (True, True)
    for end in range(len(header)):
        data = framed(form, header[:end], whole[8 + len(header) :])
        assert read(data, 2)[0][0]["plain"] == 0, end
        with pytest.raises(MalformedFrame):
            decode(data)


def test_binary_fields_that_are_cut_with_their_length_are_read_as_far_as_they_are_whole() -> None:
    header = header_of(frame(Form.ROCKETMQ))
    fields_at = 13 + 4 + 4  # behind the fixed part, no remark, and the length of the fields
    ends = set(accumulate((2 + len(name) + 4 + len(text) for name, text in FIELDS.items()), initial=fields_at))
    plain, understood = set(), set()
    for end in range(fields_at, len(header) + 1):
        fields = header[fields_at:end]
        data = framed(Form.ROCKETMQ, header[: fields_at - 4] + len(fields).to_bytes(4, "big") + fields)
        by_kernel, by_interpreter = check_agreed(data)
        plain |= {end} if by_kernel else set()
        understood |= {end} if by_interpreter else set()
    assert len(header) in plain
    assert len(plain) > 1, "a send can do without its last fields"
    assert plain <= understood <= ends


def test_json_members_that_are_cut_and_closed_are_read_alike_by_both() -> None:
    header = header_of(frame(Form.JSON))
    found = [
        check_agreed(framed(Form.JSON, header[:end] + closing))
        for end in range(len(header))
        for closing in (b"}", b"}}", b'"}', b'"}}', b":1}", b'":""}}', b',"flag":0}', b',"flag":0}}')
    ]
    assert (True, True) in found
    assert found.count((False, False)) > len(header)


@pytest.mark.parametrize("form", Form)
@pytest.mark.parametrize("name", FIELDS)
@pytest.mark.parametrize("other", ["", "0", "3", "true", "%RETRY%g", "x" * 300])
def test_a_field_that_is_there_twice_is_read_alike_by_both(form: Form, name: str, other: str) -> None:
    """The last one counts, as in RocketMQ's own map: the kernel does the same, or leaves it to the interpreter."""
    pairs = list(FIELDS.items())
    place = list(FIELDS).index(name)
    for doubled in (
        [*pairs, (name, other)],
        [(name, other), *pairs],
        [*pairs[:place], (name, other), *pairs[place:]],
        [*pairs, (name, FIELDS[name])],
        [*pairs, (name, other), (name, FIELDS[name])],
    ):
        data = with_pairs(form, doubled)
        check_agreed(data)
        with contextlib.suppress(MalformedFrame, RequestRefused):
            assert decode(data).fields == dict(doubled)


def with_pairs(form: Form, pairs: list[tuple[str, str]]) -> bytes:
    """A send with these fields, of which some may be there twice."""
    if form is Form.JSON:
        fields = ",".join(f"{json.dumps(name)}:{json.dumps(text)}" for name, text in pairs)
        return framed(form, f'{{"code":310,"opaque":7,"flag":0,"extFields":{{{fields}}}}}'.encode())
    fixed = header_of(frame(form))[:17]
    parts = [
        len(name).to_bytes(2, "big") + name.encode() + len(text).to_bytes(4, "big") + text.encode()
        for name, text in pairs
    ]
    fields = b"".join(parts)
    return framed(form, fixed + len(fields).to_bytes(4, "big") + fields)


@pytest.mark.parametrize(
    "doubled",
    [
        '"code":310', '"code":34', '"code":320', '"opaque":9', '"flag":1', '"flag":2', '"remark":"y"', '"extFields":{}',
        '"flag":""', '"flag":"2"', '"code":"310"', '"opaque":"9"',
        '"extFields":null', '"extFields":{"b":"other"}', '"version":1', '"language":"GO"', '"unknown":[1,{}]',
    ],
)  # fmt: skip
def test_a_member_of_a_json_header_that_is_there_twice_is_read_alike_by_both(doubled: str) -> None:
    header = header_of(frame(Form.JSON)).decode()
    before, after = "{" + doubled + "," + header[1:], header[:-1] + "," + doubled + "}"
    for text in (before, after):
        check_agreed(framed(Form.JSON, text.encode()))
