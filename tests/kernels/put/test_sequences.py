"""The append and the places of idempotent producers' records: left to be judged first, then stored in a row or not."""

import numpy as np
import pytest

from tests.kernels.put.desk import BASE, CHECKS
from tests.kernels.put.test_append import FIRST, QUEUES, Desk
from towline.format.record import property_crc, sequence
from towline.format.record.record import MessageEncoder
from towline.format.record.rules import Rule
from towline.format.record.sequence import Place
from towline.format.record.sequence_columns import numbered
from towline.kernels.jit.rows import RequestStatus, Sender
from towline.kernels.put import append as kernel
from towline.kernels.put import stamp

PLACE = Place(4711, 1_782_579_200_000_004_103, 98)
TOPIC, QUEUE_ID = QUEUES[0]


@pytest.fixture
def desk():
    return Desk()


def batch(count: int, first: Place = PLACE, *, crc: bool = False) -> list[bytes]:
    encoder = MessageEncoder(TOPIC, append_property_crc=crc, sequenced=True)
    records = [encoder.encode(QUEUE_ID, b"x" * number, b"KEYS\x01k\x02") for number in range(count)]
    ends = np.cumsum([len(record) for record in records])
    data = numbered(b"".join(records), ends - (property_crc.SIZE if crc else 0), first)
    return [data[end - len(record) : end] for end, record in zip(ends.tolist(), records, strict=True)]


def plain(properties: bytes = b"KEYS\x01k\x02", body: bytes = b"x") -> bytes:
    return MessageEncoder(TOPIC).encode(QUEUE_ID, body, properties)


@pytest.mark.parametrize("crc", [False, True], ids=["without a property CRC", "with one"])
def test_a_batch_is_left_until_it_was_judged_and_then_stored_as_it_is(desk, crc):
    desk.state.checks = CHECKS | (stamp.PROPERTY_CRC if crc else 0)
    records = batch(4, crc=crc)
    desk.offer((QUEUES[0], records))
    assert (desk.serve(), desk.status(0), desk.end) == (kernel.ROW, RequestStatus.SEQUENCED, 0)
    assert not desk.bytes.any()
    desk.rows[0]["status"] = RequestStatus.WAITING
    desk.state.judged = 1
    assert (desk.serve(), desk.served, desk.state.judged) == (kernel.DONE, 1, 0)
    assert desk.end == sum(map(len, records))
    end = len(records[0]) - (property_crc.SIZE if crc else 0)
    assert sequence.decode(desk.bytes[end - sequence.SIZE : end].tobytes()) == PLACE
    assert [answer.places for answer in desk.told()] == [[(FIRST, BASE)]]


def test_the_judgement_is_for_one_request(desk):
    desk.offer((QUEUES[0], batch(2)))
    desk.offer((QUEUES[0], batch(2, PLACE._replace(number=100))))
    desk.state.judged = 1
    assert (desk.serve(), desk.served) == (kernel.ROW, 1)
    assert desk.status(1) == RequestStatus.SEQUENCED


def test_requests_of_others_are_not_judged(desk):
    desk.offer((QUEUES[0], [plain(), plain(body=sequence.encode(PLACE)), plain(b"", sequence.encode(PLACE))]))
    desk.offer((QUEUES[0], [plain(b"", sequence.encode(PLACE)[:-1] + b"x")]))
    assert (desk.serve(), desk.served) == (kernel.DONE, 2)


def test_a_body_that_ends_like_a_place_is_none(desk):
    """Without properties it would stand where a place does, but for the lengths behind it."""
    for more in range(-8, 40):
        desk.offer((QUEUES[0], [plain(b"", b"y" * 60 + sequence.encode(PLACE) + b"z" * max(0, more))]))
    assert (desk.serve(), desk.served) == (kernel.DONE, 48)


@pytest.mark.parametrize(
    ("records", "rule", "record"),
    [
        ([*batch(2), *batch(1, PLACE._replace(number=101))], Rule.SEQUENCE_ORDER, 2),
        ([*batch(2), *batch(1)], Rule.SEQUENCE_ORDER, 2),
        ([*batch(2), *batch(1, Place(4712, PLACE.epoch, 100))], Rule.SEQUENCE_ORDER, 2),
        ([*batch(2), *batch(1, Place(4711, 7, 100))], Rule.SEQUENCE_ORDER, 2),
        ([*batch(2), plain()], Rule.SEQUENCE_MISPLACED, 2),
        ([batch(1)[0].replace(b"98\x02", b"9x\x02"), *batch(1)], Rule.SEQUENCE_ORDER, 0),
        ([plain(b"__PSEQ__\x01x\x02" + sequence.encode(PLACE))], Rule.SEQUENCE_MISPLACED, 0),
    ],
    ids=["a gap", "the same ones again", "another producer", "another epoch", "none", "no digit", "two of that name"],
)
def test_a_batch_whose_places_are_not_in_a_row_is_refused_whole(desk, records, rule, record):
    desk.offer((QUEUES[0], records))
    desk.state.judged = 1
    assert (desk.serve(), desk.status(0)) == (kernel.ROW, RequestStatus.BROKEN)
    assert (Rule(desk.rows[0]["rule"]), desk.rows[0]["record"], desk.end) == (rule, record, 0)
    assert not desk.bytes.any()


@pytest.mark.parametrize("misplaced", [batch(1)[0], plain(b"__PSEQ__\x01x\x02A\x01b\x02")], ids=["whole", "a name"])
def test_a_place_behind_a_record_without_one_is_refused(desk, misplaced):
    desk.offer((QUEUES[0], [plain(), misplaced]))
    assert (desk.serve(), desk.status(0)) == (kernel.ROW, RequestStatus.BROKEN)
    assert (Rule(desk.rows[0]["rule"]), desk.rows[0]["record"]) == (Rule.SEQUENCE_MISPLACED, 1)


def test_what_the_node_itself_delivers_is_not_judged(desk):
    desk.offer((QUEUES[0], batch(1)))
    desk.queues.allow(TOPIC, QUEUE_ID, 0, Sender.NODE)
    desk.rows[0]["sender"] = Sender.NODE
    assert (desk.serve(), desk.served) == (kernel.DONE, 1)
