"""What is said of processes and memory of a node that runs: the remedy that is named is typed, and it then works."""

import json
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.processes.nodes import processes_of
from tests.processes.stopping import stopped
from tests.processes.tracing import strace, traced
from tests.processes.waiting import await_
from towline.places import Store

from .typist import TYPED, Done, Typist

pytestmark = pytest.mark.slow  # starts and stops of nodes: `make soak` types them

FLUSH = "flush_disk_type=SYNC_FLUSH"
LAYOUT_WORD = 1  # of the positions file


def started(typist: Typist, *more: str) -> str:
    """A node with one message in it. The command that stored it."""
    put = f"towline put orders hello --store {typist.store}"
    typist.works(f"towline master start --store {typist.store}", *more)
    typist.works(put)
    return put


def status_of(typist: Typist) -> Any:
    return typist(f"towline master status --store {typist.store}").document


def pid_of(typist: Typist, duty: str) -> int:
    [pid] = [row["pid"] for row in status_of(typist)["processes"] if row["duty"] == duty]
    return int(pid)


def memory_of(typist: Typist) -> Path:
    return Path(json.loads(Store(typist.store).node.read_bytes())["runtime"])


def stop(typist: Typist, typed: str) -> Done:
    """A node that could not keep its promise stops, and says by its exit status that it is not clean."""
    done = typist(typed)
    assert not processes_of(typist.store), done
    return done


@strace
def test_a_node_whose_sync_failed_is_stopped_mended_and_started(typist: Typist) -> None:
    put = started(typist, "--set", FLUSH)
    start, status = (f"towline master {verb} --store {typist.store}" for verb in ("start", "status"))
    failing = ["-e", "trace=msync", "-e", "inject=msync:error=EIO", "-o", "/dev/null"]
    with traced(failing, [pid_of(typist, "flush")]):
        late = typist(put)
    assert "FLUSH_DISK_TIMEOUT" in late.out + late.err
    refused, shown = typist(put), typist.shown(status)
    assert "sync_failed" in refused.document["sentence"]
    stops, mends = TYPED.findall(shown[shown.index("nothing more is promised") : shown.index("and start it again")])
    assert TYPED.findall(refused.document["remedy"]) == [stops, mends]
    assert stop(typist, stops).document["clean"] is False
    assert typist.refused(start) == [mends]
    typist.works(mends)
    typist.works(start, "--set", FLUSH)
    typist.works(put)
    assert "mend" not in typist.shown(status)


def test_a_process_that_a_signal_has_stopped_goes_on_by_another(typist: Typist) -> None:
    put = started(typist)
    with stopped(pid_of(typist, "reput")):

        def told() -> list[dict[str, Any]]:
            return list(status_of(typist)["standing_still"])

        [row] = await_(told, 60.0, "status says that it stands still")
        [typed] = TYPED.findall(row["sentence"])
        subprocess.run(shlex.split(typed), check=True)
        await_(lambda: not told(), 60.0, "it goes on")
    typist.works(put)
    typist.works(f"towline get orders --max 2 --store {typist.store}")


def test_a_table_of_a_running_node_that_is_gone_is_made_by_its_next_start(typist: Typist) -> None:
    put = started(typist)
    (memory_of(typist) / "queue_ends").unlink()
    status = f"towline master status --store {typist.store}"
    refused = typist(status)
    assert refused.document["error"] == "PositionsUnusable"
    stops, starts, _ = TYPED.findall(refused.document["remedy"])
    typist.works(stops)
    typist.works(starts)
    typist.works(status)
    typist.works(put)


def gone(memory: Path) -> None:
    shutil.rmtree(memory)


def of_another_version(memory: Path) -> None:
    with (memory / "positions").open("r+b") as file:
        file.seek(8 * LAYOUT_WORD)
        file.write((99).to_bytes(8, "little"))


@pytest.mark.parametrize("memory", [gone, of_another_version])
def test_a_node_that_cannot_be_read_while_it_runs_is_stopped_and_started(typist: Typist, memory: Any) -> None:
    """Somebody cleaned its memory away, or another version of the package was installed under it."""
    put, status = started(typist), f"towline master status --store {typist.store}"
    memory(memory_of(typist))
    refused = typist(status)
    assert refused.document["error"] == "NodeNotReadable"
    stops, starts, _ = TYPED.findall(refused.document["remedy"])
    stop(typist, stops)
    typist.works(starts)
    typist.works(status)
    typist.works(put)
