"""The page "Spark on a cluster", word by word: a cluster whose Python has no package, and a real S3 server."""

import json
import os
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from tests.pages.environment import Environment
from tests.pages.reading import Place, cleared, read
from tests.pipeline import s3
from tests.repo.trees import ROOT
from tests.requirements import need
from tests.spark.pages import blocks
from tests.spark.stores import MadeStore
from towline.pipeline.session import java_missing

from .clusters import HOME, Cluster
from .connect_server import connect_server

PAGE = ROOT / "docs" / "spark-cluster.md"
MANIFEST = ROOT / "docs" / "kubernetes" / "jobs.yaml"
KUBERNETES = "1.34"


class Shell(Place):
    """One shell after the other, with what the page exports."""

    def __init__(self, directory: Path, cluster: Cluster, server: s3.Server, connect: str, wheels: Environment) -> None:
        given = {
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), str(HOME / "bin"), os.environ["PATH"]]),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PIP_FIND_LINKS": str(wheels.dist),
            "PIP_CONSTRAINT": wheels.variables["PIP_CONSTRAINT"],
        }
        super().__init__(directory, os.environ | given)
        self.ports |= {
            "9000": str(server.port),
            "7077": cluster.url.rpartition(":")[2],
            "15002": connect.rpartition(":")[2],
        }
        self.exported: dict[str, str] = {}
        self._bare = {"PYSPARK_PYTHON": str(cluster.python)}

    def python(self, code: str, page: Path) -> str:
        """In a process of its own: a session of Connect is beside no other."""
        script = self.directory / "block.py"
        script.write_text(code, encoding="utf-8")
        return super().shell(f"python {script}")

    def shell(self, command: str) -> str:
        words = shlex.split(command)
        if words[0] != "export":
            return super().shell(command)
        self.exported |= dict(word.split("=", 1) for word in words[1:])
        return ""

    def environment_of(self, command: str) -> dict[str, str]:
        """The cluster's Python is another one than that of this machine."""
        python = self._bare if "spark://" in command else {}
        return super().environment_of(command) | self.exported | python


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    with cleared(tmp_path):
        yield tmp_path


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_every_block_about_clusters_runs_where_executors_have_only_what_they_were_sent(
    directory: Path, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> None:
    problem = java_missing()
    need({} if problem is None else {"java": problem})
    made = MadeStore(directory / "store")
    for number in range(900):
        made.put(("orders", "payments")[number % 2], 0, b"%d" % number * 60, keys=f"k{number}")
    made.dispatch().safe()
    root = tmp_path_factory.mktemp("connect")
    with (
        s3.server(request.config.cache.mkdir("go"), tmp_path_factory.mktemp("s3")) as server,
        Cluster(tmp_path_factory.mktemp("spark") / "cluster", workers=1, memory="1g", bare=True) as cluster,
        connect_server(root) as connect,
    ):
        bucket = server.root / "shop"
        bucket.mkdir()
        shell = Shell(directory, cluster, server, connect, Environment(tmp_path_factory.mktemp("wheel")))
        try:
            read(shell, PAGE, blocks(PAGE.read_text(encoding="utf-8")), "/tmp/shop")
        except AssertionError as error:
            error.add_note(cluster.executors_logs()[-4_000:])
            raise
        assert cluster.executors() == 1
        texts = [path.read_text(encoding="utf-8") for path in sorted((bucket / "payments").glob("*.jsonl"))]
        found = [json.loads(line) for text in texts for line in text.splitlines()]
    archived = [row for row in made.rows if row["commitLogOffset"] < made.end - made.end % made.segment_size]
    assert [row["commitLogOffset"] for row in found] == [
        row["commitLogOffset"] for row in archived if row["topic"] == "payments"
    ]


class TestTheManifest:
    """It fits Kubernetes' schemas, and its parts name each other."""

    @pytest.fixture
    def objects(self) -> list[dict]:
        return list(yaml.safe_load_all(MANIFEST.read_text(encoding="utf-8")))

    def test_fits_the_schema_of_each_kind(self, objects):
        for found in objects:
            kubernetes_validate.validate(found, KUBERNETES, strict=True)

    def test_that_is_misspelled_would_not_fit(self, objects):
        job = next(found for found in objects if found["kind"] == "CronJob")
        job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["container"] = []
        with pytest.raises(kubernetes_validate.ValidationError):
            kubernetes_validate.validate(job, KUBERNETES, strict=True)

    def test_names_its_account_its_service_and_options_that_jobs_have(self, objects):
        by_name = {(found["kind"], found["metadata"]["name"]): found for found in objects}
        pod = by_name["CronJob", "towline-export"]["spec"]["jobTemplate"]["spec"]["template"]
        [container] = pod["spec"]["containers"]
        [line] = container["args"]
        assert ("ServiceAccount", pod["spec"]["serviceAccountName"]) in by_name
        service = by_name["Service", "towline-driver"]
        assert service["spec"]["selector"] == pod["metadata"]["labels"]
        assert "spark.driver.host=towline-driver" in line
        for port in service["spec"]["ports"]:
            assert f"ort={port['port']}" in line
        archive = by_name["CronJob", "towline-archive"]["spec"]["jobTemplate"]["spec"]["template"]["spec"]
        words = [archive["containers"][0]["command"], shlex.split(line.removeprefix("exec "))]
        for command in words:
            check_options(command)


def check_options(words: list[str]) -> None:
    """That `towline` takes them: each option of a job is one that its help names."""
    assert words[:2] == ["towline", "pipeline"]
    text = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    of_job = text[text.index(f"towline pipeline {words[2]}") :].partition("\n## ")[0]
    for word in words[3:]:
        if word.startswith("--"):
            assert word in of_job, word
