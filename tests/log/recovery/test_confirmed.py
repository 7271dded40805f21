"""What a recovery says was confirmed: the greatest mark that is left, within the log."""

from pathlib import Path

import pytest

from tests.log.stores import SETTINGS, StoreMaker
from towline.format.files.checkpoint import Checkpoint
from towline.format.files.checkpoint import encode as encode_checkpoint
from towline.log.recovery import recovery
from towline.log.state.checkpoint_file import CheckpointFile


@pytest.fixture
def maker(tmp_path: Path) -> StoreMaker:
    """A store killed by a power cut: all is durable up to record 150, the rest may be anything."""
    maker = StoreMaker(tmp_path)
    maker.fill(300)
    maker.dispatch(maker.end)
    maker.durable(maker.records[150].at, queues=maker.records[150].at)
    return maker


def confirmed_by_checkpoint(maker: StoreMaker, number: int) -> int:
    CheckpointFile(maker.root).save(Checkpoint(confirm_phy_offset=maker.records[number].at))
    return maker.records[number].at


def test_what_was_confirmed_stays_so_though_queues_are_derived_again_from_further_back(maker):
    maker.durable(maker.end, queues=maker.records[150].at)
    confirmed = confirmed_by_checkpoint(maker, 200)
    for _ in range(2):
        recovered = maker.recover()
        assert (recovered.dispatched, recovered.confirmed) == (maker.records[150].at, confirmed)
        saved = CheckpointFile(maker.root).load()
        assert saved is not None
        assert saved.confirm_phy_offset == confirmed


def test_what_queues_held_stays_confirmed_though_they_are_gone(maker):
    maker.durable(maker.end, queues=maker.records[200].at)
    for path in sorted(maker.store.consumequeue.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    recovered = maker.recover()
    assert (recovered.dispatched, recovered.confirmed) == (0, maker.records[200].at)


def test_nothing_is_confirmed_behind_the_end_of_the_log(maker):
    confirmed_by_checkpoint(maker, 299)
    maker.zero_from(maker.records[200].at)
    recovered = maker.recover()
    assert recovered.confirmed == recovered.end == maker.records[200].at


def test_a_brokers_checkpoint_says_nothing_of_what_was_confirmed(maker):
    """It writes the start of a record there, and what it had shown is not ours to tell."""
    maker.durable(maker.end, queues=maker.records[150].at)
    maker.store.checkpoint.write_bytes(encode_checkpoint(Checkpoint(confirm_phy_offset=maker.records[200].at)))
    assert maker.recover().confirmed == maker.records[150].at


def test_of_a_master_that_confirmed_by_itself_all_that_is_found_may_have_been_shown(maker):
    confirmed_by_checkpoint(maker, 200)
    assert recovery.recover(maker.store, SETTINGS, sole=True).confirmed == maker.end
