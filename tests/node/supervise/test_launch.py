"""Starting and stopping a node from the outside."""

import pytest

from towline.errors import NodeNotRunning, SegmentSizeMismatch, StoreNotWritable
from towline.node.supervise.launch import running_pid, start_node, stop_node


def test_a_store_without_a_node_cannot_be_stopped(tmp_path):
    with pytest.raises(NodeNotRunning):
        stop_node(tmp_path)
    with pytest.raises(NodeNotRunning):
        running_pid(tmp_path)


def test_the_supervisors_own_error_comes_out_with_its_facts(tmp_path):
    segment = tmp_path / "commitlog" / f"{0:020d}"
    segment.parent.mkdir()
    segment.write_bytes(bytes(4096))
    with pytest.raises(SegmentSizeMismatch) as refused:
        start_node("master", tmp_path, ["--set", "mapped_file_size_commit_log=8192"], tied=True)
    assert refused.value.args == (str(segment), 4096, 8192)
    with pytest.raises(NodeNotRunning):
        running_pid(tmp_path)


def test_a_store_that_cannot_be_written_is_refused_before_anything_starts(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(StoreNotWritable):
        start_node("master", tmp_path / "file", tied=True)
