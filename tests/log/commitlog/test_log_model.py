"""The log against a model: a list of records that only grows, whatever is refused, rolled or restarted in between."""

import tempfile
from pathlib import Path

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from towline.format.record import blank, record
from towline.format.record.record import Record
from towline.log.commitlog.commit_log import FIRST_WORD_SIZE, CommitLogReader, LogTail
from towline.log.files.mapped_file import MappedFile
from towline.log.files.segment_files import ensure_segment, segment_name

SIZE = 4096  # so that most runs fill several segments
REQUEST_MAX = 2048
BODIES = st.lists(st.binary(max_size=300), min_size=1, max_size=4)


class ALogIsAListThatOnlyGrows(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.directory = tempfile.TemporaryDirectory()
        root = Path(self.directory.name)
        self.commitlog, self.staging = root / "commitlog", root / "staging"
        self.commitlog.mkdir()
        self.staging.mkdir()
        self.model: list[bytes] = []
        self.tail = self.open_tail(0)
        self.reader = CommitLogReader(self.commitlog, SIZE, open_max=2)

    def next_segment(self, base: int) -> MappedFile:
        ensure_segment(self.commitlog, self.staging, base, SIZE)
        return MappedFile.open(self.commitlog / segment_name(base), SIZE, writable=True)

    def open_tail(self, position: int) -> LogTail:
        return LogTail.open(self.commitlog, SIZE, position, self.next_segment)

    def copy(self, bodies: list[bytes]) -> bytes:
        """Makes room and copies a request of one record per body; returns it as it shall stand in the log."""
        size = sum(len(encoded(0, body)) for body in bodies)
        if not self.tail.fits(size):
            self.tail.blank()
            self.tail.roll()
        frame, at = b"", self.tail.position
        for body in bodies:
            frame += encoded(at + len(frame), body)
        start, _ = self.tail.window(len(frame))
        self.tail.array[start + FIRST_WORD_SIZE : start + len(frame)] = np.frombuffer(frame, np.uint8)[FIRST_WORD_SIZE:]
        return frame

    def publish(self, frame: bytes) -> None:
        """As the append does it: the first 8 bytes last."""
        at = self.tail.position % SIZE
        self.tail.array[at : at + FIRST_WORD_SIZE] = np.frombuffer(frame[:FIRST_WORD_SIZE], np.uint8)
        self.tail.moved(at + len(frame))

    @rule(bodies=BODIES)
    def a_request_is_accepted(self, bodies: list[bytes]) -> None:
        frame = self.copy(bodies)
        self.publish(frame)
        self.model += bodies

    @rule(bodies=BODIES)
    def a_request_is_refused(self, bodies: list[bytes]) -> None:
        frame = self.copy(bodies)
        at = self.tail.position % SIZE
        self.tail.array[at : at + len(frame)] = 0

    @rule(bodies=BODIES, stored=st.booleans(), rolled=st.booleans())
    def the_writer_is_killed_before_it_publishes(self, bodies: list[bytes], stored: bool, rolled: bool) -> None:
        appended = self.tail.position
        if rolled:
            self.tail.blank()
        frame = self.copy(bodies)
        if stored:
            self.publish(frame)
        self.tail.close()
        self.tail = self.open_tail(appended)
        self.tail.zero_after(appended, REQUEST_MAX + blank.SIZE)

    @rule()
    def the_segment_is_ended_early(self) -> None:
        self.tail.blank()

    @precondition(lambda self: self.tail.room == 0)
    @rule()
    def the_next_segment_exists_already(self) -> None:
        ensure_segment(self.commitlog, self.staging, self.tail.position, SIZE)

    @invariant()
    def what_was_accepted_can_be_read_and_nothing_else(self) -> None:
        self.reader.refresh()
        bodies, at = [], 0
        while at < self.tail.position:
            room = self.reader.slice(at, self.tail.position)
            if room[4:8] == blank.MAGIC.to_bytes(4, "big"):
                at += SIZE - at % SIZE
                continue
            found = record.decode(self.reader.record(at, self.tail.position))
            assert found.physical_offset == at
            bodies.append(found.body)
            at += len(self.reader.record(at, self.tail.position))
        assert at == self.tail.position
        assert bodies == self.model

    @invariant()
    def behind_the_end_there_are_zeros(self) -> None:
        if self.tail.room:
            assert not self.tail.array[self.tail.position % SIZE :].any()

    def teardown(self) -> None:
        self.tail.close()
        self.reader.close()
        self.directory.cleanup()


def encoded(at: int, body: bytes) -> bytes:
    return record.encode(Record(topic=b"T", body=body, physical_offset=at, store_timestamp=1))


assert 4 * len(encoded(0, bytes(300))) <= REQUEST_MAX
ALogIsAListThatOnlyGrows.TestCase.settings = settings(max_examples=80, stateful_step_count=25, deadline=None)
TestALogIsAListThatOnlyGrows = ALogIsAListThatOnlyGrows.TestCase
