"""The cluster of a drill: a group of its own below a directory, with an etcd if wanted, or one that a cluster file
describes.
"""

import ctypes
import os
import shutil
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from towline.cluster.derived import MASTER as FIRST
from towline.cluster.derived import flags_of, given_to
from towline.errors import NodeNotRunning, OrderUndone, PromotionRefused, StartFailed
from towline.limits import MIB
from towline.log.files.config_file import read_config
from towline.node.peers.promotion import promote
from towline.route.file import read_cluster

from .errors import DrillFailed, DrillImpossible
from .network import CLIENTS, ETCD, LOOPBACK, Network, free_port
from .nodes import MASTER, SLAVE, DrillNode, Held, Seen
from .waiting import await_

LEVEL_MAX_S: Final = 60.0
MASTER_MAX_S: Final = 40.0
PROMOTE_MAX_S: Final = 30.0
LEASE_MS: Final = 3000
SEGMENT: Final = 16 * MIB
SETTINGS: Final[dict[str, Any]] = {
    "mapped_file_size_commit_log": SEGMENT,
    "mapped_file_size_consume_queue": 20 * 50_000,
    "max_hash_slot_num": 50_000,
    "max_index_num": 200_000,
    "flush_disk_type": "SYNC_FLUSH",
    "metadata_interval_ms": 200,
    "slave_timeout": 1000,
}


ETCD_START_MAX_S: Final = 30.0
_DIE_WITH_PARENT: Final = 1  # PR_SET_PDEATHSIG
_LIBRARY: Final = ctypes.CDLL(None)


class EtcdServer:
    """`port` for clients; it listens on `host`."""

    def __init__(self, root: Path, host: str, held: Held) -> None:
        if shutil.which("etcd") is None:
            raise DrillImpossible("--etcd", "there is no etcd (Debian: etcd-server)")
        self._root, self._host, self._held = root, host, held
        self.port, self._peer = free_port(), free_port()
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._root.mkdir(parents=True, exist_ok=True)
        client, peer = f"http://127.0.0.1:{self.port}", f"http://127.0.0.1:{self._peer}"
        command = ["etcd", "--data-dir", str(self._root / "data"), "--name", "drill", "--logger", "zap"]
        command += ["--listen-client-urls", f"http://{self._host}:{self.port}", "--advertise-client-urls", client]
        command += ["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer]
        command += ["--initial-cluster", f"drill={peer}"]
        with (self._root / "log").open("ab") as log, self._held():
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True, preexec_fn=_tied
            )
        await_(lambda: _healthy(client), ETCD_START_MAX_S, "etcd serves")

    def end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(10)
            self._process = None


def _tied() -> None:
    """In the child: it dies with whoever started it."""
    _LIBRARY.prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    if os.getppid() == 1:
        os._exit(1)


def _healthy(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=1) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


@dataclass(frozen=True)
class Shape:
    """Of a drill's own cluster. `least`: min_in_sync_replicas; 2: nobody acknowledges alone."""

    nodes: int = 3
    least: int = 2
    etcd: bool = False
    disk: Path | None = None  # where the first master's store lies, if not beside the others


@dataclass(frozen=True)
class Replaced:
    """Who is master now, how that came, and what a promotion by hand spent its time with."""

    master: int
    how: str
    stages_ms: dict[str, float]

    @property
    def facts(self) -> dict[str, Any]:
        found: dict[str, Any] = {"new_master": self.master, "how": self.how}
        return found | ({"stages_ms": self.stages_ms} if self.stages_ms else {})


class Ground:
    """Its nodes, the ways to them, and who is master."""

    def __init__(self, nodes: Sequence[DrillNode], network: Network, etcd: EtcdServer | None, segment: int) -> None:
        self.nodes, self.network, self.etcd, self.segment_size = list(nodes), network, etcd, segment
        self.elects = etcd is not None
        self.ports: dict[int, int] = {}
        self.least = 1  # min_in_sync_replicas
        self.given_endpoints: str | None = None

    @property
    def numbers(self) -> list[int]:
        return [node.number for node in self.nodes]

    def node(self, number: int) -> DrillNode:
        return next(node for node in self.nodes if node.number == number)

    def endpoints(self, client: int) -> str:
        """Of every node's put, for one of the load's producers."""
        if self.given_endpoints is not None:
            return self.given_endpoints
        host = self.network.at
        return ",".join(f"tcp://{host(CLIENTS + client, number)}:{port}" for number, port in self.ports.items())

    def start(self) -> None:
        """The slaves, then the master, as `cluster up` does; until all are in sync."""
        if self.etcd is not None:
            self.etcd.start()
        for some in (self.nodes[1:], self.nodes[:1]):
            for node in some:
                node.spawn()
            for node in some:
                node.ready()
        self.await_in_sync()

    def end(self) -> None:
        for node in reversed(self.nodes):
            node.end()
        if self.etcd is not None:
            self.etcd.end()
        self.network.close()

    # --- observing

    def observe(self) -> dict[int, Seen | None]:
        return {node.number: node.observe() for node in self.nodes}

    def master(self, among: Sequence[int] | None = None) -> int | None:
        """The node that takes puts as the master of the greatest epoch."""
        found = [
            (seen.epoch, number)
            for number, seen in self.observe().items()
            if seen is not None and seen.role == MASTER and seen.serves and (among is None or number in among)
        ]
        return max(found)[1] if found else None

    def slaves(self) -> list[int]:
        """Every node that is not master, the running ones that hold most in front."""
        master, seen = self.master(), self.observe()
        rest = [number for number in self.numbers if number != master]
        return sorted(rest, key=lambda number: -(one.appended if (one := seen[number]) is not None else -1))

    def await_master(self, *, without: int | None = None, seconds: float = MASTER_MAX_S) -> int:
        """Raises DrillFailed."""
        among = [number for number in self.numbers if number != without]
        return await_(lambda: _boxed(self.master(among)), seconds, "a node is master")[0]  # node 0 is no false value

    def await_in_sync(self, seconds: float = LEVEL_MAX_S) -> None:
        """Until the master's recorded set has every node. Raises DrillFailed."""

        def whole() -> bool:
            seen, master = self.observe(), self.master()
            found = seen[master] if master is not None else None
            others = [one for one in seen.values() if one is not None and one.role == SLAVE]
            return found is not None and sorted(found.in_sync) == self.numbers and len(others) == len(self.nodes) - 1

        await_(whole, seconds, "all nodes are in sync")

    def await_level(self) -> int:
        """Until all hold, sync and dispatch the same; the end of their logs. Raises DrillFailed."""

        def level() -> bool:
            parts = [
                part
                for one in self.observe().values()
                for part in ((one.appended, one.flushed, one.dispatched) if one is not None else (-1,))
            ]
            return len(set(parts)) == 1 and parts[0] >= 0

        await_(level, LEVEL_MAX_S, "all nodes hold, sync and dispatch the same")
        seen = self.nodes[0].observe()
        assert seen is not None
        return seen.appended

    def await_topics(self, topics: Sequence[str]) -> None:
        """Until every node knows them: a slave asks its master for them from time to time."""

        def known() -> bool:
            said = [str(read_config(node.store.config / "topics.json")) for node in self.nodes]
            return all(topic in text for text in said for topic in topics)

        await_(known, LEVEL_MAX_S, "every node knows the topics")

    # --- changing

    def replace_master(self, old: int) -> Replaced:
        """Until another node is master, by hand unless an etcd elects. Raises DrillFailed."""
        if self.elects:
            return Replaced(self.await_master(without=old), "elected", {})
        refused: list[str] = []
        stages: dict[str, float] = {}

        def promoted() -> list[int]:
            for number in self.slaves():
                if number == old or self.node(number).observe() is None:
                    continue
                try:
                    done = promote(self.node(number).store.root, timeout_s=PROMOTE_MAX_S)
                except (PromotionRefused, NodeNotRunning, OrderUndone, StartFailed) as error:
                    refused.append(error.describe())
                    continue
                stages.update(done.get("stages_ms", {}))
                return [number]
            return []

        try:
            return Replaced(await_(promoted, PROMOTE_MAX_S, "a slave is promoted")[0], "promoted", stages)
        except DrillFailed as error:
            raise DrillFailed(f"{error.describe()}; the last refusal: {refused[-1] if refused else 'none'}") from None


def _boxed(found: int | None) -> list[int]:
    return [] if found is None else [found]


def own_ground(root: Path, shape: Shape, network: Network, clients: int, held: Held) -> Ground:
    """A group that knows itself: SYNC_FLUSH, SYNC_MASTER, PUT_OK means on the disk of two at least."""
    numbers = range(shape.nodes)
    ports = {number: (free_port(), free_port()) for number in numbers}  # put, ha
    etcd = EtcdServer(root / "etcd", network.listen, held) if shape.etcd else None
    reached: dict[int, Sequence[int]] = {**ports} | ({ETCD: (etcd.port,)} if etcd is not None else {})
    network.open(reached, [*numbers, *(CLIENTS + client for client in range(clients))])
    nodes = []
    for number in numbers:
        role = MASTER if number == 0 else SLAVE
        given = SETTINGS | _place_of(number, ports, network, shape)
        given |= {"broker_role": "SYNC_MASTER"} if role == MASTER else {}
        if etcd is not None:
            given |= {"etcd_endpoints": f"http://{network.at(number, ETCD)}:{etcd.port}", "lease_ms": LEASE_MS}
        store = shape.disk if number == 0 and shape.disk is not None else root
        flags = flags_of({key: _text(value) for key, value in given.items()})
        nodes.append(DrillNode(number, store / f"node{number}", role, flags, held=held))
    ground = Ground(nodes, network, etcd, SEGMENT)
    ground.least = shape.least
    ground.ports = {number: clients for number, (clients, _) in ports.items()}
    return ground


def _place_of(number: int, ports: dict[int, tuple[int, int]], network: Network, shape: Shape) -> dict[str, Any]:
    clients, ha = ports[number]
    return {
        "broker_id": number,
        "broker_name": "drill",
        "broker_cluster_name": "drill",
        "listen_host": network.listen,
        "insecure": network.listen != LOOPBACK,  # a network of its own, which nobody else is in
        "listen_port": clients,
        "ha_listen_port": ha,
        "ha_peers": ",".join(f"{peer}={network.at(number, peer)}:{port}" for peer, (_, port) in ports.items()),
        "total_replicas": shape.nodes,
        "in_sync_replicas": 2,
        "min_in_sync_replicas": shape.least,
        "enable_auto_in_sync_replicas": shape.least < 2,
        "promoted_role": "SYNC_MASTER",
    }


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def given_ground(file: Path, name: str | None, held: Held) -> Ground:
    """A running group of a cluster file, all of whose nodes are on this machine. Raises DrillImpossible, BadCluster."""
    cluster = read_cluster(file)
    group = cluster.groups[0] if name is None else next((g for g in cluster.groups if g.name == name), None)
    if group is None:
        raise DrillImpossible("--cluster", f"{file} has no group {name}")
    nodes = []
    for node in sorted(group.nodes, key=lambda node: node.id != group.master):
        role = FIRST if node.id == group.master else SLAVE
        environment = None if node.runtime is None else os.environ | {"XDG_RUNTIME_DIR": str(node.runtime)}
        flags = flags_of(given_to(cluster, group, node, role, group.first_master))
        made = DrillNode(node.id, node.store, role, flags, tied=False, environment=environment, held=held)
        if made.observe() is None:
            raise DrillImpossible("--cluster", f"node {node.label} does not run here; `towline cluster up -f {file}`")
        nodes.append(made)
    size = int(dict(group.settings).get("mapped_file_size_commit_log", 1 << 30))
    ground = Ground(nodes, Network(), None, size)
    ground.elects = bool(cluster.etcd)
    ground.least = int(dict(group.settings).get("min_in_sync_replicas", 1))
    ground.given_endpoints = ",".join(group.endpoints)
    return ground
