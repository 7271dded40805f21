"""Where recovery of a real broker's store begins: the segment that spec 8.4 chooses by the checkpoint."""

from pathlib import Path

import pytest

from tests.log.stores import NOON, SEGMENT, StoreMaker
from towline.format.files.checkpoint import SAFETY_MS, Checkpoint
from towline.format.record import record
from towline.log.state.checkpoint_file import CheckpointFile


@pytest.fixture
def maker(tmp_path: Path) -> StoreMaker:
    """Three segments, closed cleanly by a broker that knows no durable offset; record n was stored at NOON + n."""
    maker = StoreMaker(tmp_path)
    maker.fill(300)
    maker.dispatch(maker.end)
    (maker.root / "abort").unlink()
    return maker


def first_of(maker: StoreMaker, segment: int) -> int:
    """The number of the first record of a segment."""
    return next(number for number, stored in enumerate(maker.records) if stored.at >= segment * SEGMENT)


def checkpoint(maker: StoreMaker, physic: int, logics: int | None = None, index: int = 0) -> None:
    """Flushed up to records of these numbers."""
    times = [NOON + SAFETY_MS + number for number in (physic, physic if logics is None else logics)]
    CheckpointFile(maker.root).save(Checkpoint(*times, index_msg_timestamp=NOON + index if index else 0))


def begins_at(maker: StoreMaker) -> int:
    """Queues before it are believed, and reput goes on there."""
    return maker.recover().dispatched // SEGMENT


class TestTheStartFile:
    def test_is_the_last_whose_first_record_was_flushed_three_seconds_before(self, maker: StoreMaker) -> None:
        checkpoint(maker, first_of(maker, 1))
        assert begins_at(maker) == 1

    def test_is_the_one_before_when_that_record_is_a_millisecond_too_young(self, maker: StoreMaker) -> None:
        checkpoint(maker, first_of(maker, 1) - 1)
        assert begins_at(maker) == 0

    def test_is_the_last_segment_when_everything_was_flushed(self, maker: StoreMaker) -> None:
        checkpoint(maker, 299)
        assert begins_at(maker) == 2

    def test_follows_the_earlier_of_log_and_queues(self, maker: StoreMaker) -> None:
        checkpoint(maker, 299, logics=first_of(maker, 1))
        assert begins_at(maker) == 1

    def test_does_not_go_by_the_index_after_a_clean_stop(self, maker: StoreMaker) -> None:
        checkpoint(maker, 299, index=1)
        assert begins_at(maker) == 2

    def test_goes_by_the_index_as_well_after_a_crash(self, maker: StoreMaker) -> None:
        (maker.root / "abort").touch()
        checkpoint(maker, 299, index=first_of(maker, 1))
        assert begins_at(maker) == 1

    def test_is_the_first_without_a_checkpoint(self, maker: StoreMaker) -> None:
        assert begins_at(maker) == 0

    def test_is_the_first_when_none_is_old_enough(self, maker: StoreMaker) -> None:
        CheckpointFile(maker.root).save(Checkpoint(physic_msg_timestamp=1, logics_msg_timestamp=1))
        assert begins_at(maker) == 0

    def test_is_never_one_whose_first_record_has_no_time(self, maker: StoreMaker) -> None:
        (maker.root / "abort").touch()  # of a closed store such a record is damage
        checkpoint(maker, 299, index=299)
        maker.write(2 * SEGMENT + record.LAYOUT.offset["store_timestamp"], bytes(8))
        recovered = maker.recover()
        assert recovered.dispatched // SEGMENT == 1
        assert recovered.end == 2 * SEGMENT  # a record without a time ends the log

    def test_is_never_one_whose_first_record_is_damaged(self, maker: StoreMaker) -> None:
        (maker.root / "abort").touch()  # of a closed store such a record is damage
        checkpoint(maker, 299, index=299)
        maker.write(2 * SEGMENT + 200, b"\xff")
        recovered = maker.recover()
        assert recovered.dispatched // SEGMENT == 1
        assert (recovered.end, set(maker.kept())) == (2 * SEGMENT, {2 * SEGMENT})

    @pytest.mark.parametrize("crashed", [False, True])
    def test_loses_nothing_whatever_it_is(self, maker: StoreMaker, crashed: bool) -> None:
        if crashed:
            (maker.root / "abort").touch()
        for number in (0, 100, 200, 299):
            checkpoint(maker, number, index=number)
            (maker.root / "durable").unlink(missing_ok=True)
            recovered = maker.recover()
            assert recovered.end == maker.end
            assert recovered.dispatched <= maker.records[number].at + SEGMENT
            maker.dispatch(maker.end)
