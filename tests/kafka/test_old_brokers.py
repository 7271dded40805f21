"""Log directories of brokers with ZooKeeper, from 0.8 on, that ran here: messages of magic 0 and 1, indexes of old."""

import json
import os
import re
import subprocess
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from tests.kafka.samples import T0, Row, read, rows_in
from tests.kafka.test_dump import dump, of
from towline.kafka.format.batch import Compression
from towline.kafka.log.checking import check
from towline.kafka.log.log_directory import LogDirectory
from towline.kafka.log.partition import Partition
from towline.kafka.log.recovery import recover
from towline.link.free_port import free_port
from towline.parent import die_with_parent

COUNT: Final = 300  # of OldBroker.java, which makes the same records as `record`
FILL_S: Final = 120.0
SMALL: Final = {"segment.bytes": "6000", "index.interval.bytes": "300"}
CLEANED: Final = {"segment.bytes": "3000", "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
APPENDED: Final = {"message.timestamp.type": "LogAppendTime"}
OLDER: Final = {"message.format.version": "0.9.0.0"}  # such a broker makes messages of magic 0 of all it gets
OF_MAGIC_0: Final = ("0.8.2.2", "0.9.0.1")
OF_MAGIC_2: Final = ("0.11.0.3", "1.1.1", "2.8.2")
PACKED: Final = ("none", "gzip", "snappy", "lz4")
DUMPED = re.compile(r"^\| offset: (\d+) \w+: (-?\d+) keySize: (-?\d+) valueSize: (-?\d+) ", re.MULTILINE)


@dataclass(frozen=True)
class Old:
    """What a broker of that version left behind a clean stop: a topic for each compression and way of its times."""

    version: str
    data: Path
    topics: dict[str, str]  # to compressions

    def magic(self, topic: str) -> int:
        if self.version in OF_MAGIC_2:
            return 2
        return 0 if self.version in OF_MAGIC_0 or topic.startswith("zero") else 1

    def has_times(self, topic: str) -> bool:
        return self.magic(topic) > 0

    def partition(self, topic: str) -> Partition:
        return Partition(self.data / f"{topic}-0")


def record(number: int, compacted: bool, has_times: bool) -> Row:
    """As OldBroker.java makes it."""
    words = ["value", *(str((number * 2654435761 + j * 40503) % 2**32) for j in range(number % 20))]
    key = b"key %d" % (number * number % 97 if compacted else number)
    value = " ".join(words).encode()
    time = T0 + number if has_times else -1
    if compacted:
        return number, time, key, value, []
    return number, time, key if number % 7 else None, value if number % 11 else None, []


def filled(version: str, class_path: str, directory: Path) -> Old:
    """It starts with its ZooKeeper in one JVM, fills its topics, and stops."""
    topics = {kind: (kind, SMALL) for kind in (*PACKED, *(["zstd"] if version == "2.8.2" else []))}
    topics["compacted"] = "gzip", CLEANED
    if version not in OF_MAGIC_0:
        topics |= {"appended-gzip": ("gzip", SMALL | APPENDED), "appended-none": ("none", SMALL | APPENDED)}
    if version == "0.10.2.2":
        topics |= {f"zero-{kind}": (kind, SMALL | OLDER) for kind in PACKED}
        topics["zero-compacted"] = "gzip", CLEANED | OLDER
    words = [f"{name};{kind};{json.dumps(config)}" for name, (kind, config) in topics.items()]
    (directory / "log4j.properties").write_text(LOGGED)
    command = [
        "java",
        "-Xmx512m",
        "-XX:TieredStopAtLevel=1",
        f"-Dlog4j.configuration=file:{directory}/log4j.properties",
    ]
    command += ["-cp", class_path, "towline.kafka.OldBroker", str(directory)]
    command += [str(free_port()), str(free_port()), str(COUNT), *words]
    with (directory / "said").open("w+") as said:
        # Its input has ended, so that it stops when it has filled them.
        subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            timeout=FILL_S,
            check=False,
            preexec_fn=partial(die_with_parent, os.getpid()),
        )
        said.seek(0)
        lines = said.read().splitlines()
    assert "filled" in lines, "\n".join(lines[-20:])
    return Old(version, directory / "data", {name: kind for name, (kind, _) in topics.items()})


LOGGED: Final = """\
log4j.rootLogger=WARN, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=%p %c %m%n
"""
SLOW: Final = [
    pytest.param((version, scala), marks=pytest.mark.slow, id=version)
    for version, scala in (
        ("0.8.2.2", "2.11"),
        ("0.9.0.1", "2.11"),
        ("0.11.0.3", "2.11"),
        ("1.1.1", "2.11"),
        ("2.8.2", "2.13"),
    )
]


@pytest.fixture(scope="module", params=[pytest.param(("0.10.2.2", "2.11"), id="0.10.2.2"), *SLOW])
def old(request, old_classes, tmp_path_factory) -> Old:
    version, scala = request.param
    return filled(version, old_classes(version, scala), tmp_path_factory.mktemp("old"))


def wanted(old: Old, topic: str) -> list[Row]:
    return [record(number, "compacted" in topic, old.has_times(topic)) for number in range(COUNT)]


def without_times(rows: list[Row]) -> list[Row]:
    return [(row[0], 0, *row[2:]) for row in rows]


def test_we_read_every_record_that_was_produced(old):
    directory = LogDirectory(old.data)
    assert directory.meta.node_id in (0, None)  # 0.8 wrote no id
    known = {each.topic: each for each in directory.partitions()}
    assert set(known) == set(old.topics)
    for topic, kind in old.topics.items():
        pieces = list(known[topic].read())
        rows = read(pieces)
        if "compacted" in topic:
            assert len(rows) < COUNT, topic
            assert {row[2]: row for row in rows} == {row[2]: row for row in wanted(old, topic)}, topic
            assert [row for row in rows if row not in wanted(old, topic)] == [], topic
        elif topic.startswith("appended"):
            assert without_times(rows) == without_times(wanted(old, topic)), topic
            assert all(row[1] > T0 + 10**9 for row in rows), topic
        else:
            assert rows == wanted(old, topic), topic
        kinds = {int(number) & 7 for each in pieces for number in each.batches["attributes"]}
        left_alone = {Compression.NONE} if "compacted" in topic else set()  # 0.8 leaves one message of a set so
        assert kinds - left_alone == {Compression[kind.upper()]}, topic
        assert {int(number) for each in pieces for number in each.of_batch("magic")} == {old.magic(topic)}, topic


def test_we_read_from_any_offset_of_many_segments(old):
    for topic in old.topics:
        partition, rows = old.partition(topic), rows_in(old.data / f"{topic}-0")
        assert len(partition.segments) > 2, topic
        assert partition.end == COUNT, topic
        for start in range(0, COUNT, 37):
            assert read(list(partition.read(start, start + 20))) == [
                row for row in rows if start <= row[0] < start + 20
            ]


def test_we_find_offsets_by_times(old):
    for topic in old.topics:
        partition, rows = old.partition(topic), rows_in(old.data / f"{topic}-0")
        times = [row[1] for row in rows]
        for time in [times[0], times[len(times) // 2], times[-1], times[-1] + 1] if old.has_times(topic) else [T0]:
            assert partition.offset_at(time) == next((row[0] for row in rows if row[1] >= time), None), (topic, time)


def test_nothing_is_wrong_with_its_files(old):
    for topic in old.topics:
        assert check(old.data / f"{topic}-0") == [], topic


def test_recovery_keeps_every_record(old, tmp_path):
    for topic in old.topics:
        copy = tmp_path / f"{topic}-0"
        copy.mkdir()
        for segment in old.partition(topic).segments:
            (copy / segment.log.name).write_bytes(segment.log.read_bytes())
        assert recover(copy).end == COUNT, topic
        assert rows_in(copy) == rows_in(old.data / copy.name), topic
        assert check(copy) == [], topic


def test_the_tool_of_today_reads_the_same(old, classes):
    files = {topic: of(old.data / f"{topic}-0", "*.log") for topic in old.topics}
    said = dump(classes, [path for paths in files.values() for path in paths], "--deep-iteration", "--print-data-log")
    parts = re.split(r"^Dumping (\S+)$", said, flags=re.MULTILINE)
    of_path = {Path(path): DUMPED.findall(text) for path, text in zip(parts[1::2], parts[2::2], strict=True)}
    for topic, paths in files.items():
        found = [tuple(map(int, numbers)) for path in paths for numbers in of_path[path]]
        rows = rows_in(old.data / f"{topic}-0")
        sizes = [[-1 if part is None else len(part) for part in row[2:4]] for row in rows]
        assert found == [(row[0], row[1], *size) for row, size in zip(rows, sizes, strict=True)], topic
    assert f"payload: value {2654435761}" in said
