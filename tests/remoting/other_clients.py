"""Real clients in Go and Node: built at first use, below a directory of its own for each state of their sources."""

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from tests.processes.waiting import await_
from tests.requirements import need
from towline.format.remoting.codes import RequestCode

from .raw import RawClient

HERE: Final = Path(__file__).parent
BUILD_S: Final = 600.0  # a first build fetches and compiles everything
RUN_S: Final = 240.0
ROUTE_S: Final = 60.0
QUEUES: Final = 4
# The compiled program has to run here alone; no other compiler than the one that is installed is fetched for it.
GO: Final = {"CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOFLAGS": "-mod=readonly -buildvcs=false", "GOWORK": "off"}


@dataclass(frozen=True)
class Program:
    """What starts it, before its own words."""

    words: Sequence[str]
    environment: dict[str, str] = field(default_factory=dict)

    def run(self, what: str, address: str, topic: str) -> list[str]:
        """What it prints, with TOPIC for the name of its topic."""
        with TemporaryDirectory() as home:  # offsets of broadcasting consumers
            done = subprocess.run(
                [*self.words, what, address, topic],
                capture_output=True,
                text=True,
                timeout=RUN_S,
                check=False,
                env={**os.environ, **self.environment, "HOME": home},
            )
        assert done.returncode == 0, f"{done.stdout}{done.stderr}"
        return done.stdout.replace(topic, "TOPIC").splitlines()

    def run_at_both(self, what: str, addresses: Iterable[str], topic: str) -> list[list[str]]:
        """The transcripts of two runs at the same time, which wait for the most part."""
        with ThreadPoolExecutor() as pool:
            return list(pool.map(lambda address: self.run(what, address, topic), addresses))


def go_program(cache: Path, source: Path = HERE / "go") -> Program:
    """A program in Go, by default the clients. Where Go is missing, or its modules are not to be had, the test ends."""
    _need("go", "go", "golang-go")
    made = cache / f"go-{_digest(source, '*.go', 'go.*')}"
    if not made.exists():
        _fetch("go", ["go", "list", "-deps", "."], source, GO)
        fresh = made.with_suffix(f".{os.getpid()}")
        # What is compiled without optimizations is there sooner, and these programs wait for the most part.
        _run(["go", "build", "-gcflags=all=-N -l", "-ldflags=-s -w", "-o", str(fresh), "."], source, GO)
        fresh.replace(made)
    return Program([str(made)])


def node_program(cache: Path) -> Program:
    """The clients in Node. Where there is no Node, or its packages are not to be had, the test ends."""
    source = HERE / "node"
    _need("npm", "node", "nodejs")
    _need("npm", "npm", "npm")
    made = cache / f"node-{_digest(source, 'package*.json')}"
    if not made.exists():
        fresh = made.with_suffix(f".{os.getpid()}")
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir()
        for file in source.glob("package*.json"):
            shutil.copy(file, fresh)
        _fetch("npm", ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"], fresh, {})
        fresh.replace(made)
    return Program(["node", str(source / "clients.js")], {"NODE_PATH": str(made / "node_modules")})


def make_topic(address: str, topic: str) -> None:
    """Makes a topic on the broker that a name server names, and waits until it is told of there."""
    fields = {"topic": topic, "defaultTopic": "TBW102", "readQueueNums": QUEUES, "writeQueueNums": QUEUES,
              "perm": 6, "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false"}  # fmt: skip
    with RawClient(_port(address)) as names, RawClient(_broker_of(names)) as broker:
        assert broker.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, fields).code == 0

        def known() -> bool:
            return names.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic}).code == 0

        await_(known, ROUTE_S, f"a route of {topic}")


def warm(address: str) -> None:
    """Has a broker store its first message, which may take longer than a client in Go waits."""
    with RawClient(_port(address)) as names, RawClient(_broker_of(names)) as broker:
        assert broker.put("warm", b"first").code == 0


def with_broker(address: str) -> RawClient:
    """A connection to the broker that a name server names."""
    with RawClient(_port(address)) as names:
        return RawClient(_broker_of(names))


def await_registered(address: str) -> None:
    """Waits until a name server names a broker."""
    with RawClient(_port(address)) as names:
        _broker_of(names)


def _broker_of(names: RawClient) -> int:
    """The port of the broker that a name server names, once it names one: a broker may register late."""
    fields = {"topic": "TBW102", "acceptStandardJsonOnly": "true"}

    def known() -> bool:
        return names.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, fields).code == 0

    await_(known, ROUTE_S, "a broker that is registered")
    template = names.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, fields)
    return _port(json.loads(bytes(template.body))["brokerDatas"][0]["brokerAddrs"]["0"])


def _port(address: str) -> int:
    return int(address.rpartition(":")[2])


def _need(name: str, tool: str, package: str) -> None:
    if shutil.which(tool) is None:
        need({name: f"{tool} is not installed: Debian has it as {package}"})


def _digest(source: Path, *patterns: str) -> str:
    files = sorted(file for pattern in patterns for file in source.glob(pattern))
    return hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()[:16]


def _fetch(name: str, words: Sequence[str], directory: Path, environment: dict[str, str]) -> None:
    """What comes over the network; the test ends where it does not."""
    try:
        _run(words, directory, environment)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        need({name: f"{' '.join(words)} failed: {str(error.stderr)[-500:]}"})
        raise


def _run(words: Sequence[str], directory: Path, environment: dict[str, str]) -> None:
    try:
        subprocess.run(
            words,
            cwd=directory,
            env={**os.environ, **environment},
            check=True,
            timeout=BUILD_S,
            capture_output=True,
            text=True,
        )
    except subprocess.CalledProcessError as error:
        error.add_note(f"{error.stdout}{error.stderr}")
        raise
