"""A simulated etcd: keys with revisions, leases, transactions. It never loses anything; it may be out of reach."""

from collections.abc import Mapping, Sequence
from typing import Final

from towline.errors import EtcdUnavailable
from towline.route.etcd import KeyValue

from .network import ETCD, Network
from .world import World

TTL_MIN_S: Final = 2  # etcd rounds leases up


class Keys:
    """The keys and leases that all nodes see."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.found: dict[str, KeyValue] = {}
        self.leases: dict[int, tuple[int, int]] = {}  # id -> (seconds, when it is over in us)
        self.revision = 0

    def expire(self) -> None:
        """Ends the leases that are over. Etcd looks twice a second: they may last a little longer."""
        now = self.world.now_us
        for lease in [lease for lease, (_, until) in self.leases.items() if until <= now]:
            self.revoke(lease)

    def revoke(self, lease: int) -> None:
        if self.leases.pop(lease, None) is not None:
            self.found = {key: one for key, one in self.found.items() if one.lease != lease}


class SimulatedEtcd:
    """One node's client of it. `busy_ns`: how long its last calls took, which its callers waited."""

    def __init__(self, keys: Keys, network: Network, node: int) -> None:
        self._keys, self._network, self._node = keys, network, node
        self.busy_ns = 0

    def read(self, prefix: str) -> dict[str, KeyValue]:
        self._call()
        return {key: one for key, one in self._keys.found.items() if key.startswith(prefix)}

    def swap(self, unchanged: Mapping[str, int], absent: Sequence[str], puts: Mapping[str, tuple[bytes, int]]) -> bool:
        self._call()
        keys = self._keys
        same = all(key in keys.found and keys.found[key].changed == at for key, at in unchanged.items())
        if not same or any(key in keys.found for key in absent):
            return False
        if any(lease and lease not in keys.leases for _, lease in puts.values()):
            return False
        keys.revision += 1
        for key, (value, lease) in puts.items():
            before = keys.found.get(key)
            created = keys.revision if before is None else before.created
            keys.found[key] = KeyValue(key, value, created, keys.revision, lease)
        return self._answered(done=True)

    def grant(self, ttl_s: int) -> tuple[int, int]:
        self._call()
        self._keys.revision += 1
        lease, ttl_s = self._keys.revision, max(ttl_s, TTL_MIN_S)
        self._keys.leases[lease] = ttl_s, self._keys.world.now_us + ttl_s * 1_000_000
        return lease, ttl_s

    def keep_alive(self, lease: int) -> int:
        self._call()
        if lease not in self._keys.leases:
            return 0
        ttl_s, _ = self._keys.leases[lease]
        self._keys.leases[lease] = ttl_s, self._keys.world.now_us + ttl_s * 1_000_000
        self._answered(done=True)
        return ttl_s

    def revoke(self, lease: int) -> None:
        self._call()
        self._keys.revoke(lease)

    def _call(self) -> None:
        """Raises EtcdUnavailable where it is out of reach; else etcd hears of the call now, and answers later."""
        self._keys.expire()
        if not self._network.meet(self._node, ETCD) or self._keys.world.chance(self._network.loss):
            raise EtcdUnavailable("it cannot be reached")
        self.busy_ns += int(self._network.delay_us(ETCD, self._node) * 1000)

    def _answered(self, *, done: bool) -> bool:
        """An answer may be lost after all was done."""
        if self._keys.world.chance(self._network.loss):
            raise EtcdUnavailable("its answer was lost")
        return done
