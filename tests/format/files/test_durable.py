"""The durable-offset state file."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from towline.errors import MalformedFile
from towline.format.files import durable
from towline.format.files.durable import Durable

OFFSET = st.integers(0, 2**63 - 1)
STATE = st.builds(
    Durable, flushed=OFFSET, segment_base=OFFSET, queues_durable=OFFSET, log_min=OFFSET, sync_failed=st.booleans()
)


@given(STATE)
def test_the_state_reads_back_as_it_was_written(state):
    assert durable.decode(durable.encode(state), "durable") == state


@given(STATE, st.integers(0, durable.SIZE * 8 - 1))
def test_one_flipped_bit_is_always_noticed(state, bit):
    damaged = bytearray(durable.encode(state))
    damaged[bit // 8] ^= 1 << bit % 8
    with pytest.raises(MalformedFile):
        durable.decode(bytes(damaged), "durable")


def test_the_bytes_of_a_state_are_pinned_because_a_change_needs_a_new_version():
    state = Durable(flushed=4260, segment_base=4096, queues_durable=4000, log_min=256, sync_failed=True)
    assert durable.encode(state).hex(" ", -8) == (
        "544f574c44555241 0000000100000001 00000000000010a4 0000000000001000 0000000000000fa0 0000000000000100 374a1b97"
    )


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda data: data[:-1], "has 52 bytes, this one has 51"),
        (lambda data: data + b"\x00", "this one has 53"),
        (lambda data: bytes(durable.SIZE), "begins with 0000000000000000"),
        (lambda data: data[:8] + b"\x00\x00\x00\x02" + data[12:], "version 2, this program reads version 1"),
        (lambda data: data[:-1] + bytes([data[-1] ^ 1]), "CRC differs"),
    ],
    ids=["too short", "too long", "zeros", "other version", "other CRC"],
)
def test_a_file_that_is_not_ours_is_refused_with_its_path_and_what_is_wrong(damage, said):
    with pytest.raises(MalformedFile, match=said) as caught:
        durable.decode(damage(durable.encode(Durable(flushed=1))), "/store/durable")
    assert caught.value.path == "/store/durable"
