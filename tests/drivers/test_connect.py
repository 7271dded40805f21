"""Jobs on a real server of Spark Connect do what they do in a session of their own."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.pipeline.loop import Loop
from tests.processes.nodes import TestNode, check_nothing_is_left, ending, free_port
from tests.requirements import need
from tests.spark.stores import MadeStore
from towline.pipeline.archive import ArchiveOptions, archive
from towline.pipeline.archive_manifest import Archive
from towline.pipeline.session import java_missing

from . import connect_client
from .connect_server import connect_server
from .test_cluster import assert_sums

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    need({} if (problem := java_missing()) is None else {"java": problem})
    with connect_server(tmp_path_factory.mktemp("connect")) as made:
        yield made


@pytest.fixture
def store(tmp_path: Path) -> MadeStore:
    return MadeStore(tmp_path / "store").whole(900)


def job(url: str, *words: object) -> "subprocess.CompletedProcess[str]":
    start = "from towline.start import main; main()"
    command = [sys.executable, "-c", start, "pipeline", *map(str, words), "--master", url, "--json"]
    return subprocess.run(command, env=os.environ, capture_output=True, text=True)


def document(done: "subprocess.CompletedProcess[str]") -> Any:
    assert done.stdout, done.stderr
    return json.loads(done.stdout)


def test_one_that_asks_by_sql(url: str, store: MadeStore) -> None:
    done = job(url, "stats", "--store", store.root, "--by", "queue")
    assert done.returncode == 0, done.stdout + done.stderr
    assert_sums(document(done), store)


def test_one_that_writes_files_in_waves(url: str, store: MadeStore, tmp_path: Path) -> None:
    done = job(url, "archive", "--store", store.root, "--out", tmp_path / "there", "--no-tell")
    assert done.returncode == 0, done.stdout + done.stderr
    archive(ArchiveOptions(store=str(store.root), out=str(tmp_path / "here"), tell=False), Loop())
    assert Archive.open(tmp_path / "there").segments == Archive.open(tmp_path / "here").segments


def test_one_that_shuffles(url: str, store: MadeStore, tmp_path: Path) -> None:
    done = job(url, "compact", "--store", store.root, "--topic", "TopicA", "--out", tmp_path / "out")
    assert done.returncode == 0, done.stdout + done.stderr
    keys = {row["keys"] for row in store.rows if row["topic"] == "TopicA" and row["keys"]}
    assert document(done)["summary"]["keys"] == len(keys)


def test_what_a_job_refuses_and_what_a_task_met_are_said_as_elsewhere(url: str, store: MadeStore) -> None:
    row = store.rows[300]
    store.write(row["commitLogOffset"] + 4, b"\x00\x01")
    done = job(url, "stats", "--store", store.root)
    assert done.returncode == 1
    said = document(done)
    assert str(row["commitLogOffset"]) in said["sentence"]
    assert "--on-corruption skip" in said["sentence"]


@pytest.mark.parametrize(("port", "said"), [("1", "Connection refused"), ("nowhere", "no master URL")])
def test_a_server_that_is_not_there_is_named_soon(store: MadeStore, port: str, said: str) -> None:
    done = job(f"sc://127.0.0.1:{port}", "stats", "--store", store.root)
    assert done.returncode in (1, 2)
    assert said in document(done)["sentence"]


def test_a_session_of_the_server_writes_through_the_sink_and_streams(url: str, tmp_path: Path) -> None:
    node = TestNode("master", tmp_path / "node", listen_port=free_port(), ha_listen_port=0)
    with ending(node):
        node.start()
        [endpoint] = node.facts["endpoints"]["remoting"]
        words = [connect_client.__file__, url, endpoint, node.store.root, tmp_path / "checkpoint"]
        done = subprocess.run([sys.executable, *map(str, words)], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout) == {topic: list(range(100)) for topic in ("batch", "streamed")}
        assert node.stop()
        check_nothing_is_left(node)
