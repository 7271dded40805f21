"""What a seed draws before anything happens: the group, its settings, its network, its faults."""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple

from towline.runtime.settings import Settings
from towline.runtime.settings_model import BrokerRole, FlushDiskType

DURATION_MS: Final = 14_000
PRODUCERS: Final = 2
DAY_MS: Final = 86_400_000
ALL_BYTES: Final = 1 << 40
SLOW_BYTES: Final = 2_500  # per second, of a flow that is limited: some 25 records
WINDOW: Final = 64 * 1024


class Sequences(NamedTuple):
    """Idempotent producers of a seed: so many of its PRODUCERS, and what put keeps of them, in its table and of the log
    that it reads."""

    producers: int
    states_max: int = 100
    expiration_ms: int = DAY_MS
    recovered_bytes: int = ALL_BYTES


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of one seed. `floors`: min_in_sync_replicas of each node in the beginning and after the change.

    `set_back`: a slave's store is put back to an older copy once. Shares are of messages. `delay_ms` is the usual one.
    """

    nodes: int
    floors: tuple[tuple[int, ...], tuple[int, ...]]
    role: BrokerRole
    flush: FlushDiskType
    etcd: bool
    slow_flow: bool
    set_back: bool
    loss: float
    doubling: float
    delay_ms: float
    gap_ms: float  # between two faults, in the middle
    sequences: "Sequences"
    duration_ms: int = DURATION_MS

    @property
    def keeps_all(self) -> bool:
        """Whether no failover may take back what was acknowledged. With etcd an ASYNC_MASTER is replaced without its
        word: what it had for itself waits for an operator's (decision 0050)."""
        return self.role is BrokerRole.SYNC_MASTER or not self.etcd

    def settings(self, node: int, *, changed: bool) -> Settings:
        floor = self.floors[changed][node]
        kept = self.sequences.states_max, self.sequences.expiration_ms
        return _settings(node, self.nodes, floor, self.role, self.flush, self.etcd, self.slow_flow, *kept)


def plan_of(seed: int) -> Plan:
    """The plan of the seed; what happens in it is drawn from another source."""
    chance = Random(f"plan {seed}")
    nodes = chance.choice((2, 3, 3))
    role = chance.choices((BrokerRole.SYNC_MASTER, BrokerRole.ASYNC_MASTER), (6, 1))[0]
    first = chance.choice((1, 2, 2, 2))
    then = 3 - first if chance.random() < 0.35 else first
    if first == 2 and then == 1:
        first, then = 1, 2  # raised in any order; who lowers it goes by a rule of its own (decision 0026)
    if role is BrokerRole.ASYNC_MASTER:
        first = then = 1
    etcd = chance.random() < 0.35
    set_back = chance.random() < 0.2 and role is BrokerRole.SYNC_MASTER and first == then == 2
    return Plan(
        nodes=nodes,
        floors=((first,) * nodes, (then,) * nodes),
        role=role,
        flush=chance.choice((FlushDiskType.SYNC_FLUSH, FlushDiskType.ASYNC_FLUSH)),
        etcd=etcd,
        slow_flow=set_back or chance.random() < 0.1,
        set_back=set_back,
        loss=chance.choice((0.0, 0.0, 0.01, 0.05)),
        doubling=chance.choice((0.0, 0.0, 0.02)),
        delay_ms=chance.choice((0.3, 1.0, 5.0)),
        gap_ms=chance.choice((300.0, 700.0, 1500.0)),
        sequences=_sequences_of(seed),
    )


def _sequences_of(seed: int) -> Sequences:
    """Half of the seeds have idempotent producers; of these one in three has a put that soon forgets."""
    chance = Random(f"sequences {seed}")
    producers = chance.choices((0, 1, 2), (5, 3, 2))[0]
    if not producers or chance.random() > 1 / 3:
        return Sequences(producers)
    return Sequences(
        producers,
        states_max=chance.choice((1, 2, 100)),
        expiration_ms=chance.choice((1500, DAY_MS)),
        recovered_bytes=chance.choice((0, 2000, 8000)),
    )


@lru_cache(maxsize=256)
def _settings(
    node: int, nodes: int, floor: int, role: BrokerRole, flush: FlushDiskType, etcd: bool, slow_flow: bool,
    states_max: int, expiration_ms: int,
) -> Settings:  # fmt: skip
    given: dict[str, Any] = {
        "broker_id": node,
        "broker_role": role,
        "promoted_role": role,
        "flush_disk_type": flush,
        "total_replicas": nodes,
        "in_sync_replicas": 2 if role is BrokerRole.SYNC_MASTER else 1,
        "min_in_sync_replicas": floor,
        "enable_auto_in_sync_replicas": True,
        "ha_peers": ",".join(f"{each}=node{each}:10912" for each in range(nodes)),
        "slave_timeout": 1500,
        "sync_flush_timeout": 1500,
        "flush_interval_commit_log": 200,
        "flush_commit_log_thorough_interval": 600,
        "ha_max_time_slave_not_catchup": 2500,
        "ha_housekeeping_interval": 2000,
        "ha_send_heartbeat_interval": 500,
        "ha_window_bytes": WINDOW,
        "ha_max_gap_not_in_sync": 16 * 1024,
        "ha_transfer_batch_size": 1024,
        "lease_ms": 2000,
        "producer_states_max": states_max,
        "producer_id_expiration_ms": expiration_ms,
        "store_path_root_dir": Path("/simulated"),
    }
    if slow_flow:
        given |= {"ha_flow_control_enable": True, "max_ha_transfer_byte_in_second": SLOW_BYTES}
    if etcd:
        given["etcd_endpoints"] = "http://etcd:2379"
    return Settings(**given)
