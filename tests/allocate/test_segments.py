"""What allocate does first, and what it does after a failure."""

import pytest

from towline.allocate.segments import RequestKind, RequestTable, SegmentRequest

SIZE = 1024


def segment(base: int, size: int = SIZE) -> SegmentRequest:
    return SegmentRequest(RequestKind.SEGMENT, base, size)


def warm(base: int, size: int = SIZE) -> SegmentRequest:
    return SegmentRequest(RequestKind.WARM_UP, base, size)


def table_of(*requests: SegmentRequest) -> RequestTable:
    table = RequestTable()
    for request in requests:
        table.add(request)
    return table


def order(table: RequestTable) -> list[SegmentRequest]:
    """In which order they are done."""
    done = []
    while (request := table.first(0)) is not None:
        table.done(request)
        done.append(request)
    return done


@pytest.mark.parametrize(
    ("asked", "done"),
    [
        pytest.param([segment(3), segment(1), segment(2)], [segment(1), segment(2), segment(3)], id="lower offset"),
        pytest.param(
            [segment(1, 10), segment(2, 20)], [segment(2, 20), segment(1, 10)], id="larger, whatever its offset"
        ),
        pytest.param([warm(0), segment(5)], [segment(5), warm(0)], id="what is missing before what is cold"),
        pytest.param([warm(0, 99), segment(5, 1)], [segment(5, 1), warm(0, 99)], id="kind before size"),
        pytest.param([warm(7), warm(6)], [warm(6), warm(7)], id="the colder one the writer reaches first"),
    ],
)
def test_the_most_urgent_request_is_done_first(asked, done):
    assert order(table_of(*asked)) == done


def test_a_request_stands_in_the_table_once():
    table = table_of(segment(0), segment(0))
    assert len(table) == 1
    table.done(segment(0))
    assert segment(0) not in table
    assert table.first(0) is None


def test_asking_again_does_not_end_a_rest():
    table = table_of(segment(0))
    table.failed(segment(0), again_ms=100)
    table.add(segment(0))
    assert table.first(99) is None
    assert table.first(100) == segment(0)


def test_others_go_on_while_a_failed_one_rests():
    table = table_of(segment(0), segment(1), warm(2))
    table.failed(segment(0), again_ms=100)
    assert [table.first(50), table.first(100)] == [segment(1), segment(0)]


def test_it_fails_from_a_failed_segment_until_one_is_made():
    table = table_of(segment(0), segment(1), warm(2))
    assert not table.failing
    table.failed(segment(0), again_ms=100)
    assert table.failing
    table.done(warm(2))
    assert table.failing
    table.done(segment(1))
    assert not table.failing


def test_a_warm_up_that_failed_and_a_request_put_off_are_no_failing():
    table = table_of(segment(0), warm(1))
    table.failed(warm(1), again_ms=5)
    table.postpone(segment(0), again_ms=7)
    assert not table.failing
    assert [table.first(now) for now in (4, 5, 7)] == [None, warm(1), segment(0)]


def test_what_nobody_wants_any_more_is_forgotten_and_stays_so():
    table = table_of(segment(0), segment(1), warm(0))
    table.drop(lambda request: request.base < 1)
    assert order(table) == [segment(1)]
    table.failed(segment(0), again_ms=0)
    table.postpone(segment(0), again_ms=0)
    assert len(table) == 0
