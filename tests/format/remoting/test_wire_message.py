"""Messages of Towline's own protocol in remoting frames."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from towline.errors import MalformedFrame
from towline.format.remoting.codes import RequestCode
from towline.format.remoting.command import decode
from towline.format.remoting.wire_message import HEAD_SIZE, decode_message, encode_message, message_size

PARTS = st.lists(st.binary(max_size=300), min_size=1, max_size=4)


def test_a_message_of_two_parts_has_these_bytes() -> None:
    frame = b"".join(encode_message([b"head", b"xyz"], from_node=False))
    assert frame.hex(" ") == (
        "00 00 00 29 01 00 00 15 75 31 03 01 df 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00"
        " 02 00 00 00 04 00 00 00 03 68 65 61 64 78 79 7a"
    )
    answer = b"".join(encode_message([b"head", b"xyz"], from_node=True))
    assert [at for at in range(len(frame)) if frame[at] != answer[at]] == [20]  # the flag says that it is an answer
    command = decode(answer)
    assert (command.code, command.is_answer, bytes(command.body)) == (RequestCode.TOWLINE, True, answer[HEAD_SIZE:])


@given(PARTS)
def test_parts_come_back_as_they_were(parts: list[bytes]) -> None:
    frame = b"".join(encode_message(parts, from_node=True))
    assert message_size(frame) == len(frame)
    found = decode_message(memoryview(frame)[HEAD_SIZE:])
    assert [bytes(part) for part in found] == parts
    assert isinstance(found[0], bytes)


@given(PARTS, st.data())
def test_a_message_that_is_cut_or_goes_on_is_refused(parts: list[bytes], data: st.DataObject) -> None:
    body = b"".join(encode_message(parts, from_node=True))[HEAD_SIZE:]
    cut = data.draw(st.integers(0, len(body) - 1))
    with pytest.raises(MalformedFrame):
        decode_message(body[:cut])
    with pytest.raises(MalformedFrame):
        decode_message(body + b"x")


@pytest.mark.parametrize("body", [b"", b"\0", b"\5" + bytes(20), b"\xff" + bytes(1020)])
def test_no_parts_or_too_many_are_refused(body: bytes) -> None:
    with pytest.raises(MalformedFrame, match="1 to 4 are allowed"):
        decode_message(body)


@given(PARTS)
def test_the_size_is_known_once_the_head_is_there_and_another_frame_is_refused(parts: list[bytes]) -> None:
    frame = b"".join(encode_message(parts, from_node=True))
    assert {message_size(frame[:at]) for at in range(HEAD_SIZE)} == {0}
    assert message_size(frame[:HEAD_SIZE]) == len(frame)
    with pytest.raises(MalformedFrame, match="no message of Towline's"):
        message_size(b"".join(encode_message(parts, from_node=False)))
