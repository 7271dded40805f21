"""Up to where a log is archived, and that nobody goes by it for another log."""

import json

import pytest

from tests.log.stores import SEGMENT
from towline.errors import MalformedFile
from towline.log.files.config_file import ConfigFile
from towline.log.files.segment_files import segment_name
from towline.log.state.archived import NAME, PROBE, archived_until, load_archived, probe_of, save_archived
from towline.places import Store


@pytest.fixture
def store(tmp_path):
    """Three segments, each full of its own number."""
    made = Store(tmp_path / "store")
    made.commitlog.mkdir(parents=True)
    for number in range(3):
        (made.commitlog / segment_name(number * SEGMENT)).write_bytes(bytes([number + 1]) * SEGMENT)
    return made


def save(store, data_end, archive):
    base = (data_end - 1) // SEGMENT * SEGMENT
    probe = probe_of(store.commitlog / segment_name(base), base, data_end)
    return save_archived(store, SEGMENT, data_end, probe, str(archive))


def test_a_store_of_which_nothing_is_archived(store):
    assert load_archived(store) is None
    assert archived_until(store, SEGMENT) == 0


@pytest.mark.parametrize("data_end", [SEGMENT + 1, 2 * SEGMENT - 8, 2 * SEGMENT])
def test_what_is_saved_counts_from_the_segments_end(store, data_end, tmp_path):
    saved = save(store, data_end, tmp_path / "archive")
    assert load_archived(store) == saved
    assert (saved.end, saved.data_end, saved.archive) == (2 * SEGMENT, data_end, str(tmp_path / "archive"))
    assert archived_until(store, SEGMENT) == 2 * SEGMENT


def test_another_log_under_the_same_offsets_counts_as_nothing(store, tmp_path):
    save(store, 2 * SEGMENT - 100, tmp_path)
    path = store.commitlog / segment_name(SEGMENT)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1  # behind the last record: not part of the log
    path.write_bytes(data)
    assert archived_until(store, SEGMENT) == 2 * SEGMENT
    data[-101] ^= 1
    path.write_bytes(data)
    assert archived_until(store, SEGMENT) == 0
    assert archived_until(store, SEGMENT + 4096) == 0, "segments of another size"


def test_the_probe_is_of_one_segment_and_of_its_end(store, tmp_path):
    save(store, 2 * SEGMENT - 100, tmp_path)
    assert PROBE >= SEGMENT, "the test's segments are probed whole"
    path = store.commitlog / segment_name(0)
    path.write_bytes(bytes(SEGMENT))
    assert archived_until(store, SEGMENT) == 2 * SEGMENT


def test_a_segment_that_has_gone_was_archived(store, tmp_path):
    save(store, 2 * SEGMENT - 100, tmp_path)
    for base in (0, SEGMENT):
        (store.commitlog / segment_name(base)).unlink()
    assert archived_until(store, SEGMENT) == 2 * SEGMENT


@pytest.mark.parametrize("change", [{"end": -1}, {"data_end": 3 * SEGMENT}, {"probe": "1"}, {"more": 1}, {"end": None}])
def test_a_file_that_says_something_else_is_refused(store, tmp_path, change):
    save(store, 2 * SEGMENT - 100, tmp_path)
    file = ConfigFile(store.config / NAME)
    content = file.load()
    assert content is not None
    file.save(content | change)
    with pytest.raises(MalformedFile, match="archived"):
        archived_until(store, SEGMENT)


def test_a_flipped_bit_is_seen_and_the_generation_before_is_read(store, tmp_path):
    save(store, SEGMENT - 8, tmp_path)
    save(store, 2 * SEGMENT - 8, tmp_path)
    path = store.config / NAME
    content = json.loads(path.read_text())
    path.write_text(json.dumps(content | {"end": 3 * SEGMENT}))
    assert archived_until(store, SEGMENT) == SEGMENT
