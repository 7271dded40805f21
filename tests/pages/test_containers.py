"""The image and the two nodes of compose.yaml, without Docker: files are linted, their steps followed in a venv."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.pages.containers import COMPOSE, DOCKERFILE, Step, named, runs, services
from tests.pages.environment import Environment, skip_unreachable
from tests.pages.reading import SMALL, cleared
from tests.processes.nodes import free_port
from tests.processes.waiting import await_
from tests.repo.trees import ROOT
from towline import Message, Producer, TowlineError

pytestmark = pytest.mark.timeout(600)

HEALTHY_S: Final = 120.0
STOP_S: Final = 60.0
BESIDE: Final = Path(sys.executable).parent  # the linters are installed beside this Python
OF_ROOT: Final = "useradd "  # what only an image is to do


def lint(*words: object) -> None:
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_dockerfile_is_linted() -> None:
    lint(BESIDE / "hadolint", DOCKERFILE)


def test_the_compose_file_is_what_its_specification_says() -> None:
    lint(BESIDE / "check-jsonschema", "--no-cache", "--builtin-schema", "vendor.compose-spec", COMPOSE)


def test_the_node_of_the_image_is_no_roots() -> None:
    """What starts it, and what runs behind USER, is the user's own."""
    [user] = named("USER")
    [made] = [step for step in named("RUN") if step.words.startswith(OF_ROOT)]
    assert f"--uid {user.words} " in made.words
    assert int(user.words) > 0


def test_the_image_leaves_out_what_the_wheel_is_not_made_of() -> None:
    """Everything that is packaged is sent to the builder, and nothing else."""
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    sent = {line[1:] for line in lines if line.startswith("!")}
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")} - {"peers", "tests"}
    files = {"LICENSE", "README.md", "pyproject.toml", "pyspark_towline.py", "requirements.lock"}
    assert lines[0] == "*"
    assert sent == packages | files


class Image:
    """A virtual environment in the place of the image: what the Dockerfile's steps made of it."""

    def __init__(self, home: Path) -> None:
        self._environment = Environment(home)
        self._places = {"/src": home / "tree", "/dist": home / "dist"}
        self._root = home / "root"  # nothing is there
        self._root.mkdir()
        self._variables = self._environment.variables | {
            "PATH": f"{self._environment.programs}{os.pathsep}{os.environ['PATH']}"
        }
        (home / "tree" / "requirements.lock").write_bytes((ROOT / "requirements.lock").read_bytes())

    def run(self, step: Step, where: str) -> None:
        """Skips the test where no package index can be reached."""
        command = step.words
        for place, ours in self._places.items():
            command = command.replace(place, str(ours))
        here = self._places.get(where, self._root)
        words = ["bash", "-ec", command]
        done = subprocess.run(words, cwd=here, env=self._variables, capture_output=True, text=True, check=False)
        skip_unreachable(done.stderr if done.returncode else "")
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"

    def words(self, service: dict[str, Any], store: Path, replaced: dict[str, str]) -> list[str]:
        """What starts the node of a service."""
        [entry] = named("ENTRYPOINT")
        told = [_replaced(word, {"/data": str(store), **replaced}) for word in service["command"]]
        return [str(self._environment.programs / entry.list[0]), *entry.list[1:], *told]

    def healthcheck(self, service: dict[str, Any], store: Path) -> bool:
        kind, *words = service["healthcheck"]["test"]
        assert kind == "CMD"
        command = [_replaced(word, {"/data": str(store)}) for word in words]
        done = subprocess.run(command, env=self.variables(), capture_output=True, executable=self._path(command[0]))
        return done.returncode == 0

    def variables(self, **more: str) -> dict[str, str]:
        """XDG_RUNTIME_DIR is that of now."""
        return self._variables | {"XDG_RUNTIME_DIR": os.environ["XDG_RUNTIME_DIR"]} | more

    def _path(self, program: str) -> str:
        return str(self._environment.programs / program)


def _replaced(text: str, words: dict[str, str]) -> str:
    for word, here in words.items():
        text = text.replace(word, here)
    return text


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    made = Image(tmp_path_factory.mktemp("image"))
    for where, step in runs():
        if not step.words.startswith(OF_ROOT):
            made.run(step, where)
    return made


@pytest.mark.slow
def test_the_nodes_of_the_compose_file_start_are_healthy_and_acknowledge(image: Image, tmp_path: Path) -> None:
    """On this machine's loopback: each name of a host and each published port is a port here."""
    with cleared(tmp_path) as directory, contextlib.ExitStack() as ending:
        nodes = services()
        assert set(nodes) == {"master", "slave"}
        links = {f"{name}:10912": f"127.0.0.1:{free_port()}" for name in nodes}
        clients = {name: free_port() for name in nodes}
        logs: dict[str, Path] = {}
        for name, service in nodes.items():
            given = {key: _replaced(value, links) for key, value in service["environment"].items()}
            given |= {f"TOWLINE_{key}": value for key, value in SMALL.items()}
            given["TOWLINE_LISTEN_PORT"] = str(clients[name])
            given["TOWLINE_HA_LISTEN_PORT"] = links[f"{name}:10912"].rpartition(":")[2]
            words = image.words(service, directory / name, links)
            said = directory / f"{name}.log"
            with said.open("wb") as log:
                process = subprocess.Popen(words, env=image.variables(**given), cwd=directory, stdout=log, stderr=log)
            ending.callback(process.wait, STOP_S)
            ending.callback(process.terminate)
            logs[name] = said
        for name, service in nodes.items():
            with telling(logs):
                await_(lambda s=service, n=name: image.healthcheck(s, directory / n), HEALTHY_S, f"a healthy {name}")
        with telling(logs), Producer(f"tcp://127.0.0.1:{clients['master']}") as producer:
            await_(lambda: _acknowledged(producer), HEALTHY_S, "the slave in sync")


@contextlib.contextmanager
def telling(logs: dict[str, Path]) -> Iterator[None]:
    """A failure says what the nodes said."""
    try:
        yield
    except AssertionError as error:
        raise AssertionError("\n".join([str(error), *(log.read_text() for log in logs.values())])) from error


def _acknowledged(producer: Producer) -> bool:
    """Refused until the slave is in sync."""
    try:
        return producer.send(Message("orders", b"hello")).acknowledged
    except TowlineError:
        return False


def test_a_published_port_is_on_loopback_alone() -> None:
    """The nodes are insecure."""
    for service in services().values():
        assert service["environment"]["TOWLINE_INSECURE"] == "true"
        assert all(port.startswith("127.0.0.1:") for port in service["ports"])


@pytest.mark.slow
def test_the_image_starts_a_master_where_nothing_is_said(image: Image) -> None:
    [command] = named("CMD")
    assert image.words({"command": command.list}, Path("/data"), {})[1:] == command.list
    assert command.list[:3] == ["master", "start", "--foreground"]
