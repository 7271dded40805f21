import pytest

from towline.errors import MalformedFile
from towline.format.files import durable_slots
from towline.format.files.durable import Durable
from towline.format.files.durable_slots import OLD_SIZE, SIZE, SLOT_SIZE, place
from towline.limits import PAGE

OLD, NEW = Durable(flushed=4260), Durable(flushed=8192, segment_base=4096, queues_durable=100, sync_failed=True)


def file_of(*slots: tuple[int, Durable]) -> bytearray:
    data = bytearray(SIZE)
    for sequence, state in slots:
        data[place(sequence) : place(sequence) + SLOT_SIZE] = durable_slots.encode(sequence, state)
    return data


def test_the_diagram_in_the_docstring_is_the_layout() -> None:
    lines = (durable_slots.__doc__ or "").splitlines()
    drawn = [line.split() for line in lines if line[:6].strip().isdigit()]
    assert drawn == [row.split() for row in durable_slots.LAYOUT.rows()]


def old_file_of(*slots: tuple[int, Durable]) -> bytes:
    """As older versions wrote it: the same slots side by side in one sector of 4 KiB."""
    data = bytearray(OLD_SIZE)
    for sequence, state in slots:
        at = sequence % 2 * 512
        data[at : at + 512] = durable_slots.encode(sequence, state)[:512]
    return bytes(data)


def test_no_sector_of_any_disk_holds_both_slots() -> None:
    data = bytes(file_of((6, OLD), (7, NEW)))
    for at in range(0, SIZE, PAGE):
        lost = data[:at] + bytes(PAGE) + data[at + PAGE :]
        assert durable_slots.decode(lost, "durable") in ((6, OLD), (7, NEW))


def test_an_older_file_is_read_and_judged_by_its_own_places() -> None:
    data = old_file_of((6, OLD), (7, NEW))
    assert len(data) == 1024
    assert durable_slots.is_old(data)
    assert durable_slots.decode(data, "durable") == (7, NEW)
    assert durable_slots.torn(data) == []
    flipped = bytearray(data)
    flipped[512 + 20] ^= 0x01
    assert durable_slots.decode(bytes(flipped), "durable") == (6, OLD)
    assert durable_slots.torn(bytes(flipped)) == [(512, 1024)]
    assert not durable_slots.is_old(durable_slots.first(OLD))


def test_a_new_file_holds_its_first_state() -> None:
    assert durable_slots.decode(durable_slots.first(OLD), "durable") == (1, OLD)


def test_successive_slots_stand_side_by_side() -> None:
    assert {place(sequence) for sequence in (7, 8)} == {0, SLOT_SIZE}
    assert place(7) == place(9)


@pytest.mark.parametrize("sequence", [1, 2, 255, 2**40])
def test_the_greater_sequence_holds(sequence: int) -> None:
    assert durable_slots.decode(bytes(file_of((sequence, OLD), (sequence + 1, NEW))), "durable") == (sequence + 1, NEW)


@pytest.mark.parametrize("at", range(durable_slots.LAYOUT.size))
def test_any_flipped_byte_in_the_newest_slot_leaves_the_older(at: int) -> None:
    data = file_of((6, OLD), (7, NEW))
    data[place(7) + at] ^= 0x01
    assert durable_slots.decode(bytes(data), "durable") == (6, OLD)


def test_two_damaged_slots_are_refused_with_the_path() -> None:
    with pytest.raises(MalformedFile, match="durable: neither of its two slots is valid"):
        durable_slots.decode(bytes(SIZE), "durable")


@pytest.mark.parametrize("size", [0, OLD_SIZE - 1, OLD_SIZE + 1, SIZE - 1, SIZE + 1])
def test_another_size_is_refused(size: int) -> None:
    with pytest.raises(MalformedFile, match=f"this one has {size}"):
        durable_slots.decode(bytes(size), "durable")
