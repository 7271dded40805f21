"""Layouts, and the diagrams that format modules show of them."""

import struct

import pytest

from towline.format.files import checkpoint, consume_queue, consume_queue_ext, durable, index_file
from towline.format.layout import Field, Layout
from towline.format.record import blank, message_id, record

MODULES = [blank, checkpoint, consume_queue, consume_queue_ext, durable, index_file, message_id, record]


def test_offsets_are_the_sums_of_the_sizes_before():
    layout = Layout(Field("a", "H", ""), Field("b", "q", ""), Field("c", "3s", ""), Field("d", "B", ""))
    assert layout.offset == {"a": 0, "b": 2, "c": 10, "d": 13}
    assert layout.size == 14


def test_fields_are_packed_big_endian_and_without_padding():
    layout = Layout(Field("a", "B", ""), Field("b", "i", ""))
    assert layout.pack(1, -2) == bytes.fromhex("01 fffffffe")
    assert layout.unpack_from(b"\xff" + layout.pack(1, -2), 1) == (1, -2)


def test_a_field_of_an_unknown_letter_is_refused():
    with pytest.raises(struct.error):
        Layout(Field("a", "!", ""))


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__.rpartition(".")[2])
def test_the_diagram_in_the_docstring_is_the_layout(module):
    drawn = [line.split() for line in module.__doc__.splitlines() if line[:6].strip().isdigit()]
    layouts = [value for value in vars(module).values() if isinstance(value, Layout)]
    assert drawn == [row.split() for layout in layouts for row in layout.rows()]
    assert drawn
