"""The body of a batch: golden bytes, and damage at every byte."""

import contextlib
import struct

import pytest

from towline.errors import MalformedFrame
from towline.format.record import sequence
from towline.format.record.sequence import Place
from towline.format.remoting.batch import BatchMember, members_of


def item(flag: int, body: bytes, properties: bytes) -> bytes:
    size = 22 + len(body) + len(properties)
    return struct.pack(">iiiii", size, 0, 0, flag, len(body)) + body + struct.pack(">H", len(properties)) + properties


PLACE = sequence.encode(Place(4711, 1_782_579_200_000_004_103, 42))
WHOLE = item(7, b"first", b"TAGS\x01A") + item(-1, b"", b"") + item(0, b"last", b"TAGS\x01B\x02")


def test_the_members_of_a_batch_in_their_order():
    golden = bytes.fromhex("0000001d 00000000 00000000 00000007 00000001 78 0006 544147530141")
    assert list(members_of(golden)) == [BatchMember(7, b"x", b"TAGS\x01A\x02")]
    assert list(members_of(WHOLE)) == [
        BatchMember(7, b"first", b"TAGS\x01A\x02"),
        BatchMember(-1, b"", b""),
        BatchMember(0, b"last", b"TAGS\x01B\x02"),
    ]
    assert list(members_of(b"")) == []


@pytest.mark.parametrize(
    ("properties", "kept"),
    [
        (PLACE, b""),
        (b"A\x01b\x02" + PLACE, b"A\x01b\x02"),
        (b"A\x01b\x02" + PLACE[:-1], b"A\x01b\x02"),
        (PLACE + b"A\x01b", b"A\x01b\x02"),
        (b"A\x01b\x02__PSEQ__\x01x\x02C\x01d\x02" + PLACE, b"A\x01b\x02C\x01d\x02"),
        (b"A\x01__PSEQ__\x02", b"A\x01__PSEQ__\x02"),
        (b"a__PSEQ__\x01b\x02", b"a__PSEQ__\x01b\x02"),
    ],
    ids=["alone", "last", "without its separator", "first", "two", "as a value", "another name"],
)
def test_the_place_of_an_idempotent_producers_record_is_no_property_of_a_member(properties, kept):
    """A client that copies a message which it has read sends it with it."""
    (found,) = members_of(item(0, b"copied", properties))
    assert found == BatchMember(0, b"copied", kept)


@pytest.mark.parametrize("end", [at for at in range(1, len(WHOLE)) if at not in (33, 55)])
def test_a_batch_that_is_cut_at_any_byte_is_refused(end):
    with pytest.raises(MalformedFrame):
        list(members_of(WHOLE[:end]))


@pytest.mark.parametrize("at", range(len(WHOLE)))
@pytest.mark.parametrize("value", [0x00, 0x7F, 0x80, 0xFF])
def test_a_changed_byte_gives_members_of_the_same_bytes_or_a_refusal(at, value):
    damaged = WHOLE[:at] + bytes([value]) + WHOLE[at + 1 :]
    with contextlib.suppress(MalformedFrame):
        assert sum(len(member.body) for member in members_of(damaged)) <= len(damaged)
