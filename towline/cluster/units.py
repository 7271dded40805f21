"""Makes the files that run a cluster on several machines: systemd units, environment files, a compose file.

Everything a node has to know is in its environment file, as `TOWLINE_<KEY>`; the unit says where its store is and how
it is started, stopped and limited. Pure: texts by name, to be written below one directory.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from towline.route.nodes import Cluster, Group, Node

from .derived import FILES, MASTER, SLAVE, given_to

RUN: Final = Path("/run")
COMPOSE: Final = "compose.yaml"
STOP_S: Final = 120  # a node syncs, dispatches and hands its slaves what it has; then systemd kills
WATCHDOG_S: Final = 60  # longer than a sync of a slow disk takes
_PLAIN: Final = re.compile(r"[A-Za-z0-9_.,:/=@+-]+")

_UNIT: Final = """\
# Of the cluster {cluster}, for {host}. Made by `towline cluster units`; its settings are in the environment file.
[Unit]
Description=Towline node {id} of group {group} of cluster {cluster}
After=network-online.target
Wants=network-online.target
StartLimitIntervalSec=0

[Service]
# It serves when it says so, and is started anew when one of its processes stands still for longer than WatchdogSec.
Type=notify
TimeoutStartSec=infinity
WatchdogSec={watchdog_s}
User={user}
EnvironmentFile={environment}
{directories}
ExecStart={command}
# The supervisor stops its processes in order; what is left after TimeoutStopSec is killed, and the next start recovers.
KillMode=mixed
TimeoutStopSec={stop_s}
Restart=on-failure
RestartSec=2
# The supervisor starts a killed process again by itself.
OOMPolicy=continue
LimitNOFILE=65536
LimitMEMLOCK=infinity
NoNewPrivileges=yes

[Install]
WantedBy=multi-user.target
"""
_SERVICE: Final = """\
  {name}:
    image: {image}
    profiles: [{host}]
    network_mode: host
    init: true
    env_file: {environment}
    command: [{command}]
    volumes: [{volumes}]
    tmpfs: [{tmpfs}]
    ulimits: {{memlock: -1, nofile: 65536}}
    restart: on-failure
    stop_grace_period: {stop_s}s
"""
_COMPOSE: Final = """\
# Of the cluster {cluster}. Each machine starts its own nodes: docker compose --profile HOST up -d
services:
"""


@dataclass(frozen=True, slots=True)
class Target:
    """How the machines look: where environment files lie, which command is there, who runs it, which image has it."""

    etc: Path
    command: Path
    user: str
    image: str


def unit_name(cluster: Cluster, node: Node) -> str:
    return f"towline-{cluster.name}-{node.label}"


def runtime_directory(cluster: Cluster, node: Node) -> Path:
    """The node's XDG_RUNTIME_DIR: the one of the file, else one of its own below /run."""
    return node.runtime or RUN / unit_name(cluster, node)


def files_of(cluster: Cluster, target: Target) -> dict[str, str]:
    """Relative path -> text: `<host>/<unit>.service` and `<host>/<unit>.env` for each node, and the compose file."""
    files = {}
    services = ""
    for group in cluster.groups:
        for node in group.nodes:
            name = f"{node.host}/{unit_name(cluster, node)}"
            files[f"{name}.service"] = unit_of(cluster, group, node, target)
            files[f"{name}.env"] = environment_of(cluster, group, node)
            services += _service(cluster, group, node, target)
    return files | {COMPOSE: _COMPOSE.format(cluster=cluster.name) + services}


def role_of(group: Group, node: Node) -> str:
    """In which it starts the first time; later what the nodes agreed on and recorded wins."""
    return MASTER if node.id == group.master else SLAVE


def start_command(group: Group, node: Node, towline: str) -> list[str]:
    return [towline, role_of(group, node), "start", "--foreground", "--store", str(node.store)]


def unit_of(cluster: Cluster, group: Group, node: Node, target: Target) -> str:
    command = start_command(group, node, str(target.command))
    return _UNIT.format(
        cluster=cluster.name,
        host=node.host,
        id=node.id,
        group=group.name,
        user=target.user,
        environment=target.etc / f"{unit_name(cluster, node)}.env",
        directories="\n".join(_directories(cluster, node, target.user)),
        command=" ".join(map(systemd_word, command)),
        stop_s=STOP_S,
        watchdog_s=WATCHDOG_S,
    )


def _directories(cluster: Cluster, node: Node, user: str) -> list[str]:
    """The store and, where systemd does not make it, the runtime directory: made by root for the user."""
    install = f"ExecStartPre=+/usr/bin/install -d -m 0700 -o {systemd_word(user)} "
    lines = [install + systemd_word(str(node.store))]
    runtime = runtime_directory(cluster, node)
    if RUN not in runtime.parents:
        return [*lines, install + systemd_word(str(runtime))]
    # Preserved over a restart: what a killed node leaves there spares the next start the recovery.
    name = systemd_word(str(runtime.relative_to(RUN)))
    return [*lines, f"RuntimeDirectory={name}", "RuntimeDirectoryMode=0700", "RuntimeDirectoryPreserve=restart"]


def environment_of(cluster: Cluster, group: Group, node: Node) -> str:
    given = given_to(cluster, group, node, role_of(group, node))
    lines = {"XDG_RUNTIME_DIR": str(runtime_directory(cluster, node))}
    lines |= {f"TOWLINE_{key.upper()}": value for key, value in sorted(given.items())}
    return "".join(f"{key}={environment_word(value)}\n" for key, value in lines.items())


def _service(cluster: Cluster, group: Group, node: Node, target: Target) -> str:
    name, runtime = unit_name(cluster, node), runtime_directory(cluster, node)
    given = given_to(cluster, group, node, role_of(group, node))
    volumes = [f"{node.store}:{node.store}", *(f"{given[key]}:{given[key]}:ro" for key in FILES if given.get(key))]
    return _SERVICE.format(
        name=name,
        image=_yaml(target.image),
        host=_yaml(node.host),
        environment=_yaml(f"{node.host}/{name}.env"),
        command=", ".join(map(_yaml, start_command(group, node, "towline"))),
        volumes=", ".join(map(_yaml, volumes)),
        tmpfs=_yaml(f"{runtime}:mode=1777"),
        stop_s=STOP_S,
    )


def systemd_word(text: str) -> str:
    """An argument of a command line in a unit; `%` and `$` mean themselves."""
    text = text.replace("%", "%%").replace("$", "$$")
    return text if _PLAIN.fullmatch(text) else _quoted(text)


def environment_word(text: str) -> str:
    """A value in an environment file, as systemd and compose read it."""
    return text if _PLAIN.fullmatch(text) else _quoted(text)


def _yaml(text: str) -> str:
    return _quoted(text.replace("$", "$$"))  # compose would look for a variable


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
