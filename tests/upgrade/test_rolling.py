"""A group is brought from the version before to this one node by node, under a load that is checked, and back."""

import json
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from tests.processes.nodes import processes_of
from tests.processes.waiting import await_
from tests.requirements import need
from towline.errors import StartFailed
from towline.loadtest.drill import ground as grounds
from towline.loadtest.drill import run
from towline.loadtest.drill.drill import Drill
from towline.loadtest.drill.ground import Ground, Shape, own_ground
from towline.loadtest.drill.nodes import DrillNode, Seen
from towline.loadtest.drill.run import DrillPlan, run_drill
from towline.loadtest.drill.scenarios import rolling_restart

from .versions import HERE, PRESENT, Version

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
GONE_S = 20.0


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    directory = tmp_path / "t"
    directory.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(directory))
    yield
    await_(lambda: not processes_of(directory), GONE_S, "every process of the group is gone")


class Observer:
    """A process of a version, which looks at nodes of that version. Any thread may ask."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process, self._lock = process, threading.Lock()

    def look(self, store: Path) -> Seen | None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._lock:
            self._process.stdin.write(f"{store}\n")
            self._process.stdin.flush()
            facts = json.loads(self._process.stdout.readline())
        if facts is None:
            return None
        return Seen(**facts | {name: tuple(facts[name]) for name in ("in_sync", "connected")})


@contextmanager
def observing(version: Version) -> Iterator[Observer]:
    with subprocess.Popen(
        [sys.executable, str(HERE / "observer.py")],
        env=version.environment,
        cwd="/",
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield Observer(process)
        assert process.stdin is not None
        process.stdin.close()
        process.wait(GONE_S)


class VersionedNode(DrillNode):
    """`next` is the version that its next start is of, `runs` that of the last one, whose commands it is asked by."""

    observers: dict[Version, Observer]
    next: Version
    runs: Version

    def spawn(self) -> None:
        self.runs, self.environment = self.next, self.next.environment
        super().spawn()

    def observe(self) -> Seen | None:
        return self.observers[self.runs].look(self.store.root)


def must_run(ground: Ground, version: Version) -> None:
    for node in ground.nodes:
        for pid in node.pids().values():
            said = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            assert f"PYTHONPATH={version.root}".encode() in said, f"node {node.number} is none of {version.name}"


def drilled_through(
    before: Version, shape: Shape, kept: Path, monkeypatch: pytest.MonkeyPatch, observers: dict[Version, Observer]
) -> dict[str, Any]:
    """The result of a drill in which every node goes up, and down again."""
    made: list[Ground] = []

    def ground_of_before(*given: Any) -> Ground:
        made.append(own_ground(*given))
        return made[0]

    def promote(store: Path, *, timeout_s: float) -> dict[str, Any]:
        node = next(node for node in made[0].nodes if node.store.root == store)
        assert isinstance(node, VersionedNode)
        done = node.runs.towline("promote", "--store", str(store), "--timeout", str(timeout_s), "--json")
        if done.returncode != 0:
            raise StartFailed(f"the promotion of {store}", done.stdout + done.stderr)
        return {}

    def up_and_down(drill: Drill) -> None:
        for old, new in ((before, PRESENT), (PRESENT, before)):
            must_run(drill.ground, old)
            VersionedNode.next = new
            drill.say(f"from {old.name} to {new.name}")
            rolling_restart(drill)
            must_run(drill.ground, new)

    monkeypatch.setattr(VersionedNode, "observers", observers, raising=False)
    monkeypatch.setattr(VersionedNode, "next", before, raising=False)
    monkeypatch.setattr(VersionedNode, "runs", before, raising=False)
    monkeypatch.setattr(grounds, "DrillNode", VersionedNode)
    monkeypatch.setattr(grounds, "promote", promote)
    monkeypatch.setattr(run, "own_ground", ground_of_before)
    monkeypatch.setattr(run, "DRILLS", {"upgrade": up_and_down})
    # The version before may know no idempotent producers.
    return run_drill(DrillPlan("upgrade", rate=1000, shape=shape, plain=True), kept, print, nullcontext)


@pytest.mark.parametrize("shape", [Shape(3, 2), Shape(2, 1, etcd=True)], ids=["1+2, by hand", "1+1, by etcd"])
def test_a_group_goes_up_node_by_node_and_back(before: Version, temporary, tmp_path: Path, monkeypatch, shape: Shape):
    """Slaves first, then the role moves to one of them, then the old master. Nothing acknowledged is lost by it."""
    if shape.etcd and shutil.which("etcd") is None:
        need({"etcd": "there is no etcd (Debian: etcd-server)"})
    with ExitStack() as stack:
        observers = {version: stack.enter_context(observing(version)) for version in (before, PRESENT)}
        result = drilled_through(before, shape, tmp_path / "kept", monkeypatch, observers)
    print(json.dumps(result["verdict"]))
    assert result["passed"], result["faults"]
    assert (result["lost"], result["identical"]) == (0, True)
    assert len(result["events"]) == 2 * shape.nodes
    assert result["acknowledged"] > 1000
