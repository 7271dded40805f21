"""The master's side of a greeting: where a slave may begin in a log of which the beginning was cleaned away."""

import contextlib
import zlib
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.log.stores import SEGMENT, StoreMaker
from towline.errors import LinkRefused
from towline.format.files.epochs import Epoch
from towline.log.commitlog.commit_log import CommitLogReader
from towline.log.state.epoch_file import EpochFile
from towline.replication.handshake import LogRange, SenderHandshake, SlaveGreeting
from towline.runtime.positions import Position

LOW = 5 * SEGMENT
LISTS = (Epoch(256, 0), Epoch(513, LOW + 20_000), Epoch(770, LOW + 90_000))
HONEST = {
    "node": 1,
    "instance": 7,
    "epochs": [],
    "end": 0,
    "empty": False,
    "segment_size": SEGMENT,
    "promised": 0,
    "before": None,
    "from_last": False,
}


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    maker = StoreMaker(tmp_path_factory.mktemp("log"), base=LOW)
    maker.fill(300)
    EpochFile(maker.store).save(LISTS)
    return maker


@pytest.fixture(scope="module")
def handshake(log):
    known = {Position.EPOCH: 770, Position.LOG_MIN: LOW}
    own = SimpleNamespace(mapped_file_size_commit_log=SEGMENT, broker_id=0)
    node = SimpleNamespace(store=log.store, settings=own, positions=SimpleNamespace(get=known.__getitem__))
    return SenderHandshake(node, CommitLogReader(log.store.commitlog, SEGMENT))


def welcome(handshake, log, **facts):
    return handshake.welcome(SlaveGreeting.of(HONEST | facts), LogRange(LOW, log.end))


def listed(count):
    return [list(epoch) for epoch in LISTS[:count]]


@pytest.mark.parametrize("end", [LOW + 505, LOW + 19_999, LOW + SEGMENT - 3, LOW + SEGMENT, LOW + SEGMENT + 7])
def test_a_slave_in_the_middle_of_the_oldest_segment_goes_on_where_it_is(handshake, log, end):
    said = welcome(handshake, log, epochs=listed(1 if end < LISTS[1].start else 2), end=end)
    held = log.log_bytes()[end - LOW - said["tail_size"] : end - LOW]
    assert (said["start"], said["tail_crc"]) == (end, zlib.crc32(held))
    assert said["tail_size"] == (end - LOW - 1) % SEGMENT + 1


def test_at_the_very_beginning_nothing_stands_before_it(handshake, log):
    said = welcome(handshake, log, epochs=listed(1), end=LOW)
    assert (said["start"], said["tail_size"]) == (LOW, 0)


@pytest.mark.parametrize("epochs", [listed(1), [[5, 0]]], ids=["a common epoch", "none that is known"])
def test_a_slave_that_needs_what_was_deleted_is_told_so(handshake, log, epochs):
    with pytest.raises(LinkRefused, match="was deleted") as caught:
        welcome(handshake, log, epochs=epochs, end=LOW - 1)
    assert caught.value.code == "OFFSET"


def test_a_tail_that_goes_back_behind_the_deleted_part_cannot_be_put_right(handshake, log):
    with pytest.raises(LinkRefused, match="was deleted"):
        welcome(handshake, log, epochs=[[256, 0], [512, LOW - 100]], end=LOW + 5_000, before=300)
    assert welcome(handshake, log, epochs=[[256, 0], [512, LOW + 7]], end=LOW + 5_000)["start"] == LOW + 7


@pytest.mark.parametrize(
    ("facts", "start"),
    [
        pytest.param({}, LOW, id="an empty log"),
        pytest.param({"from_last": True}, LOW + 2 * SEGMENT, id="the last segment alone"),
        pytest.param({"end": LOW + SEGMENT}, LOW + SEGMENT, id="an empty log that begins further on"),
        pytest.param({"end": LOW - SEGMENT}, LOW, id="an empty log that begins before"),
    ],
)
def test_where_an_empty_log_begins(handshake, log, facts, start):
    assert welcome(handshake, log, empty=True, **facts)["start"] == start


def test_step_by_step_back_to_the_oldest_common_epoch(handshake, log):
    before = None
    for point in (log.end, LISTS[2].start, LISTS[1].start):
        said = welcome(handshake, log, epochs=listed(3), end=log.end, before=before)
        assert said["start"] == point
        before = said["common"]
    with pytest.raises(LinkRefused, match="below 256, from where on the bytes differ"):
        welcome(handshake, log, epochs=listed(3), end=log.end, before=before)


VALUES = st.none() | st.booleans() | st.integers() | st.text(max_size=3) | st.lists(st.integers(), max_size=3)


@given(st.dictionaries(st.sampled_from(sorted(HONEST)), VALUES | st.lists(st.lists(st.integers()), max_size=3)))
@settings(max_examples=200, deadline=None)
def test_a_greeting_is_looked_at_or_refused_whatever_stands_in_it(facts):
    with contextlib.suppress(LinkRefused):
        greeted = SlaveGreeting.of(HONEST | facts)
        assert 0 <= greeted.node <= 62
        assert all(number >= 0 for number in (greeted.end, greeted.promised, greeted.segment_size))


class TestWhereAnEmptyLogBegins:
    def first(self, handshake, log, **facts):
        return welcome(handshake, log, empty=True, **facts)["start"]

    @pytest.mark.parametrize(
        ("seed", "segment"),
        [("oldest", 0), ("last", 2), (f"offset:{LOW + SEGMENT + 5}", 1), (f"offset:{LOW + SEGMENT}", 1)],
    )
    def test_as_the_slave_says(self, handshake, log, seed, segment):
        assert self.first(handshake, log, seed=seed) == LOW + segment * SEGMENT

    def test_what_was_deleted_cannot_be_begun_with(self, handshake, log):
        assert self.first(handshake, log, seed="offset:7") == LOW
        assert self.first(handshake, log, seed="time:0") == LOW

    @pytest.mark.parametrize("number", [0, 1, 130, 131, 140, 200, 299])
    def test_all_messages_from_a_time_on_are_there_and_little_else(self, handshake, log, number):
        wanted = log.records[number]
        start = self.first(handshake, log, seed=f"time:{wanted.timestamp}")
        assert start <= wanted.at < start + 2 * SEGMENT
        assert start == wanted.at - wanted.at % SEGMENT or wanted.at % SEGMENT == 0

    def test_a_time_that_has_not_come_is_the_newest_segment(self, handshake, log):
        assert self.first(handshake, log, seed=f"time:{1 << 60}") == log.end - log.end % SEGMENT

    def test_an_offset_behind_the_end_is_refused(self, handshake, log):
        with pytest.raises(LinkRefused, match="ours ends at"):
            self.first(handshake, log, seed=f"offset:{log.end + 1}")

    @pytest.mark.parametrize(
        "seed", ["newest", "offset", "offset:-1", "offset:x", "time:", "oldest:3", f"time:{1 << 63}"]
    )
    def test_what_is_no_place_to_begin_is_refused(self, handshake, log, seed):
        with pytest.raises(LinkRefused, match=r"is no|is none of"):
            self.first(handshake, log, seed=seed)
