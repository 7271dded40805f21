"""Which groups of nodes a client deals with: one that its endpoints name, or those of a cluster.

tcp://a:10911,tcp://b:10911   nodes of one group
cluster:/path/cluster.toml    every group of a cluster file
etcd:http://a:2379/cluster    every group of a cluster whose leaders are in etcd
"""

import logging
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from towline.errors import InvalidEndpoint, NoAnswer, TowlineError
from towline.route.errors import EtcdSilent
from towline.route.file import read_cluster
from towline.route.leaders import Services, read_leaders
from towline.route.nodes import Cluster

from .endpoints import Endpoints, several

CLUSTER: Final = "cluster:"
ETCD: Final = "etcd:"
KNOWN_S: Final = 0.2  # what etcd said is believed so long while a node is looked for
SILENT_S: Final = 1.0  # before an etcd that does not answer is asked again
_ETCD: Final = re.compile(r"etcd:(https?://[^\s/,]+(?:,https?://[^\s/,]+)*)/(.+)")

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Way:
    """To the nodes of one group. `name` is their broker name, "" where nobody asks for it: there is one group."""

    name: str
    endpoints: tuple[str, ...] | Callable[[], Endpoints]

    @property
    def first(self) -> str:
        """An endpoint of the group, as it is known now; "" when none is."""
        try:
            found = self.endpoints() if callable(self.endpoints) else self.endpoints
        except NoAnswer:
            return ""
        return several(found)[0]


def ways(given: Endpoints, service: str) -> tuple[Way, ...]:
    """One for each group, in the cluster file's order. `service` is put, serve or schedule.

    Raises InvalidEndpoint, UnreadableCluster, BadCluster, EtcdSilent.
    """
    if isinstance(given, str) and given.startswith(ETCD):
        leaders = _Leaders(given)
        return tuple(Way(name, leaders.follow(name, service)) for name in leaders.groups)
    if isinstance(given, str) and given.startswith(CLUSTER):
        file = _File(Path(given.removeprefix(CLUSTER)))
        return tuple(Way(group.name, file.follow(group.name, service)) for group in file.cluster.groups)
    return (Way("", several(given)),)


def names_groups(endpoint: Endpoints) -> bool:
    """Whether it is a cluster, and not the nodes of one group."""
    return isinstance(endpoint, str) and endpoint.startswith((CLUSTER, ETCD))


def serve_of(endpoint: Endpoints, serve: Endpoints) -> Endpoints:
    """Where a producer with these arguments reads its replies; "" for the serve beside its put.

    Raises what `ways` raises.
    """
    if serve:
        ways(serve, "serve")
        return serve
    return endpoint if names_groups(endpoint) else ""


def puts_of(endpoint: Endpoints, put: Endpoints) -> tuple[Way, ...]:
    """Where a group consumer with these arguments sends messages back to; empty for the put beside its serve.

    Raises what `ways` raises.
    """
    given = endpoint if names_groups(endpoint) else put
    return ways(given, "put") if given else ()


class _File:
    """The nodes of a group may become others while a client runs; which groups there are, it reads once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.cluster: Cluster = read_cluster(path)
        self._seen = _signature(path)

    def follow(self, group: str, service: str) -> Callable[[], Endpoints]:
        """What names the group's endpoints as they are by then."""

        def now() -> Endpoints:
            self._look()
            return self.cluster.group(group).endpoints(service)

        return now

    def _look(self) -> None:
        signature = _signature(self._path)
        if signature == self._seen:
            return
        self._seen = signature
        try:
            read = read_cluster(self._path)
        except TowlineError as error:  # somebody is writing it
            log.warning("the nodes stay what they were: %s", error)
            return
        names = {group.name for group in read.groups}
        if all(group.name in names for group in self.cluster.groups):
            self.cluster = read
        else:
            log.warning("%s has lost a group; the nodes stay what they were", self._path)


def _signature(path: Path) -> tuple[int, int, int]:
    try:
        found = path.stat()
    except OSError:
        return (0, 0, 0)
    return found.st_ino, found.st_mtime_ns, found.st_size


class _Leaders:
    """As etcd named them last. A group of which nobody has ever heard when a client begins is not looked for."""

    def __init__(self, text: str) -> None:
        found = _ETCD.fullmatch(text)
        if found is None:
            raise InvalidEndpoint(text, "write etcd:http://HOST:PORT/CLUSTER")
        self._etcd, self._cluster = found[1].split(","), found[2]
        self._known: dict[str, Services] = read_leaders(self._etcd, self._cluster)
        self._asked_at = time.monotonic()
        if not self._known:
            raise EtcdSilent(f"it knows no cluster {self._cluster!r}")
        self.groups = sorted(self._known)

    def follow(self, group: str, service: str) -> Callable[[], Endpoints]:
        """What names where the group's leader has the service by then. Raises NoAnswer while nobody leads."""

        def now() -> Endpoints:
            trouble = self._look()
            found = self._known.get(group, {}).get(service, ())
            if not found:
                raise NoAnswer(f"group {group}", 0, trouble or f"nobody leads it who has a TCP port of {service}")
            return found

        return now

    def _look(self) -> str:
        """Why what is known may be old."""
        if time.monotonic() < self._asked_at:
            return ""
        try:
            self._known = read_leaders(self._etcd, self._cluster)
        except EtcdSilent as error:
            self._asked_at = time.monotonic() + SILENT_S
            return error.describe()
        self._asked_at = time.monotonic() + KNOWN_S
        return ""
