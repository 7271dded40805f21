"""The short way of a start: what a node left is checked at the newest record, and given up where it misfits."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.log.stores import QUEUE_FILE, SEGMENT, SETTINGS, StoreMaker, contents
from towline.format.files.checkpoint import CHECK_AT, Checkpoint, encode
from towline.log.errors import DerivedFileSize
from towline.log.files.segment_files import segment_name
from towline.log.recovery import resume
from towline.log.recovery.recovery import Recovered, recover
from towline.log.recovery.shutdown_snapshot import Known, KnownQueue
from towline.log.state.checkpoint_file import CheckpointFile

COUNT = 300  # records of 507 bytes: two full segments and a third


@pytest.fixture
def maker(tmp_path: Path) -> StoreMaker:
    """A killed node's store: flushed up to record 150, queues synced up to record 100, dispatched up to 290."""
    maker = StoreMaker(tmp_path)
    maker.fill(COUNT)
    maker.dispatch(maker.records[290].at)
    maker.durable(maker.records[150].at, queues=maker.records[100].at)
    return maker


def known_of(maker: StoreMaker, *, dispatched: int = 290) -> Known:
    at = maker.records[dispatched].at
    queues: dict[tuple[str, int], KnownQueue] = {}
    for stored in maker.records[:dispatched]:
        name = stored.topic, stored.queue_id
        queues[name] = KnownQueue(*name, 0, stored.queue_offset + 1, stored.end)
    return Known(appended=maker.end, dispatched=at, indexed=at, clean=False, queues=tuple(queues.values()))


def resumed(maker: StoreMaker, known: Known) -> Recovered:
    return recover(maker.store, SETTINGS, known)


class TestWhatFits:
    def test_is_taken_over_and_nothing_is_changed(self, maker: StoreMaker) -> None:
        known, before = known_of(maker), contents(maker.store)
        recovered = resumed(maker, known)
        assert recovered.resumed
        assert contents(maker.store) == before
        assert (recovered.end, recovered.dispatched, recovered.indexed) == (maker.end, known.dispatched, known.indexed)
        assert recovered.durable.flushed == maker.records[150].at
        assert recovered.durable.queues_durable == maker.records[100].at
        assert recovered.last_store_timestamp == maker.records[-1].timestamp
        assert [queue.physical_end for queue in recovered.queues] == [queue.physical_end for queue in known.queues]

    def test_the_rest_of_the_active_segment_is_reserved_and_segments_ahead_stay(self, maker: StoreMaker) -> None:
        maker.write(3 * SEGMENT, b"\0")
        recovered = resumed(maker, known_of(maker))
        assert recovered.resumed
        assert maker.path(2 * SEGMENT).stat().st_blocks * 512 >= SEGMENT
        assert recovered.allocated == 4 * SEGMENT
        assert recovered.active_base == 2 * SEGMENT

    def test_a_segment_ahead_that_is_sparse_is_reserved_before_anybody_appends_to_it(self, maker: StoreMaker) -> None:
        maker.write(3 * SEGMENT, b"")
        assert maker.path(3 * SEGMENT).stat().st_blocks == 0
        recovered = resumed(maker, known_of(maker))
        assert recovered.resumed
        assert maker.path(3 * SEGMENT).stat().st_blocks * 512 >= SEGMENT

    def test_what_was_not_synced_is_walked_only_as_far_as_it_is_near(
        self, maker: StoreMaker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(resume, "UNSYNCED", 40 * len(maker.records[0].data))
        a_flipped_bit_in_what_was_not_synced(maker, known_of(maker))
        assert resumed(maker, known_of(maker)).resumed

    def test_a_durable_offset_inside_a_record_as_on_a_slave_is_no_obstacle(self, maker: StoreMaker) -> None:
        maker.durable(maker.records[150].at + 100, queues=maker.records[100].at)
        assert resumed(maker, known_of(maker)).resumed

    def test_a_request_whose_first_word_was_stored_but_not_published_belongs_to_the_log(
        self, maker: StoreMaker
    ) -> None:
        recovered = resumed(maker, replace(known_of(maker), appended=maker.records[298].at))
        assert recovered.resumed
        assert recovered.end == maker.end

    def test_a_clean_store_needs_no_word_of_its_segments_before_the_newest_record(self, maker: StoreMaker) -> None:
        maker.dispatch(maker.end)
        maker.durable(maker.end, queues=maker.end)
        maker.write(maker.records[290].at, b"\xff" * 100)  # damage that is not looked for here: `store verify` does
        known = replace(known_of(maker, dispatched=299), dispatched=maker.end, indexed=maker.end, clean=True)
        newest = maker.records[-1]
        last = KnownQueue(newest.topic, newest.queue_id, 0, newest.queue_offset + 1, newest.end)
        queues = [queue for queue in known.queues if (queue.topic, queue.queue_id) != (newest.topic, newest.queue_id)]
        recovered = resumed(maker, replace(known, queues=(*queues, last)))
        assert recovered.resumed
        assert recovered.end == maker.end


# Each changes the store, or what is known, so that they do not fit any more.


def bytes_behind_the_end(maker: StoreMaker, known: Known) -> Known:
    maker.write(maker.end + 8, b"half a request")
    return known


def bytes_in_the_next_segment(maker: StoreMaker, known: Known) -> Known:
    maker.write(3 * SEGMENT + 8, b"half a request")
    return known


def a_lost_page(maker: StoreMaker, known: Known) -> Known:
    maker.write(maker.records[295].at, bytes(600))
    return known


def a_flipped_bit_behind_the_newest_record(maker: StoreMaker, known: Known) -> Known:
    stored = maker.records[295]
    maker.write(stored.at + 300, bytes([stored.data[300] ^ 4]))
    return known


def a_flipped_bit_of_the_newest_dispatched_record(maker: StoreMaker, known: Known) -> Known:
    stored = maker.records[289]
    maker.write(stored.at + 300, bytes([stored.data[300] ^ 4]))
    return known


def a_flipped_bit_in_what_was_not_synced(maker: StoreMaker, known: Known) -> Known:
    stored = maker.records[200]
    maker.write(stored.at + 300, bytes([stored.data[300] ^ 4]))
    return known


def a_page_that_was_not_synced_is_lost(maker: StoreMaker, known: Known) -> Known:
    maker.write(maker.records[151].at, bytes(4096))
    return known


def more_was_synced_than_published(maker: StoreMaker, known: Known) -> Known:
    """As by a node with another runtime directory."""
    maker.durable(maker.end, queues=maker.records[100].at)
    return replace(known, appended=maker.records[295].at)


def queues_synced_further_than_dispatched(maker: StoreMaker, known: Known) -> Known:
    maker.durable(maker.end, queues=maker.records[295].at)
    return known


def a_file_in_the_middle_of_a_queue_is_gone(maker: StoreMaker, known: Known) -> Known:
    (maker.store.consumequeue / "TopicA" / "1" / segment_name(2 * QUEUE_FILE)).unlink()
    return known


def an_index_that_was_off(maker: StoreMaker, known: Known) -> Known:
    """INDEXED moved all the same."""
    return replace(known, indexing=False)


def an_older_copy_of_the_log(maker: StoreMaker, known: Known) -> Known:
    maker.zero_from(maker.records[250].at)
    return known


def an_older_copy_of_the_queues(maker: StoreMaker, known: Known) -> Known:
    for path in maker.store.consumequeue.rglob("0*"):
        if path.is_file():
            path.write_bytes(bytes(path.stat().st_size))
    return known


def more_than_a_request_behind_what_was_published(maker: StoreMaker, known: Known) -> Known:
    return replace(known, appended=maker.end - 100 * SEGMENT * SEGMENT)


def less_than_was_published(maker: StoreMaker, known: Known) -> Known:
    return replace(known, appended=maker.end + 500)


def clean_but_not_synced(maker: StoreMaker, known: Known) -> Known:
    return replace(known, clean=True)


def no_queue(maker: StoreMaker, known: Known) -> Known:
    return replace(known, queues=())


def no_durable_offset(maker: StoreMaker, known: Known) -> Known:
    maker.store.durable.unlink()
    return known


@pytest.mark.parametrize(
    "change",
    [
        bytes_behind_the_end,
        bytes_in_the_next_segment,
        a_lost_page,
        a_flipped_bit_behind_the_newest_record,
        a_flipped_bit_of_the_newest_dispatched_record,
        a_flipped_bit_in_what_was_not_synced,
        a_page_that_was_not_synced_is_lost,
        more_was_synced_than_published,
        queues_synced_further_than_dispatched,
        a_file_in_the_middle_of_a_queue_is_gone,
        an_index_that_was_off,
        an_older_copy_of_the_log,
        an_older_copy_of_the_queues,
        more_than_a_request_behind_what_was_published,
        less_than_was_published,
        clean_but_not_synced,
        no_queue,
        no_durable_offset,
    ],
    ids=lambda change: change.__name__,
)
def test_what_does_not_fit_is_given_up_for_the_whole_recovery(
    maker: StoreMaker, tmp_path: Path, change: Callable[[StoreMaker, Known], Known]
) -> None:
    known = change(maker, known_of(maker))
    recovered = recover(maker.store, SETTINGS, known)
    assert not recovered.resumed
    assert recovered.notes[0].startswith("everything is looked at, because ")
    assert recovered.durable.flushed == recovered.end
    again = maker.recover()
    assert (again.end, again.dispatched, again.cut_bytes) == (recovered.end, recovered.dispatched, 0)


@pytest.mark.parametrize("sizes", [{"index_slots": 65}, {"index_indexes": 41}], ids=str)
def test_other_numbers_of_an_index_file_are_refused_by_name(maker: StoreMaker, sizes: dict[str, int]) -> None:
    with pytest.raises(DerivedFileSize, match="index/"):
        recover(maker.store, replace(SETTINGS, **sizes), known_of(maker))


def test_a_store_on_which_a_real_broker_ran_meanwhile_is_looked_at_as_a_whole(maker: StoreMaker) -> None:
    """It writes the fields of the checkpoint, and knows nothing of the check."""
    known = known_of(maker)
    CheckpointFile(maker.root).save(Checkpoint(physic_msg_timestamp=1))
    content = maker.store.checkpoint.read_bytes()
    maker.store.checkpoint.write_bytes(encode(Checkpoint(physic_msg_timestamp=2))[:CHECK_AT] + content[CHECK_AT:])
    recovered = recover(maker.store, SETTINGS, known)
    assert not recovered.resumed
    assert "real broker" in recovered.notes[0]
    assert CheckpointFile(maker.root).load() is not None
