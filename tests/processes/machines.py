"""Machines: each node of a cluster file run as systemd would run it, from its generated unit.

What the unit says is done and nothing else: ExecStartPre, the environment file, ExecStart. A machine has a store and
a runtime directory of its own, and reaches the others over TCP alone.
"""

import getpass
import os
import re
import shlex
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from tests.cluster.environment import parse_environment
from towline.cli.cluster_files import units
from towline.cli.cluster_nodes import ObservedGroup, observe
from towline.cluster.state import GroupState, group_state
from towline.cluster.units import unit_name
from towline.node.report.running import node_facts
from towline.parent import die_with_parent
from towline.places import Store
from towline.route.file import read_cluster
from towline.route.nodes import Cluster, Group, Node

from .nodes import free_port
from .waiting import Watch, await_

SERVES_S: Final = 30.0
STOPS_S: Final = 30.0
SETTINGS: Final = """\
mapped_file_size_commit_log = 4194304
max_hash_slot_num = 20000
max_index_num = 60000
flush_disk_type = "SYNC_FLUSH"
"""
_NODE: Final = """
[[group.node]]
id = {id}
listen_port = {listen_port}
ha_listen_port = {ha_listen_port}
store = "{place}/store"
runtime = "{place}/run"
"""
PORTS: Final = ("listen_port", "ha_listen_port")


class Machine:
    """One node, started from its unit and environment file."""

    def __init__(self, node: Node, unit: Path) -> None:
        self.node = node
        self._unit = _service(unit.read_text())
        self._log = unit.with_suffix(".log")
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Does not wait until it serves."""
        [file], [command] = self._unit["EnvironmentFile"], self._unit["ExecStart"]
        for prepare in self._unit.get("ExecStartPre", []):
            subprocess.run(_words(prepare.removeprefix("+")), check=True)
        environment = {"PATH": os.environ["PATH"], **parse_environment(Path(file).read_text())}
        parent = os.getpid()
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                _words(command),
                env=environment,
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=lambda: die_with_parent(parent),
            )

    @property
    def is_up(self) -> bool:
        """Its processes run, in whatever role."""
        assert self._process is not None
        assert self._process.poll() is None, self._log.read_text()[-2000:]
        return Store(self.node.store).node.exists()

    def kill(self) -> None:
        """The power goes: SIGKILL to every process, and to the supervisor first, which would restart them."""
        facts = node_facts(self.node.store)
        watch = Watch([facts["pid"], facts["zygote"], *facts["processes"].values()])
        self.end(signal.SIGKILL)
        watch.await_gone(STOPS_S)

    def end(self, number: int = signal.SIGTERM) -> int:
        """As systemd stops it; the exit status, 0 for a clean store."""
        process, self._process = self._process, None
        if process is None:
            return 0
        with suppress(ProcessLookupError):
            process.send_signal(number)
        try:
            return process.wait(STOPS_S)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()


class Machines:
    """Every node of a cluster file as a machine."""

    def __init__(self, cluster: Cluster, out: Path) -> None:
        self.cluster = cluster
        self.each = {
            node.label: Machine(node, out / node.host / f"{unit_name(cluster, node)}.service") for node in cluster.nodes
        }

    @property
    def group(self) -> Group:
        """The first one."""
        return self.cluster.groups[0]

    def look(self) -> ObservedGroup:
        return observe(self.group)

    def start(self) -> None:
        """All at once, as machines do after a power cut; until every slave follows."""
        for machine in self.each.values():
            machine.start()
        self.await_ok()

    def await_ok(self) -> None:
        def ok() -> bool:
            return all(machine.is_up for machine in self.each.values()) and self._state() is GroupState.OK

        await_(ok, SERVES_S, "every machine is up and every slave follows")

    def master(self) -> Machine:
        """The one that is master now."""
        found = self.look().master
        assert found is not None
        return self.each[self.group.node(found.id).label]

    def _state(self) -> GroupState:
        return group_state(self.look().nodes)


@contextmanager
def machines(root: Path, runtime: Path, slaves: int = 1, settings: str = "") -> Iterator[Machines]:
    """A running group of one master and so many slaves from units written below `root`; ended, however it is left.

    `runtime` is a directory in memory for the machines' runtime directories. `settings` are lines of [group.settings].
    """
    text = f'name = "drill"\n[settings]\n{SETTINGS}\n[[group]]\nname = "a"\n[group.settings]\n{settings}\n'
    for number in range(slaves + 1):
        text += _NODE.format(id=number, place=runtime / f"m{number}", **{port: free_port() for port in PORTS})
    file, out = root / "cluster.toml", root / "units"
    file.write_text(text.replace(f'store = "{runtime}', f'store = "{root}'))
    cluster = read_cluster(file)
    units(file, out, out / cluster.groups[0].nodes[0].host, None, getpass.getuser(), "towline", True)
    made = Machines(cluster, out)
    try:
        made.start()
        yield made
    finally:
        for machine in made.each.values():
            machine.end()


def _service(text: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in text[text.index("[Service]") : text.index("[Install]")].splitlines()[1:]:
        if "=" in line and not line.startswith("#"):
            key, _, value = line.partition("=")
            found.setdefault(key, []).append(value)
    return found


def _words(command: str) -> list[str]:
    """As systemd reads a command line that names no variable."""
    return [re.sub(r"%%|\$\$", lambda found: found[0][0], word) for word in shlex.split(command)]
