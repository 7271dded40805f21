"""Files that anything may have happened to: bytes changed, cut, put between others, taken out, made zeros.

Whatever is read then is what was written, or is refused by an error of towline.kafka.errors. No CRC covers the offset
of a batch or message: where that was changed, and offsets still rise, a record may have another.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kafka.golden import BATCHES, MESSAGES, META_PROPERTIES
from tests.kafka.samples import SMALL, T0, Row, plain, rows_in, rows_of, write_plain, write_transactions
from towline.kafka.errors import KafkaFault, MalformedLog
from towline.kafka.format import checkpoints, meta_properties
from towline.kafka.format.batch import Compression
from towline.kafka.log.checking import check
from towline.kafka.log.files import LOG
from towline.kafka.log.log_directory import LogDirectory
from towline.kafka.log.partition import Partition
from towline.kafka.log.recovery import recover
from towline.kafka.log.retention import ages
from towline.kafka.log.scan import mapped, scan
from towline.kafka.log.writer import PartitionWriter

OFFSET_SIZE: Final = 8


def write_old(root: Path) -> Path:
    """Messages of magic 0 and 1, alone and compressed, and a batch behind them."""
    directory = root / "old-0"
    directory.mkdir()
    sets = (
        (MESSAGES[0, Compression.LZ4], [42]),  # offsets inside are those of the log
        (MESSAGES[1, Compression.GZIP], [142]),
        (MESSAGES[1, Compression.NONE], [240, 241, 242]),
        (MESSAGES[1, Compression.SNAPPY], [342]),
        (BATCHES[Compression.SNAPPY], [440]),
    )
    parts = []
    for text, offsets in sets:
        data = bytearray.fromhex(text)
        for at, offset in zip(scan(np.frombuffer(data, np.uint8)).batches["position"].tolist(), offsets, strict=True):
            data[at : at + OFFSET_SIZE] = offset.to_bytes(OFFSET_SIZE, "big")
        parts.append(bytes(data))
    (directory / f"{0:020d}{LOG}").write_bytes(b"".join(parts))
    recover(directory, SMALL)
    return directory


@dataclass(frozen=True)
class Sample:
    """A sound partition: its files, its records, and where offsets stand, which no CRC covers."""

    name: str
    files: dict[str, bytes]
    rows: list[Row]
    batches: dict[str, list[int]]  # where they begin, by file

    @classmethod
    def of(cls, directory: Path) -> "Sample":
        (directory / "partition.metadata").write_text("version: 0\ntopic_id: K2zxgTkGQ6WP0l1uBU9dDg")
        logs = {segment.log.name: scan(mapped(segment.log)).batches for segment in Partition(directory).segments}
        files = {path.name: path.read_bytes() for path in directory.iterdir()}
        batches = {name: found["position"].tolist() for name, found in logs.items()}
        return cls(directory.name, files, rows_in(directory), batches)

    def made(self, root: Path, changes: dict[str, bytes]) -> Path:
        directory = root / self.name
        directory.mkdir()
        for name, data in (self.files | changes).items():
            (directory / name).write_bytes(data)
        return directory

    def may_differ(self, changes: dict[str, bytes]) -> bool:
        """Whether bytes of an offset were changed."""
        for name in changes:
            first, behind = region(self.files[name], changes[name])
            for at in self.batches.get(name, ()):
                if max(first, at) < min(behind, at + OFFSET_SIZE) or at < first == behind < at + OFFSET_SIZE:
                    return True
        return False


def region(before: bytes, after: bytes) -> tuple[int, int]:
    """Of the first, the bytes that the second has not."""
    size = min(len(before), len(after))
    same = (np.frombuffer(before, np.uint8)[:size] == np.frombuffer(after, np.uint8)[:size]).tolist()
    first = same.index(False) if False in same else size
    backwards = (np.frombuffer(before, np.uint8)[::-1][:size] == np.frombuffer(after, np.uint8)[::-1][:size]).tolist()
    left = backwards.index(False) if False in backwards else size
    return first, max(first, len(before) - left)


@pytest.fixture(scope="module")
def samples(tmp_path_factory) -> list[Sample]:
    root = tmp_path_factory.mktemp("sound")
    return [Sample.of(write(root)) for write in (write_plain, write_transactions, write_old)]


@st.composite
def changed(draw: st.DrawFn, data: bytes) -> bytes:
    """What may happen to a file."""
    at = draw(st.integers(0, max(len(data) - 1, 0)))
    behind = min(at + draw(st.sampled_from([1, 2, 8, 61, 500])), len(data))
    kind = draw(st.sampled_from(["byte", "cut", "put", "take", "zeros", "twice", "bits"]))
    if kind == "byte":
        return data[:at] + bytes([draw(st.integers(0, 255))]) + data[at + 1 :]
    if kind == "bits":
        return data[:at] + bytes(byte ^ 0xFF for byte in data[at:behind]) + data[behind:]
    middle = {
        "cut": b"",
        "take": data[behind:],
        "zeros": bytes(behind - at) + data[behind:],
        "put": draw(st.binary(min_size=1, max_size=40)) + data[at:],
        "twice": data[at:behind] + data[at:],
    }
    return data[:at] + middle[kind]


@st.composite
def damage(draw: st.DrawFn, samples: list[Sample]) -> tuple[Sample, dict[str, bytes]]:
    sample = draw(st.sampled_from(samples))
    names = draw(st.lists(st.sampled_from(sorted(sample.files)), min_size=1, max_size=2, unique=True))
    return sample, {name: draw(changed(sample.files[name])) for name in names}


def refused(action: Callable[[], object]) -> bool:
    """Whether it raised one of our errors, whose sentence can be read; another error fails the test."""
    try:
        action()
    except KafkaFault as error:
        return bool(str(error))
    return False


def comparable(rows: list[Row], sample: Sample, changes: dict[str, bytes]) -> list[tuple]:
    return [row[1:] if sample.may_differ(changes) else row for row in rows]


def assert_beginning(rows: list[Row], sample: Sample, changes: dict[str, bytes], start: int = 0) -> None:
    wanted = [row for row in sample.rows if row[0] >= start or sample.may_differ(changes)]
    found = comparable(rows, sample, changes)
    if sample.may_differ(changes):
        assert all(row in comparable(wanted, sample, changes) for row in found)
    else:
        assert found == wanted[: len(found)]


def what_is_read_is_what_was_written(directory: Path, sample: Sample, changes: dict[str, bytes]) -> None:
    for start in (None, 0, 57, 160, sample.rows[-1][0]):
        rows: list[Row] = []
        failed = refused(
            lambda start=start, rows=rows: rows.extend(
                chain.from_iterable(rows_of(piece.records) for piece in Partition(directory).read(start))
            )
        )
        assert_beginning(rows, sample, changes, start or 0)
        if not failed and not any(name.endswith(LOG) for name in changes):
            assert rows == [row for row in sample.rows if row[0] >= (start or 0)]


def an_offset_by_time_is_the_right_one(directory: Path, sample: Sample, changes: dict[str, bytes]) -> None:
    for time in (T0 - 5, T0 + 77, T0 + 205, T0 + 10**9):
        found: list[int | None] = []
        if refused(lambda time=time, found=found: found.append(Partition(directory).offset_at(time))):
            continue
        if not any(name.endswith(LOG) for name in changes):
            assert found == [next((row[0] for row in sample.rows if row[1] >= time), None)]


def whatever_else_is_asked_is_answered_or_refused(directory: Path, sample: Sample, changes: dict[str, bytes]) -> None:
    refused(lambda: check(directory))
    for ask in (
        lambda: Partition(directory).end,
        lambda: Partition(directory).epochs,
        lambda: Partition(directory).topic_id,
        lambda: Partition(directory).transactions(),
        lambda: ages(Partition(directory)),
    ):
        refused(ask)
    if not refused(lambda: Partition(directory).transactions()) and not sample.may_differ(changes):
        open_from = Partition(directory).transactions().last_stable_offset
        assert open_from <= (4 if sample.name == "tx-0" else sample.rows[-1][0] + 1)


def recovery_gives_up_nothing_but_a_torn_end(directory: Path, sample: Sample, changes: dict[str, bytes]) -> None:
    """One file is cut at its end at most, and where bytes were only changed no more than the last batch goes."""
    logs = [name for name in changes if name.endswith(LOG)]
    if refused(lambda: recover(directory, SMALL)):
        return
    rows = rows_in(directory)
    if not logs:
        assert rows == sample.rows
    assert_beginning(rows, sample, changes)
    last = max(sample.batches)
    if logs == [last] and len(changes[last]) == len(sample.files[last]) and not sample.may_differ(changes):
        at = sample.batches[last][-1]
        if changes[last][:at] == sample.files[last][:at]:
            assert len(rows) >= len(sample.rows) - 40
        else:
            assert rows == sample.rows
    assert [str(fault) for fault in check(directory) if Path(fault.path).name != "partition.metadata"] == []


def a_writer_goes_on_behind_what_is_whole(directory: Path, sample: Sample, changes: dict[str, bytes]) -> None:
    def more() -> None:
        with PartitionWriter(directory.parent, directory.name[:-2], 0, SMALL) as writer:
            writer.append(plain(3, writer.end + 5))

    if not refused(more) and not any(name.endswith(LOG) for name in changes):
        assert rows_in(directory)[: len(sample.rows)] == sample.rows


JUDGES: Final = (
    what_is_read_is_what_was_written,
    an_offset_by_time_is_the_right_one,
    whatever_else_is_asked_is_answered_or_refused,
    recovery_gives_up_nothing_but_a_torn_end,
    a_writer_goes_on_behind_what_is_whole,
)
each_judge = pytest.mark.parametrize("judge", JUDGES, ids=lambda judge: judge.__name__)


def tried(judge: Callable[[Path, Sample, dict[str, bytes]], None], samples: list[Sample], drawn: st.DataObject) -> None:
    sample, changes = drawn.draw(damage(samples))
    with TemporaryDirectory(prefix="towline-hostile-") as root:
        judge(sample.made(Path(root), changes), sample, changes)


@each_judge
@settings(max_examples=20)
@given(drawn=st.data())
def test_of_damaged_files(judge, samples, drawn):
    tried(judge, samples, drawn)


@pytest.mark.slow
@each_judge
@settings(max_examples=500)
@given(drawn=st.data())
def test_of_very_many_damaged_files(judge, samples, drawn):
    tried(judge, samples, drawn)


TEXTS: Final = {
    "meta.properties": META_PROPERTIES.encode(),
    checkpoints.LOG_STARTS: checkpoints.encode_offsets({("old", 0): 5, ("topic", 0): 2**40}),
    checkpoints.HIGH_WATERMARKS: checkpoints.encode_offsets({("old", 0): 5}),
}


@given(drawn=st.data())
def test_texts_of_a_directory_are_read_or_refused(drawn):
    name = drawn.draw(st.sampled_from(sorted(TEXTS)))
    data = drawn.draw(changed(TEXTS[name]) | st.binary(max_size=60))
    if name == meta_properties.NAME:
        refused(lambda: meta_properties.decode(data))
        return
    try:
        found = checkpoints.decode_offsets(data)
    except KafkaFault:
        return
    assert all(abs(offset) < 2**63 and abs(number) < 2**63 for (_, number), offset in found.items())


@pytest.mark.parametrize("number", ["9" * 19, "1" + "0" * 19, "1_0", "٣", "+5", "0x1", "9" * 5000])
def test_a_number_of_a_checkpoint_that_is_none_is_refused(number, tmp_path):
    (tmp_path / "meta.properties").write_text(META_PROPERTIES)
    (tmp_path / checkpoints.LOG_STARTS).write_text(f"0\n1\ntopic 0 {number}\n")
    with pytest.raises(MalformedLog, match="should be numbers"):
        LogDirectory(tmp_path).offsets(checkpoints.LOG_STARTS)


@pytest.mark.parametrize("text", ["version: 0\ntopic_id: ééééééééééééééééééééé=", "version: 0\ntopic_id: " + "ü" * 22])
def test_an_id_of_other_letters_is_refused(text, tmp_path):
    directory = write_plain(tmp_path)
    (directory / "partition.metadata").write_text(text)
    with pytest.raises(MalformedLog, match=r"partition\.metadata byte 0"):
        _ = Partition(directory).topic_id


def test_a_segment_whose_name_is_no_offset_is_named(tmp_path):
    directory = write_plain(tmp_path)
    (directory / f"{'9' * 20}.log").touch()
    with pytest.raises(MalformedLog, match=r"99\.log byte 0: an offset does not belong into its segment"):
        Partition(directory)
