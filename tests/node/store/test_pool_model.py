"""The model of the log again, appended to a transient pool: files hold what was committed, buffers hold the rest."""

import os
import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from tests.log.commitlog.test_log_model import BODIES, SIZE, ALogIsAListThatOnlyGrows
from towline.format.record import blank, record
from towline.log.commitlog.commit_log import LogTail
from towline.log.files.mapped_file import MappedFile
from towline.log.files.segment_files import ensure_segment, segment_name
from towline.node.store.transient_pool import TransientPool, copy_committed

BUFFERS = 4
MAGIC = blank.MAGIC.to_bytes(4, "big")


class ALogThatIsCommittedLater(ALogIsAListThatOnlyGrows):
    def __init__(self) -> None:
        self.memory = Path(tempfile.mkdtemp())
        self.committed = 0
        self.make_pool()
        super().__init__()

    def make_pool(self) -> None:
        shutil.rmtree(self.memory)
        self.memory.mkdir()
        self.pool = TransientPool(self.memory / "pool", SIZE)
        self.pool.root.mkdir()
        self.pool.create(BUFFERS)

    def next_segment(self, base: int) -> MappedFile:
        ensure_segment(self.commitlog, self.staging, base, SIZE)
        assert self.pool.borrow(base)
        return self.pool.open(base, writable=True)

    def open_tail(self, position: int) -> LogTail:
        if position % SIZE:
            assert self.pool.borrow(position - position % SIZE)
        return LogTail.open(self.pool.taken, SIZE, position, self.next_segment)

    def copy(self, bodies: list[bytes]) -> bytes:
        if len(list(self.pool.free.iterdir())) < 1:
            self.everything_is_committed_and_given_back()
        return super().copy(bodies)

    # --- flush and allocate

    @rule()
    def everything_is_committed_and_given_back(self) -> None:
        self.commit(self.published)
        for base in [base for base in self.pool.bases() if base + SIZE <= self.committed]:
            used = self.pool.return_buffer(base)
            used.write_bytes(bytes(SIZE))
            self.pool.set_free(used)

    @rule(part=st.floats(0, 1))
    def a_part_is_committed(self, part: float) -> None:
        """Up to the end of some record, as APPENDED was when flush read it."""
        ends = [end for end in self.ends() if end > self.committed]
        if ends:
            self.commit(ends[int(part * (len(ends) - 1))])

    def commit(self, end: int) -> None:
        while self.committed < end:
            base = self.committed - self.committed % SIZE
            stop = min(end, base + SIZE)
            fd = os.open(self.commitlog / segment_name(base), os.O_RDWR)
            buffer = self.pool.open(base, writable=False)
            copy_committed(buffer, fd, self.committed - base, stop - base)
            buffer.release()
            os.close(fd)
            self.committed = stop

    # --- ends

    @rule(bodies=BODIES, stored=st.booleans(), rolled=st.booleans())
    def the_writer_is_killed_before_it_publishes(self, bodies: list[bytes], stored: bool, rolled: bool) -> None:
        """What was not published by then is not committed meanwhile either."""
        if len(list(self.pool.free.iterdir())) < 2:
            self.everything_is_committed_and_given_back()
        super().the_writer_is_killed_before_it_publishes(bodies, stored, rolled)

    @rule()
    def the_node_is_killed(self) -> None:
        """The next start commits what is left, and makes a pool of its own; its log goes on at the same byte."""
        end = self.published
        self.commit(end)
        self.tail.close()
        self.make_pool()
        self.tail = self.open_tail(end)

    # --- what must hold

    @property
    def published(self) -> int:
        return self.tail.position

    def content(self) -> bytes:
        parts = []
        for base in range(0, self.published, SIZE):
            file = self.commitlog / segment_name(base)
            split = min(max(self.committed - base, 0), SIZE)
            rest = b"" if split == SIZE else self.pool.path_of(base).read_bytes()[split:]
            parts.append(file.read_bytes()[:split] + rest)
        return b"".join(parts)[: self.published]

    def ends(self) -> list[int]:
        """Where records, and segments that end with a blank, end."""
        log, at, found = self.content(), 0, []
        while at < len(log):
            is_blank = log[at + 4 : at + 8] == MAGIC
            size = SIZE - at % SIZE if is_blank else int.from_bytes(log[at : at + 4], "big")
            assert size, f"no record stands at {at}"
            at += size
            found.append(at)
        return found

    @invariant()
    def what_was_accepted_can_be_read_and_nothing_else(self) -> None:
        log, bodies, start = self.content(), [], 0
        for end in self.ends():
            if log[start + 4 : start + 8] != MAGIC:
                found = record.decode(memoryview(log)[start:end])
                assert found.physical_offset == start
                bodies.append(found.body)
            start = end
        assert start == self.published
        assert bodies == self.model

    @invariant()
    def files_hold_nothing_behind_what_was_committed(self) -> None:
        for path in self.commitlog.iterdir():
            assert not any(path.read_bytes()[max(0, self.committed - int(path.name)) :])

    def teardown(self) -> None:
        super().teardown()
        shutil.rmtree(self.memory)


ALogThatIsCommittedLater.TestCase.settings = settings(max_examples=80, stateful_step_count=25, deadline=None)
TestALogThatIsCommittedLater = ALogThatIsCommittedLater.TestCase
