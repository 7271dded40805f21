"""What counts as a node's memory and disk."""

import mmap
import os

import pytest

from towline.errors import NodeNotRunning
from towline.node.report.processes import memory_of
from towline.node.report.status import disk_sizes, read_status
from towline.places import Store

SIZE = 32 * 1024 * 1024


@pytest.fixture
def mapped(tmp_path):
    """A file of the store, mapped and touched."""
    path = tmp_path / "segment"
    path.write_bytes(bytes(SIZE))
    with path.open("r+b") as opened, mmap.mmap(opened.fileno(), SIZE) as made:
        for at in range(0, SIZE, mmap.PAGESIZE):
            made[at] = 1
        yield path


def test_files_of_the_store_are_not_memory_of_the_node(tmp_path, mapped):
    memory_of(os.getpid(), ())  # what it needs itself is there from here on
    without, uss = memory_of(os.getpid(), (tmp_path,))
    with_store, _ = memory_of(os.getpid(), ())
    assert with_store - without > SIZE * 0.9
    assert 0 < uss <= without


def test_a_process_that_has_gone_has_no_memory():
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    assert memory_of(child, ()) == (0, 0)


def test_a_sparse_file_is_counted_by_what_is_allocated_too(tmp_path):
    queue = tmp_path / "consumequeue" / "flights" / "0" / f"{0:020d}"
    queue.parent.mkdir(parents=True)
    with queue.open("wb") as opened:
        opened.truncate(6_000_000)
    sizes = disk_sizes(Store(tmp_path))
    assert sizes["consumequeue"] == {"size": 6_000_000, "allocated": 0}
    assert sizes["commitlog"] == {"size": 0, "allocated": 0}


def test_a_store_without_a_node_has_no_status(tmp_path):
    with pytest.raises(NodeNotRunning):
        read_status(tmp_path)
