"""What kind of store it is, which segments it has, and where its log safely ends."""

import fcntl
import pickle
import subprocess
import sys
from contextlib import contextmanager

import numpy as np
import pytest

from towline.errors import ForeignFile, MalformedFile, SegmentSizeMismatch
from towline.format.files.checkpoint import Checkpoint, encode
from towline.log.state.checkpoint_file import CheckpointFile
from towline.spark.errors import MessagesGone, NoSafeEnd, NotAStore
from towline.spark.stores import StoreKind, StoreView

from .stores import QUEUE_FILE, SEGMENT, MadeStore

HOLD = """
import fcntl, os, sys
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
print("held", flush=True)
sys.stdin.read()
"""


@contextmanager
def held(store):
    """Somebody who is no node of ours runs on it."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(store.lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        try:
            yield holder.pid
        finally:
            assert holder.stdin is not None
            holder.stdin.close()


def test_a_stopped_store_ends_where_its_node_said(made):
    with StoreView.open(made.root) as view:
        assert view.kind is StoreKind.STOPPED
        assert (view.segment_size, view.log_min, view.safe_end) == (SEGMENT, 0, made.end)
        assert view.segments == tuple(range(0, made.end, SEGMENT))
        assert view.facts().end_from == "checkpoint"
        assert view.facts().queue_file_size == QUEUE_FILE


def test_what_is_not_confirmed_is_not_read(made):
    at = made.rows[-3]["commitLogOffset"]
    CheckpointFile(made.root).save(Checkpoint(confirm_phy_offset=at))
    assert StoreView.open(made.root).safe_end == at
    made.store.checkpoint.unlink()
    view = StoreView.open(made.root)
    assert (view.safe_end, view.facts().end_from) == (made.end, "durable")


def test_a_segment_made_ahead_holds_nothing(made):
    made.write(made.end - made.end % SEGMENT + SEGMENT, bytes(8))
    view = StoreView.open(made.root)
    assert view.segments[-1] == made.end - made.end % SEGMENT
    assert view.safe_end == made.end


def test_bytes_end_at_the_safe_end_and_cannot_be_written(made):
    with StoreView.open(made.root) as view:
        last = view.segments[-1]
        assert len(view.array(last)) == made.end - last
        assert len(view.array(0)) == SEGMENT
        with pytest.raises(ValueError, match="read-only"):
            view.array(0)[0] = 1


def test_queues_are_bounded_by_the_safe_end(made):
    found = {
        (queue.topic, queue.queue_id): (queue.min_offset, queue.max_offset)
        for queue in StoreView.open(made.root).queues
    }
    assert found == {queue: (0, count) for queue, count in made.numbers.items()}
    made.safe(made.rows[-1]["commitLogOffset"])
    last = made.rows[-1]
    again = {(queue.topic, queue.queue_id): queue.max_offset for queue in StoreView.open(made.root).queues}
    assert again[last["topic"], last["queueId"]] == last["queueOffset"]


def test_queues_begin_at_the_logs_minimum(made):
    made.safe(log_min=SEGMENT)
    made.path(0).unlink()
    view = StoreView.open(made.root)
    assert view.log_min == SEGMENT
    assert view.segments[0] == SEGMENT
    firsts = {}
    for row in made.rows:
        if row["commitLogOffset"] >= SEGMENT:
            firsts.setdefault((row["topic"], row["queueId"]), row["queueOffset"])
    assert {(queue.topic, queue.queue_id): queue.min_offset for queue in view.queues} == firsts


def test_store_times(made):
    view = StoreView.open(made.root)
    row = made.rows[17]
    assert view.store_time(row["commitLogOffset"]) == round(row["storeTimestamp"].timestamp() * 1000)
    assert view.first_store_time(0) == round(made.rows[0]["storeTimestamp"].timestamp() * 1000)
    assert view.store_time(row["commitLogOffset"] + 1) == -1


def test_facts_travel(made):
    facts = pickle.loads(pickle.dumps(StoreView.open(made.root).facts()))
    assert facts.safe_end == made.end
    assert facts.only([SEGMENT]).segments == (SEGMENT,)


class TestOfRocketMQ:
    """No file of ours stands in it."""

    def store(self, tmp_path):
        return MadeStore(tmp_path / "store").fill(600).dispatch()

    def test_a_closed_one_ends_behind_its_last_record(self, tmp_path):
        made = self.store(tmp_path)
        # What a broker writes there is the start of the last record.
        made.store.checkpoint.write_bytes(encode(Checkpoint(confirm_phy_offset=made.rows[-1]["commitLogOffset"])))
        made.write(made.end - made.end % SEGMENT + SEGMENT, bytes(8))
        view = StoreView.open(made.root)
        assert (view.kind, view.safe_end, view.facts().end_from) == (StoreKind.ROCKETMQ, made.end, "walk")

    def test_a_killed_one_ends_before_what_its_crc_denies(self, tmp_path):
        made = self.store(tmp_path)
        made.store.abort.touch()
        torn = made.rows[-2]
        made.write(torn["commitLogOffset"] + 100, b"\xff\xfe")
        assert StoreView.open(made.root).safe_end == torn["commitLogOffset"]

    def test_a_running_one_is_read_up_to_its_checkpoint(self, tmp_path):
        made = self.store(tmp_path)
        at = made.rows[-5]["commitLogOffset"]
        made.store.checkpoint.write_bytes(encode(Checkpoint(confirm_phy_offset=at)))
        with held(made.store):
            view = StoreView.open(made.root)
        assert (view.safe_end, view.facts().end_from) == (at, "checkpoint")

    def test_a_running_one_that_says_nothing_is_refused(self, tmp_path):
        made = self.store(tmp_path)
        with held(made.store) as pid, pytest.raises(NoSafeEnd, match=f"process {pid}"):
            StoreView.open(made.root)


def test_ours_under_a_process_that_has_no_positions_is_read_up_to_its_files(made):
    with held(made.store):
        view = StoreView.open(made.root)
    assert (view.kind, view.safe_end, view.facts().end_from) == (StoreKind.LIVE, made.end, "checkpoint")


class TestOfABackup:
    def test_its_manifest_says_everything(self, made):
        view = StoreView.open(made.backup(made.root.parent / "backup"))
        assert (view.kind, view.safe_end, view.broker_name) == (StoreKind.BACKUP, made.end, "broker-x")
        assert view.segments == tuple(range(0, made.end, SEGMENT))
        last = view.segments[-1]
        assert np.array_equal(view.array(last), StoreView.open(made.root).array(last))
        assert view.queues == ()

    def test_a_file_that_is_too_short_is_named(self, made):
        target = made.backup(made.root.parent / "backup")
        short = target / "commitlog" / made.path(0).name
        with short.open("r+b") as file:
            file.truncate(100)
        with pytest.raises(MalformedFile, match=made.path(0).name):
            StoreView.open(target)


class TestRefused:
    def test_no_directory(self, tmp_path):
        with pytest.raises(NotAStore, match="no such directory"):
            StoreView.open(tmp_path / "nowhere")

    def test_a_directory_of_something_else(self, tmp_path):
        with pytest.raises(NotAStore, match=r"neither commitlog/ nor backup\.json"):
            StoreView.open(tmp_path)

    def test_a_store_under_restore(self, made):
        made.store.restoring.touch()
        with pytest.raises(NotAStore, match="restore"):
            StoreView.open(made.root)

    def test_a_foreign_file_by_its_name(self, made):
        (made.store.commitlog / "notes.txt").write_text("x")
        with pytest.raises(ForeignFile, match=r"notes\.txt"):
            StoreView.open(made.root)

    def test_a_segment_of_another_size(self, made):
        with made.path(SEGMENT).open("r+b") as file:
            file.truncate(SEGMENT // 2)
        with pytest.raises(SegmentSizeMismatch, match=made.path(SEGMENT).name):
            StoreView.open(made.root)

    def test_another_segment_size_than_was_said(self, made):
        with pytest.raises(SegmentSizeMismatch):
            StoreView.open(made.root, segment_size=SEGMENT // 2)
        with pytest.raises(SegmentSizeMismatch):
            StoreView.open(made.root, segment_size=2 * SEGMENT)

    def test_a_name_that_fits_no_segment(self, made):
        made.path(SEGMENT).rename(made.store.commitlog / f"{SEGMENT + 5:020d}")
        with pytest.raises(ForeignFile, match="no multiple"):
            StoreView.open(made.root)

    def test_a_segment_between_others_that_is_missing(self, made):
        made.path(SEGMENT).unlink()
        with pytest.raises(MessagesGone, match=made.path(SEGMENT).name):
            StoreView.open(made.root)

    def test_a_last_segment_that_is_missing_or_too_short(self, made):
        with made.path(made.end).open("r+b") as file:
            file.truncate(made.end % SEGMENT - 1)
        with pytest.raises(MessagesGone, match=r"\(1 bytes of the log"):
            StoreView.open(made.root)
        made.path(made.end).unlink()
        with pytest.raises(MessagesGone, match=made.path(made.end).name):
            StoreView.open(made.root)

    def test_a_store_of_which_no_segment_is_left(self, made):
        for base in range(0, made.end, SEGMENT):
            made.path(base).unlink()
        with pytest.raises(MessagesGone, match=f"{made.end} bytes of the log from 0 on"):
            StoreView.open(made.root)


def test_a_shorter_last_segment_is_read_as_far_as_it_goes(made):
    with made.path(made.end).open("r+b") as file:
        file.truncate(made.end % SEGMENT)
    view = StoreView.open(made.root)
    assert view.safe_end == made.end
    assert len(view.array(view.segments[-1])) == made.end % SEGMENT


def test_a_store_without_a_segment_is_empty(tmp_path):
    made = MadeStore(tmp_path / "store")
    view = StoreView.open(made.root)
    assert (view.segments, view.safe_end, view.queues) == ((), 0, ())


def test_looking_at_a_store_takes_no_lock_of_its_owner(made):
    """A record lock goes when any descriptor of its file is closed by its process: another one looks here."""
    with held(made.store):
        StoreView.open(made.root)
        with made.store.lock.open("r+b") as file, pytest.raises(OSError, match="temporarily unavailable"):
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
