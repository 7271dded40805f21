"""Log directories: whose they are, what is in them, and that no broker runs on them."""

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kafka.samples import write_plain, write_transactions
from towline.kafka.errors import LogInUse, MalformedLog, NoLogDirectory
from towline.kafka.format import checkpoints
from towline.kafka.log import log_directory
from towline.kafka.log.log_directory import LogDirectory

HOLDER = """
import fcntl, sys
file = open(sys.argv[1], "r+")
fcntl.lockf(file, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def root(tmp_path) -> Path:
    log_directory.make(tmp_path, "a-cluster", 3)
    write_plain(tmp_path)
    write_transactions(tmp_path)
    return tmp_path


def test_it_says_whose_it_is_and_lists_its_partitions(root):
    found = LogDirectory(root)
    assert (found.meta.cluster_id, found.meta.node_id, found.meta.version) == ("a-cluster", 3, 1)
    assert len(found.meta.directory_id or "") == 22
    assert [(each.topic, each.number) for each in found.partitions()] == [("topic", 0), ("tx", 0)]
    assert not found.stopped_cleanly


def test_topics_of_brokers_themselves_and_what_is_to_be_deleted_are_left_out(root):
    (root / "tx-0").rename(root / "__consumer_offsets-7")
    (root / "gone-0.0123456789abcdef-delete").mkdir()
    found = LogDirectory(root)
    assert [each.topic for each in found.partitions()] == ["topic"]
    assert [each.topic for each in found.partitions(internal=True)] == ["__consumer_offsets", "topic"]


def test_checkpoints_are_kept_and_a_partition_starts_where_they_say(root):
    found = LogDirectory(root)
    assert found.offsets(checkpoints.LOG_STARTS) == {}
    found.keep(checkpoints.LOG_STARTS, {("topic", 0): 120})
    assert found.offsets(checkpoints.LOG_STARTS) == {("topic", 0): 120}
    assert [each.start for each in found.partitions()] == [120, 0]


def test_a_checkpoint_that_is_none_is_named(root):
    (root / checkpoints.LOG_STARTS).write_bytes(b"0\n1\ntopic 0\n")
    with pytest.raises(MalformedLog, match="log-start-offset-checkpoint byte 4"):
        LogDirectory(root).offsets(checkpoints.LOG_STARTS)


def test_a_directory_without_meta_properties_is_refused(tmp_path):
    with pytest.raises(NoLogDirectory):
        LogDirectory(tmp_path)


def test_one_of_a_broker_of_0_8_has_no_meta_properties(root):
    (root / "meta.properties").unlink()
    (root / "recovery-point-offset-checkpoint").write_text("0\n1\ntopic 0 300\n")
    found = LogDirectory(root)
    assert (found.meta.cluster_id, found.meta.node_id, found.meta.version) == (None, None, 0)
    assert found.offsets(checkpoints.RECOVERY_POINTS) == {("topic", 0): 300}


def test_meta_properties_of_another_version_are_named(root):
    (root / "meta.properties").write_text("#\nversion=7\n")
    with pytest.raises(MalformedLog, match=r"meta.properties byte 2"):
        LogDirectory(root)


def test_one_that_a_broker_runs_on_is_refused_until_it_has_stopped(root):
    (root / ".lock").touch()
    LogDirectory(root)  # a broker died there
    command = [sys.executable, "-c", HOLDER, str(root / ".lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(LogInUse, match=r"a broker runs on .* stop the broker first"):
            LogDirectory(root)
        with pytest.raises(LogInUse), log_directory.held(root):
            pass
        holder.communicate("")
    LogDirectory(root)


def test_while_it_is_held_nobody_else_gets_the_lock(root):
    with log_directory.held(root):
        LogDirectory(root)  # whoever holds it reads it, and holds it still
        pid = os.fork()
        if pid == 0:
            descriptor = os.open(root / ".lock", os.O_RDWR)
            try:
                fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os._exit(7)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
