"""Batches that grow without measure when they are opened, or say that they do: refused, within a bound of memory."""

import subprocess
import sys
from pathlib import Path
from typing import Final

import numpy as np
import pytest

from tests.kafka.samples import T0
from towline.kafka.errors import Rule
from towline.kafka.format import batch, varints
from towline.kafka.format.batch import Compression, Head
from towline.kafka.format.building import Form, build
from towline.kafka.format.compression import compress
from towline.kafka.format.producer_snapshot import crc32c
from towline.kafka.format.records import Records
from towline.kafka.log.checking import check
from towline.kafka.log.partition import Partition
from towline.kafka.log.writer import PartitionWriter
from towline.limits import MIB

CAP: Final = 16 * MIB
COUNT: Final = 24
READER: Final = """
import re, sys
from pathlib import Path
from towline.kafka.errors import KafkaFault
from towline.kafka.log.partition import Partition

def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) * 1024

before = peak()
for path in sys.argv[2:]:
    count, said = 0, "read"
    try:
        for columns in Partition(Path(path)).read(decompressed_size_max=int(sys.argv[1])):
            count += len(columns)
    except KafkaFault as error:
        said = f"{type(error).__name__} {error}"
    print(count, peak() - before, said)
"""
KINDS: Final = list(Compression)[1:]


def sealed(records: bytes, kind: Compression, count: int = 1) -> np.ndarray:
    """A batch of these bytes, whatever they are, under a CRC that fits."""
    head = Head(0, batch.SIZE - batch.OVERHEAD + len(records), 0, 2, 0, kind, count - 1, T0, T0, -1, -1, -1, count)
    data = batch.encode(head) + records
    crc = crc32c(data[batch.CHECKED_AT :])
    return np.frombuffer(batch.encode(head._replace(crc=crc)) + records, np.uint8)


def written(root: Path, name: str, *batches: np.ndarray) -> Path:
    with PartitionWriter(root, name, 0) as writer:
        for each in batches:
            writer.append_batches(each)
    return writer.directory


@pytest.fixture(scope="module")
def bombs(tmp_path_factory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("bombs")
    made = {"claims-4-gib": written(root, "claims", sealed(bytes.fromhex("ffffffff0f") + b"short", Compression.SNAPPY))}
    for kind in Compression:
        name = f"counts-{kind.name}"
        made[name] = written(root, name, sealed(compress(b"a few bytes", kind), kind, 2**31 - 1))
    for kind in KINDS:
        name = f"grows-{kind.name}"
        made[name] = written(root, name, sealed(compress(bytes(8 * CAP), kind), kind))
    value, form = bytes(CAP - MIB), Form(Compression.ZSTD, batch_size=CAP)
    many = (build(Records.of([number], [T0], [None], [value]), form) for number in range(COUNT))
    return made | {"many": written(root, "many", *many)}


@pytest.fixture(scope="module")
def outcomes(bombs) -> dict[str, tuple[int, int, str]]:
    """Of a process of its own that reads all of them: records, the most memory up to there, what it said."""
    command = [sys.executable, "-c", READER, str(CAP), *map(str, bombs.values())]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    lines = (line.split(" ", 2) for line in done.stdout.splitlines())
    return dict(zip(bombs, ((int(count), int(memory), said) for count, memory, said in lines), strict=True))


@pytest.mark.parametrize("name", ["claims-4-gib", *(f"grows-{kind.name}" for kind in KINDS)])
def test_a_batch_that_grows_beyond_the_cap_or_says_so_is_refused(name, outcomes):
    count, memory, said = outcomes[name]
    assert said.startswith(f"RecordsTooLarge a batch decompresses to more than {CAP} bytes")
    assert count == 0
    assert memory < 6 * CAP


@pytest.mark.parametrize("kind", Compression, ids=lambda kind: kind.name.lower())
def test_a_batch_that_claims_2_31_records_is_refused(kind, bombs, outcomes):
    count, memory, said = outcomes[f"counts-{kind.name}"]
    assert said.startswith("MalformedLog")
    assert "2147483647 records do not fit into 11 bytes" in said
    assert count == 0
    assert memory < 6 * CAP
    assert [fault.rule for fault in check(bombs[f"counts-{kind.name}"])] == [Rule.RECORDS]


def test_a_record_that_claims_2_gib_is_refused(tmp_path):
    directory = written(tmp_path, "claims", sealed(varints.encode(2**31 - 1) + bytes(20), Compression.NONE))
    assert [fault.rule for fault in check(directory)] == [Rule.RECORDS]


def test_many_small_batches_that_grow_large_are_opened_a_few_at_a_time(bombs, outcomes):
    """Together 360 MiB from a few KiB, which would be one piece, and stand there twice."""
    assert Partition(bombs["many"]).segments[0].size < MIB
    count, memory, said = outcomes["many"]
    assert (count, said) == (COUNT, "read")
    assert memory < 300 * MIB
