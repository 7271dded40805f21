"""Runs a drill from its first node to its verdict."""

import random
import secrets
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import orjson

from towline.client.admin import AdminClient
from towline.errors import TowlineError

from .check import check
from .disks import disk_full, slow_disk, small_disk
from .drill import Drill, Say
from .errors import DrillFailed, DrillImpossible
from .ground import Ground, Shape, given_ground, own_ground
from .history import STORES
from .load import QUEUES, VerifiedLoad
from .network import Filtered, Network, Proxied, namespace, why_no_namespace
from .nodes import Held
from .operations import write_operations
from .scenarios import kill_master, kill_process, kill_slave, partition, pause_slave, rejoin_diverged, rolling_restart
from .watch import Watch
from .witnesses import Witnesses

WITH_TAIL: Final = "rejoin-diverged"  # an idempotent producer writes none: it waits for the promise of what is stored
DRILLS: Final[MappingProxyType[str, Callable[[Drill], None]]] = MappingProxyType(
    {
        "kill-master": kill_master,
        "kill-slave": kill_slave,
        "kill-process": kill_process,
        "pause-slave": pause_slave,
        "partition": partition,
        WITH_TAIL: rejoin_diverged,
        "slow-disk": slow_disk,
        "disk-full": disk_full,
        "rolling-restart": rolling_restart,
    }
)
PROCESSES: Final = ("put", "flush", "send", "receive", "reput", "allocate")  # of kill-process, where all drills are run
OWN_ONLY: Final = ("partition", "disk-full")  # they need a network, a disk, of their own making
DELAY_S: Final = 0.2
WARM_MAX_S: Final = 30.0
WARM: Final = 200  # acknowledgements before anything is done
PRODUCERS: Final = 2
_WORTH: Final = ("sent", "acknowledged", "stored", "unknown", "lost", "doubled", "without_service_s")


@dataclass(frozen=True)
class DrillPlan:
    """`shape.disk` is filled in by the drill that needs it; `seed` 0: one is drawn, and printed."""

    name: str
    rounds: int = 1
    seconds: float = 3.0
    rate: int = 2000
    shape: Shape = field(default_factory=Shape)
    seed: int = 0
    target: str = "put"  # of kill-process
    by: str = "auto"  # of partition
    history: bool = False  # witnesses, and operations for a checker
    plain: bool = False  # producers that are not idempotent, for nodes that know no others
    cluster: Path | None = None
    group: str | None = None

    @property
    def label(self) -> str:
        return f"{self.name} {self.target}" if self.name == "kill-process" else self.name


def run_drill(plan: DrillPlan, keep: Path, say: Say, held: Held) -> dict[str, Any]:
    """The result as JSON can carry it; `keep` gets history, events, samples, and the stores where it has not passed.

    Raises DrillImpossible, DrillFailed before there is a history; later failures are in the result.
    """
    if plan.cluster is not None and plan.name in OWN_ONLY:
        raise DrillImpossible(plan.name, "it needs a cluster of its own; leave out --cluster")
    plan = replace(plan, seed=plan.seed or secrets.randbits(32))
    with ExitStack() as stack:
        with held():
            root = Path(tempfile.mkdtemp(prefix="towline-drill-"))
            stack.callback(shutil.rmtree, root, ignore_errors=True)
        try:
            ground = stack.enter_context(_ground(plan, root, held))
        except DrillImpossible:
            raise
        except TowlineError as error:
            if plan.cluster is not None:
                raise
            _keep(root, keep, whole=True, stores=True)
            raise DrillFailed(f"{type(error).__name__}: {error.describe()}", str(keep)) from error
        result = _play(plan, ground, root, say)
        _keep(root, keep, whole=not result["passed"], stores=plan.cluster is None)
    return result


@contextmanager
def _ground(plan: DrillPlan, root: Path, held: Held) -> Iterator[Ground]:
    with ExitStack() as stack:
        if plan.cluster is not None:
            yield given_ground(plan.cluster, plan.group, held)  # it stays as it is
            return
        shape = plan.shape
        if plan.name == "disk-full":
            shape = replace(shape, disk=stack.enter_context(small_disk(root, held)))
        network = stack.enter_context(_network(plan))
        ground = own_ground(root, shape, network, PRODUCERS, held)
        stack.callback(ground.end)
        ground.start()
        yield ground


@contextmanager
def _network(plan: DrillPlan) -> Iterator[Network]:
    if plan.name != "partition":
        yield Network()
        return
    why = why_no_namespace()
    if plan.by == "namespace" and why:
        raise DrillImpossible("partition", why)
    if plan.by in ("proxy", "delay") or why:
        yield Proxied(DELAY_S if plan.by == "delay" else 0.0)
        return
    with namespace() as found:
        network: Filtered = found
        yield network


def _play(plan: DrillPlan, ground: Ground, root: Path, say: Say) -> dict[str, Any]:
    began = time.monotonic()
    endpoints = [ground.endpoints(client) for client in range(PRODUCERS)]
    idempotent = not plan.plain and plan.name != WITH_TAIL
    load = VerifiedLoad(root, endpoints, began, rate=plan.rate, seed=plan.seed, idempotent=idempotent)
    watch = Watch(ground, load, began)
    witnesses = Witnesses(endpoints if plan.history else (), load.topics, began, plan.seed)
    target = plan.by if plan.name == "partition" else plan.target
    draw = random.Random(plan.seed)
    drill = Drill(ground, load, watch, root, draw, say, plan.seconds, target, {}, [])
    failure = ""
    try:
        topics = [*load.topics, *witnesses.topics]
        _create_topics(endpoints[0], topics)
        ground.await_topics(topics)
        load.start()
        witnesses.start()
        watch.start()
        drill.await_acknowledged(WARM, WARM_MAX_S)
        for number in range(plan.rounds):
            if plan.rounds > 1:
                say(f"round {number + 1} of {plan.rounds}")
            DRILLS[plan.name](drill)
        drill.run_for(0.5)
        load.finish()
        witnesses.finish()
        ground.await_level()
    except DrillImpossible:
        raise
    except TowlineError as error:  # the cluster did not do what it must: the history is judged all the same
        failure = f"{type(error).__name__}: {error.describe()}"
        say(f"failed: {failure}")
    finally:
        load.close()
        witnesses.close(root)
        watch.stop() if watch.is_alive() else None
    _save(ground, load, watch, root, idempotent=idempotent)
    if plan.history:
        drill.facts["operations"] = write_operations(root)
    return _judge(plan, drill, failure, root, time.monotonic() - began)


def _create_topics(endpoints: str, topics: list[str]) -> None:
    with AdminClient(endpoints, name="towline drill", masters_only=True) as admin:
        for topic in topics:
            admin.create_topic(topic, QUEUES)


def _save(ground: Ground, load: VerifiedLoad, watch: Watch, root: Path, *, idempotent: bool) -> None:
    watch.save(root)
    stores = {f"node {node.number}": str(node.store.root) for node in ground.nodes}
    away = [f"node {number}" for number, seen in ground.observe().items() if seen is None]
    said = {
        "segment_size": ground.segment_size,
        "topics": load.topics,
        "stores": stores,
        "away": away,
        "idempotent": idempotent,
    }
    (root / STORES).write_bytes(orjson.dumps(said))


def _judge(plan: DrillPlan, drill: Drill, failure: str, root: Path, seconds: float) -> dict[str, Any]:
    drill.say("the history is checked against all logs")
    verdict = check(root)
    faults = [*([failure] if failure else []), *drill.wrong, *verdict.faults]
    events = drill.watch.faults
    catch_up = [event.end - event.healed for event in events if event.end is not None and event.healed is not None]
    back = [event.service - event.begin for event in events if event.service is not None]
    return {
        "drill": plan.label,
        "passed": not faults,
        "rounds": plan.rounds,
        "nodes": len(drill.ground.nodes),
        "failover": "etcd" if drill.ground.elects else "by hand",
        "seed": plan.seed,
        "seconds": round(seconds, 1),
        **{name: getattr(verdict, name) for name in _WORTH},
        "service_back_s": round(max(back), 3) if back else None,
        "worst_lag_bytes": drill.watch.worst_lag,
        "catch_up_s": round(max(catch_up), 3) if catch_up else None,
        "identical": verdict.identical,
        "compared_bytes": verdict.compared_bytes,
        "not_acknowledged": dict(drill.load.reasons),
        "facts": drill.facts,
        "faults": faults,
        "events": [asdict(event) for event in events],
        "verdict": asdict(verdict),
    }


def _keep(root: Path, keep: Path, *, whole: bool, stores: bool) -> None:
    """What explains the result goes where it stays."""
    keep.mkdir(parents=True, exist_ok=True)
    for path in keep.glob("node*"):  # of an earlier drill that failed
        shutil.rmtree(path, ignore_errors=True)
    for path in root.iterdir():
        if path.is_file() and path.suffix in (".json", ".jsonl"):
            shutil.copy2(path, keep / path.name)
        elif whole and stores and path.is_dir() and not path.is_mount():
            shutil.copytree(path, keep / path.name, dirs_exist_ok=True, ignore=_sockets)


def _sockets(directory: str, names: list[str]) -> set[str]:
    """What cannot be copied."""
    return {name for name in names if (Path(directory) / name).is_socket() or (Path(directory) / name).is_fifo()}
