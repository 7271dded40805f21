"""Recovery of queues that were cut by their topic's retention: what the log lost, what it dispatches again, verify."""

from dataclasses import replace

import pytest

from tests.log.stores import QUEUE_FILE, SEGMENT, SETTINGS, StoreMaker
from towline.errors import MalformedFile
from towline.format.files.consume_queue import SIZE
from towline.log.files.config_file import ConfigFile
from towline.log.queues.consume_queue import ConsumeQueueFiles
from towline.log.recovery.offset_rollback import lower_minima
from towline.log.repair.verify import verify
from towline.log.state.queue_minima import NAME, QueueMinimum, minima_content, offsets_of, read_minima

PER_FILE = QUEUE_FILE // SIZE
COUNT = 3 * PER_FILE + 5
CUT = 2 * PER_FILE + 3
QUEUE = ("TopicA", 0)


@pytest.fixture
def maker(tmp_path):
    made = StoreMaker(tmp_path / "store")
    made.store.config.mkdir(parents=True, exist_ok=True)
    return made


def put(maker, count=COUNT, topic="TopicA"):
    return [maker.append(b"%d" % number, topic=topic).at for number in range(count)]


def cut(maker, offset, log_offset):
    """As reput leaves it: two generations of the file, and no file wholly below."""
    file = ConfigFile(maker.store.config / NAME)
    for _ in range(2):
        file.save(minima_content({QUEUE: QueueMinimum(offset, log_offset)}))
    files = ConsumeQueueFiles(maker.store.consumequeue, QUEUE_FILE, 4)
    files.delete_below(*QUEUE, offset)
    return files


def bounds(recovered, topic="TopicA"):
    return next(((row.min_offset, row.end_offset) for row in recovered.queues if row.topic == topic), None)


def lowered(maker, recovered):
    found = lower_minima(maker.store, recovered, SEGMENT)
    assert offsets_of(read_minima(maker.store)) == found
    assert ConfigFile(maker.store.config / NAME).backup.exists()
    return {queue_id: offset for (_, queue_id), offset in found.items()}


def test_a_start_finds_the_queue_as_it_was_left(maker):
    places = put(maker)
    maker.dispatch(maker.end)
    maker.durable(maker.end, maker.end)
    cut(maker, CUT, places[CUT])
    recovered = maker.recover()
    assert bounds(recovered) == (2 * PER_FILE, COUNT), "what its files have; the minimum is raised in the table of ends"
    assert lowered(maker, recovered) == {0: CUT}


def test_dispatching_that_begins_before_the_cut_begins_the_queue_anew(maker):
    """Its first files were removed, and what is left is of records that come again: it must not begin in the middle."""
    places = put(maker)
    maker.dispatch(maker.end)
    cut(maker, CUT, places[CUT])
    maker.durable(maker.end, places[3])
    recovered = maker.recover()
    assert recovered.dispatched == places[3]
    assert bounds(recovered) is None
    assert not (maker.store.consumequeue / "TopicA").exists()
    assert lowered(maker, recovered) == {0: CUT}


def test_dispatching_that_begins_in_what_is_left_keeps_it(maker):
    places = put(maker)
    maker.dispatch(maker.end)
    cut(maker, CUT, places[CUT])
    maker.durable(maker.end, places[CUT + 2])
    recovered = maker.recover()
    assert recovered.dispatched == places[CUT + 2]
    assert bounds(recovered) == (2 * PER_FILE, CUT + 2)


@pytest.mark.parametrize("left", [3, CUT - 1, PER_FILE])
def test_a_log_that_ends_before_what_was_cut_gives_its_numbers_again(maker, left):
    """As behind a truncation: the minimum becomes the number that the log goes on with."""
    places = put(maker)
    maker.dispatch(places[left])
    maker.durable(places[left], places[left])
    cut(maker, CUT, places[CUT])
    maker.zero_from(places[left])
    recovered = maker.recover()
    assert recovered.end == places[left]
    assert lowered(maker, recovered) == {0: left}
    assert read_minima(maker.store) == {QUEUE: QueueMinimum(left, places[left])}
    (maker.store.config / NAME).write_text("{")
    assert read_minima(maker.store) == {QUEUE: QueueMinimum(left, places[left])}, "the generation before says so too"


def test_of_a_queue_without_a_file_the_log_says_how_far_it_goes(maker):
    """A truncation may leave nothing of it, far behind what a start compares with the log."""
    places = put(maker)
    maker.dispatch(places[left := 7])
    maker.durable(places[left], places[left])
    cut(maker, CUT, places[CUT])
    maker.zero_from(places[left])
    recovered = replace(maker.recover(), queues=[])
    assert lowered(maker, recovered) == {0: left}


def test_what_reput_has_not_dispatched_yet_counts_as_held_by_the_log(maker):
    places = put(maker)
    maker.dispatch(places[2])
    maker.durable(places[20], places[2])
    cut(maker, CUT, places[CUT])
    maker.zero_from(places[20])
    recovered = maker.recover()
    assert (recovered.dispatched, recovered.end) == (places[2], places[20])
    assert lowered(maker, recovered) == {0: 20}


def test_what_the_log_no_longer_holds_is_forgotten(maker):
    put(maker, 5)
    for size in (SEGMENT - 4 * 1024, 8 * 1024):
        maker.append(b"x" * size, topic="TopicB")
    maker.dispatch(maker.end)
    maker.path(0).unlink()
    maker.durable(maker.end, maker.end, log_min=SEGMENT)
    cut(maker, 5, maker.records[4].end)
    assert lowered(maker, maker.recover()) == {}


def test_a_file_that_nobody_can_read_is_refused_by_name(maker):
    put(maker, 5)
    maker.dispatch(maker.end)
    maker.durable(maker.end, maker.end)
    (maker.store.config / NAME).write_text('{"minima":{"TopicA":3}}')
    with pytest.raises(MalformedFile, match="queueMinima"):
        lower_minima(maker.store, maker.recover(), SEGMENT)
    assert read_minima(maker.store) == {}


class TestVerify:
    def test_a_cut_queue_is_no_damage(self, maker):
        places = put(maker)
        maker.dispatch(maker.end)
        maker.durable(maker.end, maker.end)
        cut(maker, CUT, places[CUT])
        assert rules(maker) == set()

    def test_what_is_missing_behind_the_cut_is(self, maker):
        places = put(maker)
        maker.dispatch(maker.end)
        maker.durable(maker.end, maker.end)
        files = cut(maker, PER_FILE + 1, places[PER_FILE + 1])
        files.delete_below(*QUEUE, 2 * PER_FILE)
        assert rules(maker) == {"QUEUE_MISSING"}

    def test_without_the_file_so_is_what_was_cut(self, maker):
        places = put(maker)
        maker.dispatch(maker.end)
        maker.durable(maker.end, maker.end)
        cut(maker, CUT, places[CUT])
        for path in maker.store.config.iterdir():
            path.unlink()
        assert rules(maker) == {"QUEUE_MISSING"}


def rules(maker):
    """The rules that verify finds broken, but for what every store of this maker breaks."""
    found = {finding.rule for finding in verify(maker.store, SETTINGS).findings.rows}
    return found - {"CLOSED_UNCLEANLY", "NO_CHECKPOINT", "TOPIC_UNKNOWN"}
