"""kill -9 of a driver in the middle of each job that writes, and of a batch write: run again, all is there once."""

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.pipeline.loop import Loop
from tests.pipeline.test_replay import stored
from tests.processes.nodes import TestNode, ending, free_port
from tests.processes.waiting import await_
from tests.requirements import need
from tests.spark.class_archive import JAVA_OPTIONS, java_options
from tests.spark.sessions import QUICK
from tests.spark.stores import MadeStore
from towline.pipeline.archive import ArchiveOptions, archive
from towline.pipeline.archive_manifest import Archive
from towline.pipeline.session import java_missing
from towline.runtime.positions import Position

from .killed_drivers import LIFE_S, REPOSITORY, kill

pytestmark = pytest.mark.timeout(900)
MESSAGES: Final = 12_000
TOPIC: Final = "TopicA"
SETTINGS: Final = dict(QUICK) | {JAVA_OPTIONS: java_options()}
Row = dict[str, Any]


def filled(root: Path) -> MadeStore:
    made = MadeStore(root)
    for number in range(MESSAGES):
        made.put(f"Topic{'ABC'[number % 3]}", number % 2, b"%08d" % number * 40, keys=f"k{number}")
    return made.dispatch().safe()


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> MadeStore:
    need({} if (problem := java_missing()) is None else {"java": problem})
    return filled(tmp_path_factory.mktemp("source") / "store")


@pytest.fixture(scope="module")
def archived(source: MadeStore, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("archived") / "archive"
    archive(ArchiveOptions(store=str(source.root), out=str(out), tell=False), Loop())
    return out


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestNode]:
    made = TestNode(
        "master", tmp_path_factory.mktemp("node") / "store", ha_listen_port=free_port(), default_topic_queue_nums=4
    )
    with ending(made):
        made.start()
        yield made
        made.stop()


def job(*words: object) -> list[str]:
    conf = [word for key, value in SETTINGS.items() for word in ("--conf", f"{key}={value}")]
    start = "from towline.start import main; main()"
    return [sys.executable, "-c", start, "pipeline", *map(str, words), "--master", "local[2]", *conf]


def killed_and_run_again(command: list[str], has_begun: Callable[[], object]) -> None:
    """Kills it once it has begun to write, which it must not have ended by then; then it runs to its end."""
    pipe = subprocess.PIPE
    first = subprocess.Popen(command, cwd=REPOSITORY, stdin=subprocess.DEVNULL, stdout=pipe, stderr=subprocess.STDOUT)
    await_(lambda: has_begun() or first.poll() is not None, LIFE_S, "the job writes")
    assert first.poll() is None, f"it ended first: {first.communicate()[0].decode()[-3000:]}"
    kill(first)
    again = subprocess.run(command, cwd=REPOSITORY, env=os.environ, capture_output=True, text=True, timeout=LIFE_S)
    assert again.returncode == 0, again.stdout + again.stderr


def files_of(out: Path, count: int) -> Callable[[], bool]:
    """Whether so many files are in its staging, or have left it."""

    def there() -> bool:
        return sum(path.suffix not in (".json", "") or path.name == "part" for path in out.rglob("*")) >= count

    return there


def grown(node: TestNode, more: int) -> Callable[[], bool]:
    before = node.at(Position.APPENDED)
    return lambda: node.at(Position.APPENDED) >= before + more


def bodies_of(made: MadeStore, topic: str = "", *, full: bool = False) -> Counter[bytes]:
    end = made.end - made.end % made.segment_size if full else made.end
    chosen = (row for row in made.rows if row["commitLogOffset"] < end and (not topic or row["topic"] == topic))
    return Counter(row["body"] for row in chosen)


def queues_of(made: MadeStore) -> dict[Path, bytes]:
    """What queue files hold, without the zeros behind their last entry."""
    paths = (path for path in made.store.consumequeue.rglob("*") if path.is_file())
    return {path.relative_to(made.root): path.read_bytes().rstrip(b"\0") for path in paths}


def parquet(paths: list[Path]) -> Counter[bytes]:
    tables = [pq.read_table(path, columns=["body"], partitioning=None) for path in paths]
    return Counter(pa.concat_tables(tables)["body"].to_pylist())


def test_archive(source: MadeStore, tmp_path: Path) -> None:
    out = tmp_path / "out"
    killed_and_run_again(job("archive", "--store", source.root, "--out", out, "--no-tell"), files_of(out, 40))
    named = [out / file.name for segment in Archive.open(out).segments.values() for file in segment.files]
    assert set(out.rglob("*.parquet")) == set(named), "no orphan"
    assert parquet(named) == bodies_of(source, full=True)


def test_export(source: MadeStore, tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = ("export", "--store", source.root, "--out", out, "--format", "parquet")
    killed_and_run_again(job(*words), files_of(out, 1))
    manifest = json.loads((out / "manifest.json").read_text(encoding="utf-8"))
    assert {path.name for path in out.glob("part-*")} == {each["path"] for each in manifest["files"]}
    assert parquet(sorted(out.glob("part-*"))) == bodies_of(source)


@pytest.mark.slow
def test_compact_into_files(source: MadeStore, tmp_path: Path) -> None:
    out = tmp_path / "out"
    killed_and_run_again(job("compact", "--store", source.root, "--topic", TOPIC, "--out", out), files_of(out, 1))
    assert parquet(sorted(out.glob("part-*"))) == bodies_of(source, TOPIC), "each key has one message"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["replay", "restore", "compact"])
def test_what_sends_to_a_topic(source: MadeStore, archived: Path, node: TestNode, name: str) -> None:
    into = f"by-{name}"
    read = ("--archive", archived) if name == "restore" else ("--store", source.root)
    words = (name, *read, "--topic", TOPIC, "--into", into, "--endpoint", node.endpoint, "--wait-ms", "1200")
    killed_and_run_again(job(*words), grown(node, 100_000))
    assert Counter(message.body for message in stored(node, into)) == bodies_of(source, TOPIC, full=name == "restore")


def test_a_batch_write_with_an_identity(source: MadeStore, node: TestNode) -> None:
    words = [str(source.root), str(node.store.root), TOPIC, "by-batch", json.dumps(SETTINGS)]
    killed_and_run_again([sys.executable, "-m", "tests.drivers.batch_driver", *words], grown(node, 100_000))
    assert Counter(message.body for message in stored(node, "by-batch")) == bodies_of(source, TOPIC)


@pytest.mark.slow
def test_rebuild(tmp_path: Path) -> None:
    made = filled(tmp_path / "store")
    before = queues_of(made)
    killed_and_run_again(
        job("rebuild", "--store", made.root, "--parts", "queues", "--old", "remove"),
        lambda: any(path.stat().st_size for path in made.store.staging.rglob("0*") if path.is_file()),
    )
    assert queues_of(made) == before
    assert not made.store.staging.exists() or not list(made.store.staging.iterdir())
