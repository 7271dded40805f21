"""The blank at the end of a segment."""

import pytest

from towline.format.record import blank


def test_the_golden_blank_names_the_bytes_that_are_left():
    assert blank.encode(1000) == bytes.fromhex("000003e8cbd43194")


class TestFits:
    """A 4096-byte segment with 3864 bytes written: 232 are left."""

    def test_a_record_fits_when_a_blank_fits_behind_it(self):
        assert blank.fits(224, 4096 - 3864)

    def test_a_record_that_leaves_less_than_a_blank_does_not_fit(self):
        assert not blank.fits(225, 4096 - 3864)
        assert not blank.fits(237, 4096 - 3864)
        assert blank.encode(4096 - 3864) == bytes.fromhex("000000e8cbd43194")


def test_a_blank_is_never_written_where_it_does_not_fit():
    with pytest.raises(AssertionError, match="7 are left"):
        blank.encode(7)
