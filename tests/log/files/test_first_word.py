"""The store of a first word, at any place of a mapped file."""

from pathlib import Path

import pytest

from towline.log.files.first_word import store_first_word
from towline.log.files.mapped_file import MappedFile

SIZE = 4096


@pytest.mark.parametrize("at", [0, 8, 13, SIZE - 8])
def test_it_is_stored_byte_for_byte_at_any_place(tmp_path: Path, at: int) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(SIZE))
    mapped = MappedFile.open(path, SIZE, writable=True)
    store_first_word(mapped, at, b"\x00\x00\x00\xa5\xda\xa3\x20\xa7")
    assert path.read_bytes() == bytes(at) + bytes.fromhex("000000a5daa320a7") + bytes(SIZE - at - 8)
