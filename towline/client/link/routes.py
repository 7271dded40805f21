"""The groups of nodes that a client's endpoints name: a single group, or all groups of a cluster.

tcp://a:10911,tcp://b:10911   nodes of one group
cluster:/path/cluster.toml    every group of a cluster file
etcd:http://a:2379/cluster    every group of a cluster whose leaders are in etcd; behind a ? may stand ca=FILE,
                              cert=FILE and key=FILE, user=NAME and password_file=FILE
rocketmq://a:9876;b:9876      every broker of a RocketMQ cluster, by its name servers
"""

import logging
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl

from towline.client.rocketmq.endpoint import PREFIX, RocketmqEndpoint
from towline.errors import InvalidEndpoint, NoAnswer, TowlineError
from towline.route.errors import EtcdSilent
from towline.route.file import read_cluster
from towline.route.nodes import Cluster

from .endpoints import REMOTING, Endpoints, several

CLUSTER: Final = "cluster:"
ETCD: Final = "etcd:"
# Loaded when an endpoint names such a cluster: they are most of what a client would load otherwise.
_BROKERS: Final = "towline.client.rocketmq.clusters"
_LEADERS: Final = "towline.route.leaders"
KNOWN_S: Final = 0.2  # what etcd said is believed so long while a node is searched for
SILENT_S: Final = 1.0  # before an etcd that does not answer is asked again
_ETCD: Final = re.compile(r"etcd:(https?://[^\s/,]+(?:,https?://[^\s/,]+)*)/([^?]+)(?:\?(.+))?")
_ACCESS: Final = ("ca", "cert", "key", "user", "password_file")

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class GroupRoute:
    """The endpoints of one group of nodes. `name` is its broker name, "" for a single group."""

    name: str
    endpoints: tuple[str, ...] | Callable[[], Endpoints]

    @property
    def first(self) -> str:
        """An endpoint of the group; "" when none is known now."""
        try:
            found = self.endpoints() if callable(self.endpoints) else self.endpoints
        except NoAnswer:
            return ""
        return several(found)[0]


def group_routes(given: Endpoints) -> tuple[GroupRoute, ...]:
    """One route for each group, in the cluster file's order.

    Raises InvalidEndpoint, UnreadableCluster, BadCluster, EtcdSilent; NoAnswer where no name server answers.
    """
    if isinstance(given, str) and given.startswith(ETCD):
        leaders = _EtcdRoutes(given)
        return tuple(GroupRoute(name, leaders.follow(name)) for name in leaders.groups)
    if isinstance(given, str) and given.startswith(PREFIX):
        return _brokers(RocketmqEndpoint.read(given))
    if isinstance(given, str) and given.startswith(CLUSTER):
        file = _FileRoutes(Path(given.removeprefix(CLUSTER)))
        return tuple(GroupRoute(group.name, file.follow(group.name)) for group in file.cluster.groups)
    return (GroupRoute("", several(given)),)


def _brokers(endpoint: RocketmqEndpoint) -> tuple[GroupRoute, ...]:
    names = [endpoint.broker] if endpoint.broker else import_module(_BROKERS).brokers_of(endpoint)
    return tuple(GroupRoute(name, (endpoint.of(name),)) for name in names)


def broker_route(given: Endpoints, name: str) -> GroupRoute:
    """The route to one more broker of a RocketMQ cluster."""
    return GroupRoute(name, (RocketmqEndpoint.read(str(given)).of(name),))


def is_whole_cluster(given: Endpoints) -> bool:
    """Whether it names a RocketMQ cluster without one of its brokers: those that join it later belong to it as well."""
    return isinstance(given, str) and given.startswith(PREFIX) and not RocketmqEndpoint.read(given).broker


def of_one_group(given: Endpoints) -> Endpoints | None:
    """The endpoint, where it leads to a single group, and goes on leading to that one; None where there are several.

    Raises what `group_routes` raises.
    """
    found = group_routes(given)
    if len(found) > 1:
        return None
    return found[0].first if is_broker(found[0]) else given


def is_broker(way: GroupRoute) -> bool:
    """Whether it leads to a broker of RocketMQ."""
    return isinstance(way.endpoints, tuple) and way.endpoints[0].startswith(PREFIX)


def names_groups(endpoint: Endpoints) -> bool:
    """Whether the endpoint names a cluster, and not the nodes of one group."""
    return isinstance(endpoint, str) and endpoint.startswith((CLUSTER, ETCD, PREFIX))


def check_one_node(endpoint: Endpoints) -> None:
    """Raises InvalidEndpoint for one that may lead to this node now and to that one later. A broker of RocketMQ refuses
    by itself what is asked of a node."""
    if (isinstance(endpoint, str) and endpoint.startswith((CLUSTER, ETCD))) or len(several(endpoint)) > 1:
        shown = endpoint if isinstance(endpoint, str) else ",".join(endpoint)
        raise InvalidEndpoint(shown, "settings, status and statistics are one node's, and several may answer there")


def serve_of(endpoint: Endpoints, serve: Endpoints) -> Endpoints:
    """The endpoint from which a producer with these arguments reads its replies; "" for the serve beside its put.

    Raises what `group_routes` raises.
    """
    if serve:
        group_routes(serve)
        return serve
    return endpoint if names_groups(endpoint) else ""


def puts_of(endpoint: Endpoints, put: Endpoints) -> tuple[GroupRoute, ...]:
    """The routes to which a group consumer with these arguments sends retries; empty for the put beside its serve.

    Raises what `group_routes` raises.
    """
    given = endpoint if names_groups(endpoint) else put
    return group_routes(given) if given else ()


class _FileRoutes:
    """The nodes of a group may become others while a client runs; which groups there are, it reads once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.cluster: Cluster = read_cluster(path)
        self._seen = _signature(path)

    def follow(self, group: str) -> Callable[[], Endpoints]:
        """A function that names the group's endpoints as the file has them at the call.

        It raises NoAnswer while no node of it has a port for clients.
        """

        def now() -> Endpoints:
            self._refresh()
            found = self.cluster.group(group).endpoints
            if not found:
                raise NoAnswer(f"group {group}", 0, f"no node of it has a listen_port in {self._path}")
            return found

        return now

    def _refresh(self) -> None:
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


class _EtcdRoutes:
    """As etcd named them last. A group of which nobody has ever heard when a client begins is not searched for."""

    def __init__(self, text: str) -> None:
        found = _ETCD.fullmatch(text)
        if found is None:
            raise InvalidEndpoint(text, "write etcd:http://HOST:PORT/CLUSTER")
        self._etcd, self._cluster = found[1].split(","), found[2]
        self._access = _access_of(text, found[3] or "")
        self._known: dict[str, Mapping[str, tuple[str, ...]]] = self._read()
        self._asked_at = time.monotonic()
        if not self._known:
            raise EtcdSilent(f"it knows no cluster {self._cluster!r}")
        self.groups = sorted(self._known)

    def follow(self, group: str) -> Callable[[], Endpoints]:
        """A function that names the leader's endpoints at the call.

        It raises NoAnswer while nobody leads.
        """

        def now() -> Endpoints:
            trouble = self._refresh()
            found = self._known.get(group, {}).get(REMOTING, ())
            if not found:
                raise NoAnswer(f"group {group}", 0, trouble or "nobody leads it who has a listen_port")
            return found

        return now

    def _refresh(self) -> str:
        """Why what is known may be old."""
        if time.monotonic() < self._asked_at:
            return ""
        try:
            self._known = self._read()
        except EtcdSilent as error:
            self._asked_at = time.monotonic() + SILENT_S
            return error.describe()
        self._asked_at = time.monotonic() + KNOWN_S
        return ""

    def _read(self) -> Any:
        return import_module(_LEADERS).read_leaders(self._etcd, self._cluster, self._access)


def _access_of(text: str, asked: str) -> dict[str, str]:
    """Raises InvalidEndpoint."""
    found = dict(parse_qsl(asked, keep_blank_values=True))
    if any(name not in _ACCESS or not value for name, value in found.items()) or (asked and not found):
        raise InvalidEndpoint(text, f"behind the ? stands {asked!r}; {', '.join(_ACCESS)} are known, each =VALUE")
    for name, needed in (("key", "cert"), ("user", "password_file"), ("password_file", "user")):
        if name in found and needed not in found:
            raise InvalidEndpoint(text, f"it has {name} without {needed}")
    return found
