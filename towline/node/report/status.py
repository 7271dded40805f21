"""What a running node says of itself, read from the outside: positions, heartbeats, counters, memory, disk.

Nothing is asked of the node's processes, so reading costs them nothing.
"""

import json
import time
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import psutil

from towline.clock import boottime_ns
from towline.errors import NodeNotRunning
from towline.format.record.halts import remedy, why
from towline.format.wire.refusals import Cause
from towline.log.files.config_file import from_backups
from towline.log.files.segment_files import segment_name
from towline.log.state.in_sync_file import Outside, ids_of
from towline.node.process.context import Node, open_node
from towline.node.roles.role_commands import read_json_file
from towline.node.roles.roles import MASTER, SLAVE, load_role
from towline.node.store.confirmed import confirmed_of, written_of
from towline.node.store.pool_state import PoolState
from towline.node.store.transient_pool import describe_pool, pool_of
from towline.places import Runtime, Store
from towline.runtime.positions import Counter, Duty, Flag, Position, Positions, Refused, State
from towline.runtime.queue_ends import QueueEnds
from towline.runtime.settings_model import BrokerRole

from .archiving import archive_of
from .seeding import progress_of
from .space import space_of
from .stalls import GONE, standing_still
from .statistics import summary

_NS_PER_MS: Final = 1_000_000
_BLOCK: Final = 512  # bytes of st_blocks


def node_facts(store_root: Path) -> dict[str, Any]:
    """run/node.json: pid, role, endpoints, pieces. Raises NodeNotRunning when nobody answers for it."""
    store = Store(store_root.resolve())
    try:
        facts: dict[str, Any] = json.loads(store.node.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise NodeNotRunning(str(store.root)) from None
    if not psutil.pid_exists(facts["pid"]):
        raise NodeNotRunning(str(store.root))
    return facts


def read_status(store_root: Path) -> dict[str, Any]:
    """Everything `towline master status` shows, as JSON can carry it. Sizes in bytes. Raises NodeNotRunning."""
    facts = node_facts(store_root)
    node = open_node(store_root)
    positions = node.positions
    try:
        pieces = _pieces(node, facts)
        lag = _lag(node, facts["role"])
        link = read_json_file(node.store.link) if facts["role"] == SLAVE else None
        followed = link is not None and link["connected"]
        return {
            "role": facts["role"],
            "pid": facts["pid"],
            "store": str(node.store.root),
            "generation": positions.generation,
            "started_ms": facts["started"],
            "broker_role": node.settings.broker_role.value,
            "flush_disk_type": node.settings.flush_disk_type.value,
            "transient_pool": describe_pool(PoolState(positions.get(Position.TRANSIENT_POOL)), node.settings),
            "transient_buffers": _buffers(node),
            "pieces": pieces,
            "standing_still": standing_still(pieces),
            "pss": sum(piece["pss"] for piece in pieces),
            "positions": {position.name.lower(): positions.get(position) for position in Position},
            "visible_end": lag.pop("visible_end"),
            "lag": lag,
            "flags": [flag.name for flag in Flag if flag in positions.flags],
            "dispatch_stopped": _stopped(node),
            "damaged": _damaged(node),
            "config_backups": _config_backups(node),
            "refused": _refused(positions.refused),
            "slaves": _slaves(positions),
            "in_sync": _in_sync(node),
            "held_back": _held_back(node),
            "agreed": _agreed(node),
            "master": link,
            "seeding": progress_of(positions, followed=followed) if facts["role"] == SLAVE else None,
            "lease": _lease(node, facts["role"]),
            "delayed": _delayed(node, facts["role"]),
            "queues": _queue_count(node.runtime),
            "statistics": summary(node),
            "endpoints": facts["endpoints"],
            "disk": disk_sizes(node.store),
            "space": space_of(node),
            "archive": archive_of(node),
        }
    finally:
        positions.close()


def memory_of(pid: int, excluded: Iterable[Path]) -> tuple[int, int]:
    """(PSS, USS) in bytes of the anonymous and library pages of a process; (0, 0) when it has gone.

    Mappings of files below the `excluded` directories are left out: pages of the store are the kernel's cache, and
    positions are shared.
    """
    prefixes = tuple(f"{directory}/" for directory in excluded)
    try:
        mappings = psutil.Process(pid).memory_maps(grouped=False)
    except psutil.Error:
        return 0, 0
    counted = [mapping for mapping in mappings if not mapping.path.startswith(prefixes)]
    return sum(m.pss for m in counted), sum(m.private_clean + m.private_dirty for m in counted)


def disk_sizes(store: Store) -> dict[str, dict[str, int]]:
    """Per part of the store: `size` as the files say, `allocated` as the file system holds (queues are sparse)."""
    parts = {"commitlog": store.commitlog, "consumequeue": store.consumequeue, "index": store.index}
    return {name: _sizes(path) for name, path in (parts | {"staging": store.staging}).items()}


def _sizes(directory: Path) -> dict[str, int]:
    size = allocated = 0
    for path in directory.rglob("*"):
        try:
            found = path.stat()
        except FileNotFoundError:  # linked into place or removed meanwhile
            continue
        if path.is_file():
            size, allocated = size + found.st_size, allocated + _BLOCK * found.st_blocks
    return {"size": size, "allocated": allocated}


def _pieces(node: Node, facts: dict[str, Any]) -> list[dict[str, Any]]:
    """The supervisor, its zygote, then every duty that ever ran in this start; also those started by hand."""
    kept = facts["pieces"].keys()  # what the supervisor restarts; others end in order when they are done
    serves = node.positions.duty(Duty.SUPERVISE).state is State.RUNNING
    found = [_piece(node, Duty.SUPERVISE, facts["pid"], kept=True)]
    found.append({"duty": "zygote", "pid": facts["zygote"], "state": "RUNNING"} | _use(node, facts["zygote"]))
    for duty in Duty:
        line = node.positions.duty(duty)
        if duty in (Duty.RECOVER, Duty.AGREE) and serves:
            continue  # they have ended in order, as at every start
        if duty is not Duty.SUPERVISE and line.state is not State.ABSENT:
            found.append(_piece(node, duty, line.pid, kept=duty.label in kept))
    return found


def _piece(node: Node, duty: Duty, pid: int, *, kept: bool) -> dict[str, Any]:
    line = node.positions.duty(duty)
    use = _use(node, pid)
    gone = use["process"] == GONE and (kept or line.state is not State.STOPPED)
    return {
        "duty": duty.label,
        "pid": pid,
        "state": GONE if gone else line.state.name,
        "beat_age_ms": max(0, time.monotonic_ns() - line.beat_ns) // _NS_PER_MS,
        "sleeping": line.sleeping,
        "turn_ms": _ms_since(line.turn_began_ns),
        "counters": {counter.name.lower(): line.counter(counter) for counter in Counter},
        "lost": line.lost,
    } | use


def _stopped(node: Node) -> dict[str, Any] | None:
    """Where reput stands still, why, and what to do; None while it does not."""
    offset = node.positions.get(Position.DISPATCH_STOPPED) - 1
    if offset < 0:
        return None
    number = node.positions.get(Position.DISPATCH_STOPPED_WHY)
    rule, sentence = why(number)
    return _place_of(node, offset) | {"rule": rule, "sentence": sentence, "remedy": remedy(number, offset)}


def _damaged(node: Node) -> dict[str, Any]:
    """Records that readers found damaged since the node was started, and where the one stands that was found last."""
    count, offset = node.positions.get(Position.DAMAGED), node.positions.get(Position.DAMAGED_NEWEST) - 1
    if not count:
        return {"count": 0}
    return {"count": count, "newest": _place_of(node, offset), "remedy": "run `towline store verify`"}


def _place_of(node: Node, offset: int) -> dict[str, Any]:
    """Of a byte of the log; `byte` counts in the segment's file."""
    byte = offset % node.settings.mapped_file_size_commit_log
    return {"offset": offset, "segment": str(node.store.commitlog / segment_name(offset - byte)), "byte": byte}


def _config_backups(node: Node) -> list[str]:
    """Files of config/ of which `.bak` was used when the node started, or would be now."""
    at_start = (read_json_file(node.store.recovery) or {}).get("backups", [])
    return sorted({*at_start, *from_backups(node.store.config)})


def _ms_since(began_ns: int) -> int:
    """0 for a moment that has not come."""
    return max(0, time.monotonic_ns() - began_ns) // _NS_PER_MS if began_ns else 0


def _refused(refused: Refused) -> dict[str, Any]:
    """Requests that put refused, by cause and most first; `leading` is the first of them, None when there is none."""
    causes = [
        {
            "cause": cause.label,
            "count": refused.count(cause),
            "last_ms_ago": _ms_since(refused.last_ns(cause)),
            "remedy": cause.remedy,
        }
        for cause in sorted(Cause, key=refused.count, reverse=True)
        if refused.count(cause)
    ]
    total = sum(refused.count(cause) for cause in Cause)
    return {"total": total, "leading": causes[0]["cause"] if causes else None, "causes": causes}


def _use(node: Node, pid: int) -> dict[str, Any]:
    pss, uss = memory_of(pid, (node.store.root, node.runtime.root))
    try:
        process = psutil.Process(pid)
        times = process.cpu_times()
        return {"pss": pss, "uss": uss, "cpu_s": round(times.user + times.system, 3), "process": process.status()}
    except psutil.Error:
        return {"pss": pss, "uss": uss, "cpu_s": 0.0, "process": GONE}


def _lag(node: Node, role: str) -> dict[str, int]:
    """Bytes that each duty is behind the writer (reput: behind what it may dispatch)."""
    positions = node.positions
    dispatched, flushed = positions.get(Position.DISPATCHED), positions.get(Position.FLUSHED)
    replicated = positions.get(Position.REPLICATED)
    appended = positions.get(Position.APPENDED)
    lag = {"visible_end": confirmed_of(node)(), "flush": appended - flushed, "dispatch": appended - dispatched}
    if pool_of(node) is not None:
        lag["commit"] = appended - positions.get(Position.COMMITTED)
    return lag | ({"replicate": appended - replicated} if role == "master" else {})


def _buffers(node: Node) -> dict[str, int]:
    """Of the transient pool: how many are free, taken, and on their way back; nothing without a pool."""
    pool = pool_of(node)
    if pool is None:
        return {}
    return {path.name: len(list(path.iterdir())) for path in (pool.free, pool.taken, pool.used)}


def _slaves(positions: Positions) -> list[dict[str, Any]]:
    end, members = positions.get(Position.APPENDED), positions.get(Position.IN_SYNC)
    return [
        {
            "place": place,
            "node": line.node,
            "in_sync": bool(members >> line.node & 1),
            "why_not": Outside(line.outside).sentence if line.connected else "not connected",
            "connected": line.connected,
            "appended": line.appended,
            "flushed": line.flushed,
            "behind": end - line.flushed,
        }
        for place, line in enumerate(positions.slaves())
        if line.connected or line.appended
    ]


def _agreed(node: Node) -> dict[str, Any] | None:
    """What this node and its peers agreed on last, and why; None where nobody was ever asked."""
    role = load_role(node.store)
    return None if role is None else asdict(role)


def _in_sync(node: Node) -> dict[str, Any]:
    """The recorded set. `degraded`: it is smaller than in_sync_replicas. `promised`: the greatest epoch promised."""
    positions, settings = node.positions, node.settings
    members = positions.get(Position.IN_SYNC)
    leads = settings.broker_role is not BrokerRole.SLAVE
    return {
        "members": ids_of(members),
        "degraded": leads and members.bit_count() < settings.in_sync_replicas,
        "wanted": settings.in_sync_replicas,
        "least": settings.min_in_sync_replicas,
        "epoch": positions.get(Position.EPOCH),
        "promised": positions.get(Position.PROMISED),
    }


def _held_back(node: Node) -> dict[str, Any] | None:
    """Of a SYNC_MASTER: what is stored and no reader sees, for nodes are away that have to hold it first; None else."""
    positions, settings = node.positions, node.settings
    end, visible = positions.get(written_of(node)), positions.get(Position.REPLICATED)
    if settings.broker_role is not BrokerRole.SYNC_MASTER or visible >= end:
        return None
    connected = {slave.node for slave in positions.slaves() if slave.connected}
    members = ids_of(positions.get(Position.IN_SYNC))
    away = [member for member in members if member not in connected and member != settings.broker_id]
    if not away and len(members) >= settings.in_sync_floor:
        return None  # who is connected is on its way
    who = f"{'nodes' if len(away) > 1 else 'node'} {', '.join(map(str, away))} of the in-sync set"
    few = f"the in-sync set has {len(members)} of the {settings.in_sync_floor} nodes that it needs"
    why = f"{who} {'are' if len(away) > 1 else 'is'} not connected" if away else few
    return {"from": visible, "bytes": end - visible, "away": away, "why": why}


def _delayed(node: Node, role: str) -> dict[str, Any] | None:
    """Of a master: messages that wait to be delivered, when the next is due, how late it is. Halves do not count."""
    if role != MASTER:
        return None
    line = node.positions.delays
    due = line.next_due_ms or None
    late_ms = max(0, node.clock.now_ms() - due) if due is not None else 0
    return {"waiting": line.waiting, "next_due_ms": due, "late_ms": late_ms}


def _lease(node: Node, role: str) -> dict[str, Any] | None:
    """For how long a master may still acknowledge, in milliseconds; None without etcd, and on a slave."""
    if not node.settings.etcd_endpoints or role != MASTER:
        return None
    left_ns = node.positions.get(Position.LEASE_UNTIL) - boottime_ns()
    return {"left_ms": max(0, left_ns // _NS_PER_MS), "lease_ms": node.settings.lease_ms}


def _queue_count(runtime: Runtime) -> int:
    ends = QueueEnds.open(runtime.queue_ends)
    try:
        return ends.count
    finally:
        ends.close()
