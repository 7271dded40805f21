"""The checkpoint file."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from towline.errors import MalformedFile
from towline.format.files import checkpoint
from towline.format.files.checkpoint import Checkpoint

GOLDEN = Checkpoint(
    physic_msg_timestamp=1700000000123,
    logics_msg_timestamp=1700000000456,
    index_msg_timestamp=1700000000000,
    master_flushed_offset=0,
    confirm_phy_offset=4260,
    logics_physical_offset=4259,
)
INT64 = st.integers(-(2**63), 2**63 - 1)


def test_the_golden_checkpoint():
    encoded = checkpoint.encode(GOLDEN)
    assert encoded[:48] == bytes.fromhex(
        "0000018bcfe5687b 0000018bcfe569c8 0000018bcfe56800 0000000000000000 00000000000010a4 00000000000010a3"
    )
    assert encoded[48:] == bytes(4096 - 48)


def test_recovery_begins_three_seconds_before_the_earlier_of_log_and_queues():
    assert GOLDEN.min_timestamp == 1699999997123
    assert GOLDEN.min_timestamp_index == 1699999997123
    assert Checkpoint(5000, 9000, 1500).min_timestamp_index == 1500


def test_an_empty_checkpoint_begins_at_time_zero():
    assert Checkpoint().min_timestamp == 0
    assert Checkpoint(1000, 1000).min_timestamp == 0


@given(st.builds(Checkpoint, INT64, INT64, INT64, INT64, INT64, INT64))
def test_a_checkpoint_reads_back_as_it_was_written(content):
    assert checkpoint.decode(checkpoint.encode(content), "checkpoint") == content


@pytest.mark.parametrize("at", [0, 39, 47, 4088, 4095])
def test_a_sealed_checkpoint_with_a_flipped_bit_is_refused(at):
    sealed = bytearray(checkpoint.sealed(checkpoint.encode(GOLDEN)))
    assert checkpoint.decode(sealed, "checkpoint") == GOLDEN
    assert len(sealed) == 4096
    sealed[at] ^= 1
    with pytest.raises(MalformedFile, match="check"):
        checkpoint.decode(sealed, "checkpoint")


def test_a_checkpoint_that_ends_early_is_refused_with_its_path():
    with pytest.raises(MalformedFile, match=r"^/store/checkpoint: .*47"):
        checkpoint.decode(bytes(47), "/store/checkpoint")


def test_no_queue_is_called_dispatched_behind_what_is_on_the_disk():
    assert checkpoint.logics_physical_offset(0) == 0
    assert checkpoint.logics_physical_offset(4260) == 4259
