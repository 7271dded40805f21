"""Frames of RocketMQ's remoting protocol: golden bytes in both header forms, and what is refused."""

import contextlib
import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from towline.errors import MalformedFrame
from towline.format.remoting.command import ANSWER, FIELDS_MAX, FRAME_MAX, Command, Form, decode, encode, frame_size

JSON_HEADER = (
    b'{"code":105,"extFields":{"topic":"T"},"flag":0,"language":"JAVA","opaque":7,'
    b'"serializeTypeCurrentRPC":"JSON","version":409}'
)
JSON_FRAME = struct.pack(">II", 4 + len(JSON_HEADER) + 2, len(JSON_HEADER)) + JSON_HEADER + b"ab"
BINARY_FRAME = bytes.fromhex(
    "0000002a"  # length
    "01000024"  # form 1, header of 36 bytes
    "0069 00 0199 00000007 00000000"  # code 105, JAVA, version 409, opaque 7, flag 0
    "00000002 6f6b"  # remark "ok"
    "0000000d 0005 746f706963 00000002 5420"  # fields: topic "T "
    "6162"  # body
)
ROUTE = Command(105, 7, 0, "", {"topic": "T"}, b"ab", Form.JSON, 409)


def whole(command: Command) -> bytes:
    return b"".join(bytes(part) for part in encode(command))


def test_a_json_header_as_a_java_client_writes_it():
    assert decode(JSON_FRAME) == ROUTE
    assert whole(ROUTE) == JSON_FRAME


def test_a_binary_header():
    found = decode(BINARY_FRAME)
    assert found == Command(105, 7, 0, "ok", {"topic": "T "}, b"ab", Form.ROCKETMQ, 409)
    assert whole(found) == BINARY_FRAME


@pytest.mark.parametrize("frame", [JSON_FRAME, BINARY_FRAME], ids=["json", "binary"])
def test_an_answer_has_the_form_and_the_opaque_of_its_request(frame):
    answer = decode(frame).answer(17, {"a": "b"}, b"body", "no such topic")
    found = decode(whole(answer))
    assert (found.code, found.opaque, found.flag, found.remark) == (17, 7, ANSWER, "no such topic")
    assert (dict(found.fields), bytes(found.body), found.form) == ({"a": "b"}, b"body", decode(frame).form)
    assert found.is_answer
    assert not found.is_one_way


def test_members_that_are_missing_or_not_known():
    header = json.dumps({"code": 34, "flag": 2, "more": [1], "extFields": {"n": 4, "b": True, "none": None}}).encode()
    found = decode(struct.pack(">II", 4 + len(header), len(header)) + header)
    assert found == Command(34, 0, 2, "", {"n": "4", "b": "true"}, b"", Form.JSON, 0)
    assert found.is_one_way


@pytest.mark.parametrize("frame", [JSON_FRAME, BINARY_FRAME], ids=["json", "binary"])
def test_a_frame_that_ends_anywhere_inside_is_refused(frame):
    for end in range(len(frame)):
        with pytest.raises(MalformedFrame):
            decode(frame[:end])
        if end >= 8:  # and one whose length fits, but whose header does not
            with pytest.raises(MalformedFrame):
                decode(struct.pack(">I", end - 4) + frame[4:end]) if end < len(frame) - 2 else decode(frame[:end])


@pytest.mark.parametrize("frame", [JSON_FRAME, BINARY_FRAME], ids=["json", "binary"])
def test_a_header_that_ends_too_soon_is_refused_in_a_frame_that_is_whole(frame):
    mark, size = frame[4], int.from_bytes(frame[5:8], "big")
    for end in range(size):
        header = frame[8 : 8 + end]
        with pytest.raises(MalformedFrame, match=r"header|no UTF-8"):
            decode(struct.pack(">II", 4 + len(header) + 2, mark << 24 | len(header)) + header + b"ab")


def test_of_a_field_that_is_there_twice_the_last_one_counts_in_both_forms():
    """So it is with RocketMQ, which puts them into a map one after the other."""
    json_header = b'{"code":1,"code":105,"extFields":{"topic":"A","n":"1","topic":"B"},"opaque":1,"opaque":7}'
    pairs = ((b"topic", b"A"), (b"n", b"1"), (b"topic", b"B"))
    fields = b"".join(struct.pack(">h", len(name)) + name + struct.pack(">i", len(text)) + text for name, text in pairs)
    binary_header = struct.pack(">hBhiiii", 105, 0, 409, 7, 0, 0, len(fields)) + fields
    for mark, header in ((0, json_header), (1, binary_header)):
        found = decode(struct.pack(">II", 4 + len(header), mark << 24 | len(header)) + header)
        assert (found.code, found.opaque, dict(found.fields)) == (105, 7, {"topic": "B", "n": "1"})


def test_the_size_of_a_frame_is_known_from_its_first_bytes():
    assert frame_size(b"\0\0\0") == 0
    assert frame_size(JSON_FRAME[:4]) == len(JSON_FRAME)
    assert frame_size(b"xx" + JSON_FRAME, 2) == len(JSON_FRAME)
    for length in (0, 3, FRAME_MAX + 1, 0x8000_0000, 0xFFFF_FFFF):
        with pytest.raises(MalformedFrame, match="a frame of"):
            frame_size(struct.pack(">I", length))


@pytest.mark.parametrize(
    ("header", "why"),
    [
        (b"[]", "no JSON object"),
        (b"{", "no JSON"),
        (b"[" * 100_000, "no JSON"),
        (b"{}", "code in the header is None"),
        (b'{"code":"1"}', "a number of 32 bits"),
        (b'{"code":4294967296}', "a number of 32 bits"),
        (b'{"code":true}', "a number of 32 bits"),
        (b'{"code":' + b"[" * 985 + b"]" * 985 + b"}", "code in the header is a list"),
        (b'{"code":1,"extFields":[1]}', "extFields"),
        (b'{"code":1,"extFields":{"a":{}}}', "header field a"),
        (b'{"code":1,"opaque":1.5}', "opaque"),
        (json.dumps({"code": 1, "extFields": {str(n): "" for n in range(FIELDS_MAX + 1)}}).encode(), "extFields"),
    ],
)
def test_json_headers_that_are_none(header, why):
    with pytest.raises(MalformedFrame, match=why):
        decode(struct.pack(">II", 4 + len(header), len(header)) + header)


def test_an_unknown_form_and_too_large_an_answer():
    with pytest.raises(MalformedFrame, match="unknown form 2"):
        decode(struct.pack(">II", 6, 2 << 24 | 2) + b"{}")
    with pytest.raises(MalformedFrame, match="a frame of"):
        encode(Command(0, body=bytes(FRAME_MAX)))


texts = st.text(max_size=20)


@given(
    st.builds(
        Command,
        code=st.integers(-(1 << 15), (1 << 15) - 1),
        opaque=st.integers(-(1 << 31), (1 << 31) - 1),
        flag=st.integers(0, 3),
        remark=texts,
        fields=st.dictionaries(texts, texts, max_size=5),
        body=st.binary(max_size=50),
        form=st.sampled_from(Form),
        version=st.integers(0, 600),
        language=st.sampled_from(["JAVA", "GO", "PYTHON", "OTHER"]),
    )
)
def test_what_is_written_is_read(command):
    assert decode(whole(command)) == command


@given(st.binary(max_size=200), st.sampled_from([0, 1]))
def test_any_bytes_are_a_command_or_are_refused(data, form):
    frame = struct.pack(">II", 4 + len(data), form << 24 | len(data)) + data
    with contextlib.suppress(MalformedFrame):
        decode(frame)
