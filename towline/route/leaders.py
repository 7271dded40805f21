"""The leader of each group of a cluster as etcd has it, for clients of `etcd:http://host:port/cluster`.

Keys below /towline/<cluster>/<group>/ are written by the nodes. `leader` is {remoting: [...], ha: [...], ...}, and
absent while nobody leads; the other keys stay, so a group without a leader is still known.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import quote, unquote

from towline.errors import EtcdUnavailable

from .errors import EtcdSilent
from .etcd import Access, Etcd

_ROOT: Final = "/towline"
_ANYBODY: Final[Mapping[str, str]] = {}

Services = Mapping[str, tuple[str, ...]]  # service -> endpoints of the leader


def keys_of(cluster: str) -> str:
    """The prefix of all keys of a cluster."""
    return f"{_ROOT}/{quote(cluster, safe='')}/"


def read_leaders(endpoints: Sequence[str], cluster: str, access: Mapping[str, str] = _ANYBODY) -> dict[str, Services]:
    """Group -> services of its leader, none where it has no leader. `endpoints` are http://host:port or
    https://host:port, asked in turn; `access` has what `Access` has.

    Raises EtcdSilent.
    """
    prefix = keys_of(cluster)
    etcd = Etcd(endpoints, access=Access(**access))
    try:
        keys = etcd.read(prefix)
    except EtcdUnavailable as error:
        raise EtcdSilent(error.troubles) from None
    finally:
        etcd.close()
    found: dict[str, Services] = {}
    for key, entry in keys.items():
        group, _, name = key.removeprefix(prefix).partition("/")
        services = found.setdefault(unquote(group), {})
        if name == "leader":
            found[unquote(group)] = {**services, **_services(entry.value)}
    return found


def _services(value: bytes) -> Services:
    try:
        facts = json.loads(value)
    except ValueError:
        return {}
    lists = {name: said for name, said in facts.items() if isinstance(said, list)} if isinstance(facts, dict) else {}
    return {name: tuple(str(endpoint) for endpoint in said) for name, said in lists.items()}
