"""Kafka's own DumpLogSegments reads what we wrote: the same records, and nothing wrong with an index."""

import re
import subprocess
from pathlib import Path

import pytest

from tests.kafka.samples import plain, rows_in, write_plain, write_transactions
from towline.kafka.format.building import Form
from towline.kafka.log.partition import Partition
from towline.kafka.log.rolling import LogConfig
from towline.kafka.log.writer import PartitionWriter

DUMP_S = 60.0
TOOL = "org.apache.kafka.tools.DumpLogSegments"
RECORD = re.compile(
    r"^\| offset: (\d+) (?:CreateTime|LogAppendTime): (-?\d+) keySize: (-?\d+) valueSize: (-?\d+) sequence: (-?\d+)",
    re.MULTILINE,
)
FOLLOWED = re.compile(r"^  -?\d+ is followed by (\d+)$", re.MULTILINE)
WRONG = ("Mismatches in", "isvalid: false", "not found in log", "Exception", "Error", "out of order")
# Of a time index it prints what it looked at, then an empty list of mismatches.
INDEXES = ("*.index", "*.timeindex", "*.txnindex", "*.snapshot")


def dump(classes: str, files: list[Path], *flags: str) -> str:
    command = ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", classes, TOOL, *flags, "--files"]
    command.append(",".join(map(str, files)))
    done = subprocess.run(command, capture_output=True, text=True, timeout=DUMP_S, check=False)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    return done.stdout + done.stderr  # what does not match comes from the second


def of(directory: Path, *patterns: str) -> list[Path]:
    return sorted(path for pattern in patterns for path in directory.glob(pattern))


@pytest.fixture
def directory(tmp_path) -> Path:
    """Batches of every compression in segments with many index entries, with the time of the append at the end."""
    config = LogConfig(segment_bytes=6_000, index_interval_bytes=100)
    write_plain(tmp_path, 600, config)
    with PartitionWriter(tmp_path, "topic", 0, config) as writer:
        writer.append(plain(30, 600), Form(append_time=1_800_000_000_000, leader_epoch=5, batch_size=500))
    return tmp_path / "topic-0"


def test_it_reads_the_same_records_and_finds_nothing_wrong(classes, directory):
    said = dump(classes, of(directory, "*.log"), "--deep-iteration", "--print-data-log")
    assert [word for word in WRONG if word in said] == []
    bases = [segment.base for segment in Partition(directory).segments]
    assert len(bases) > 3
    # It takes the first record of each segment to follow -1.
    assert sorted(FOLLOWED.findall(said), key=int) == [str(base) for base in bases[1:]]
    found = [tuple(map(int, numbers)) for numbers in RECORD.findall(said)]
    rows = rows_in(directory)
    assert len(rows) == 630
    sizes = [(-1 if row[2] is None else len(row[2]), -1 if row[3] is None else len(row[3])) for row in rows]
    assert found == [(row[0], row[1], *size, -1) for row, size in zip(rows, sizes, strict=True)]
    assert "payload: value 629value 629value 629" in said
    assert "headerKeys: [source,null]" in said


def test_it_finds_indexes_to_be_right(classes, directory):
    files = of(directory, "*.index", "*.timeindex")
    assert sum(path.stat().st_size for path in files) > 1_000
    verified = dump(classes, files, "--verify-index-only")
    assert [word for word in WRONG if word in verified] == []
    checked = dump(classes, of(directory, "*.index"), "--index-sanity-check")
    assert checked.count("passed sanity check") == len(of(directory, "*.index"))


def test_it_reads_transactions_and_producers_as_we_do(classes, tmp_path):
    directory = write_transactions(tmp_path)
    said = dump(classes, of(directory, "*.log", "*.txnindex", "*.snapshot"), "--deep-iteration")
    assert [word for word in WRONG if word in said] == []
    assert "version: 0 producerId: 7 firstOffset: 6 lastOffset: 8 lastStableOffset: 4" in said
    assert said.count("endTxnMarker: COMMIT coordinatorEpoch: 11") == 2
    assert said.count("endTxnMarker: ABORT coordinatorEpoch: 11") == 1
    producers = dict(re.findall(r"^producerId: (\d+) (.*)$", said, re.MULTILINE))
    assert set(producers) == {"7", "8", "9"}
    assert "currentTxnFirstOffset: OptionalLong[4]" in producers["8"]
    assert "lastRecords: Optional[[" not in producers["7"]


def test_it_finds_an_index_that_we_broke(classes, directory):
    """That the check above can fail."""
    path = of(directory, "*.index")[0]
    held = bytearray(path.read_bytes())
    held[3] ^= 1
    path.write_bytes(held)
    assert "Mismatches in" in dump(classes, [path], "--verify-index-only")
