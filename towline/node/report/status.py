"""The status of a running node, read from the outside: positions, heartbeats, counters, memory, disk, archive.

Nothing is asked of the node's processes, so reading costs them nothing.
"""

import select
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from towline.clock import boottime_ns
from towline.errors import MalformedFile
from towline.format.files.topics import PERM_WRITE
from towline.format.record.halts import remedy, why
from towline.format.wire.refusals import Cause
from towline.log.commitlog.cleaning import full_in_s
from towline.log.commitlog.reserve_file import ReserveFile, disk_use
from towline.log.files.config_file import from_backups
from towline.log.files.segment_files import segment_name
from towline.log.state.archived import archived_until, load_archived
from towline.log.state.in_sync_file import Outside, ids_of
from towline.log.state.role_file import MASTER, SLAVE, load_role
from towline.node.process.context import Node
from towline.node.roles.role_commands import read_json_file
from towline.node.store.confirmed import confirmed_of, written_of
from towline.node.store.pool_state import PoolState
from towline.node.store.transient_pool import describe_pool, pool_of
from towline.places import Runtime, Store
from towline.runtime.positions import Counter, Duty, Flag, Position, Positions, Refused
from towline.runtime.queue_ends import QueueEnds
from towline.runtime.settings_model import BrokerRole

from .processes import processes_of, standing_still
from .readiness import not_ready
from .remoting import remoting_of
from .running import open_running
from .statistics import summary
from .times import ms_since

_NS_PER_MS: Final = 1_000_000
_BLOCK: Final = 512  # bytes of st_blocks
RATE_SEGMENTS: Final = 8  # full segments that the rate of growth is taken from
RATE_SAMPLE_S: Final = 0.25  # between the two readings of a rate
BACKLOG_MIN: Final = 1 << 20  # fewer bytes behind are in transit


def read_status(store_root: Path, *, brief: bool = False) -> dict[str, Any]:
    """Everything `towline master status` shows, as JSON can carry it. Sizes in bytes. Raises NodeNotRunning,
    NodeNotReadable, PositionsUnusable.

    `brief`: for who looks often. What takes long, and longer with each topic, is left out: the memory of the processes
    (`pss`, `uss`), `disk` and `config_backups`.
    """
    facts, node = open_running(store_root)
    positions = node.positions
    try:
        processes = processes_of(node, facts, memory=not brief)
        reasons = not_ready(node, processes)
        lag = _lag(node, facts["role"])
        link = read_json_file(node.store.link) if facts["role"] == SLAVE else None
        followed = link is not None and link["connected"]
        found = {
            "role": facts["role"],
            "broker_name": node.settings.broker_name,
            "broker_id": node.settings.broker_id,
            "pid": facts["pid"],
            "store": str(node.store.root),
            "log": str(node.store.node_log),
            "generation": positions.generation,
            "started_ms": facts["started"],
            "broker_role": node.settings.broker_role.value,
            "flush_disk_type": node.settings.flush_disk_type.value,
            "broker_permission": node.settings.broker_permission,
            "read_only": not node.settings.broker_permission & PERM_WRITE,
            "transient_pool": describe_pool(PoolState(positions.get(Position.TRANSIENT_POOL)), node.settings),
            "transient_buffers": _buffers(node),
            "processes": processes,
            "standing_still": standing_still(processes),
            "ready": not reasons,
            "not_ready": reasons,
            "positions": {position.name.lower(): positions.get(position) for position in Position},
            "visible_end": lag.pop("visible_end"),
            "lag": lag,
            "flags": [flag.name for flag in Flag if flag in positions.flags],
            "dispatch_stopped": _stopped(node),
            "damaged": _damaged(node),
            "refused": _refused(positions.refused, node.store.root),
            "remoting": remoting_of(positions),
            "slaves": _slaves(positions),
            "rocketmq_slaves": _rocketmq_slaves(node),
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
            "space": space_of(node),
            "archive": archive_of(node),
        }
        return _without_memory(found) if brief else found | _what_takes_long(node, processes)
    finally:
        positions.close()


def _what_takes_long(node: Node, processes: list[dict[str, Any]]) -> dict[str, Any]:
    """Every process's memory, every file of the store, every topic in the files of config/."""
    return {
        "pss": sum(process["pss"] for process in processes),
        "disk": disk_sizes(node.store),
        "config_backups": _config_backups(node),
    }


def _without_memory(found: dict[str, Any]) -> dict[str, Any]:
    for process in found["processes"]:
        del process["pss"], process["uss"]
    return found


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


def _stopped(node: Node) -> dict[str, Any] | None:
    """The record before which reput stopped, why, and the remedy; None while it goes on."""
    offset = node.positions.get(Position.DISPATCH_STOPPED) - 1
    if offset < 0:
        return None
    number = node.positions.get(Position.DISPATCH_STOPPED_WHY)
    rule, sentence = why(number)
    return _place_of(node, offset) | {"rule": rule, "sentence": sentence, "remedy": remedy(number, offset)}


def _damaged(node: Node) -> dict[str, Any]:
    """Records that readers found damaged since the node was started, and the place of the last one."""
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


def _refused(refused: Refused, store: Path) -> dict[str, Any]:
    """Requests that put refused, by cause and most first; `leading` is the first of them, None when there is none."""
    causes = [
        {
            "cause": cause.label,
            "count": refused.count(cause),
            "last_ms_ago": ms_since(refused.last_ns(cause)),
            "remedy": cause.remedy_at(str(store)),
        }
        for cause in sorted(Cause, key=refused.count, reverse=True)
        if refused.count(cause)
    ]
    total = sum(refused.count(cause) for cause in Cause)
    return {"total": total, "leading": causes[0]["cause"] if causes else None, "causes": causes}


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


def _rocketmq_slaves(node: Node) -> list[dict[str, Any]]:
    """Brokers of RocketMQ that follow now. `behind`: confirmed bytes that one has not reported; nobody waits for it."""
    end = confirmed_of(node)()
    return [
        {"address": line.address, "sent": line.sent, "reported": line.reported, "behind": max(0, end - line.reported)}
        for line in node.positions.rocketmq_slaves()
        if line.connected
    ]


def _agreed(node: Node) -> dict[str, Any] | None:
    """The last agreement of this node with its peers; None where there never was one."""
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


# --- disk, archive, and how far a slave is behind


def space_of(node: Node) -> dict[str, Any]:
    """Room on the disk, in bytes and percent. `full_in_s`: until puts are refused if the log grows as it did."""
    settings, use = node.settings, disk_use(node.store.root)
    size, appended = settings.mapped_file_size_commit_log, node.positions.get(Position.APPENDED)
    level = settings.disk_space_warning_level_ratio
    full = None
    for back in range(RATE_SEGMENTS, 0, -1):
        filled = appended - appended % size - (back - 1) * size  # end of a segment that was filled
        path = node.store.commitlog / segment_name(filled - size)
        if filled > node.positions.get(Position.LOG_MIN) and path.exists():
            grown_ms = node.clock.now_ms() - path.stat().st_mtime_ns // 1_000_000
            full = full_in_s(use, level, appended - filled, grown_ms)
            break
    held = ReserveFile(node.store.root, settings.reserve_file_size).held
    return {
        "used_percent": use.percent,
        "available": use.available,
        "warning_level_percent": level,
        "reserve_held": held,
        "full_in_s": full,
    }


def archive_of(node: Node) -> dict[str, Any] | None:
    """How far the archive of the log is, in offsets and bytes; None where nothing was or waits to be archived.

    until    every segment that ends there or before is archived
    waiting  bytes of full segments that are not
    deleted  segments that a full disk took in this start before they were archived
    """
    settings, positions = node.settings, node.positions
    size, archived, problem = settings.mapped_file_size_commit_log, None, ""
    until = 0
    try:
        archived = load_archived(node.store)
        until = archived_until(node.store, size)
    except MalformedFile as error:
        problem = str(error)
    if archived is None and not problem and not settings.keep_until_archived:
        return None
    full = positions.get(Position.APPENDED) // size * size
    return {
        "keep_until_archived": settings.keep_until_archived,
        "until": until,
        "waiting": max(0, full - max(until, positions.get(Position.LOG_MIN))),
        "archive": None if archived is None else archived.archive,
        "time_ms": None if archived is None else archived.time_ms,
        "deleted": positions.duty(Duty.ALLOCATE).counter(Counter.FALLBACKS),
        "problem": problem,
    }


def progress_of(positions: Positions, *, followed: bool = True) -> dict[str, Any]:
    """How far a slave is behind, in bytes of the log. `end`: its master's confirmed end as the slave knows it.

    A slave that follows nobody knows what its master had confirmed when it last said so, not what it has.
    """
    start, at, end = _slave_offsets(positions)
    if end == at and not followed:
        return {"from": start, "at": at, "end": end, "left": None, "bytes_per_second": 0, "left_s": None}
    found = {"from": start, "at": at, "end": end, "left": end - at, "bytes_per_second": 0, "left_s": None}
    if end - at < BACKLOG_MIN:
        return found | {"left_s": 0.0 if end == at else None}
    began = time.monotonic()
    select.select([], [], [], RATE_SAMPLE_S)
    _, later, end = _slave_offsets(positions)
    rate = (later - at) / (time.monotonic() - began)
    gained = found | {"at": later, "end": end, "left": end - later, "bytes_per_second": round(rate)}
    return gained | {"left_s": round((end - later) / rate, 1) if rate else None}


def _slave_offsets(positions: Positions) -> tuple[int, int, int]:
    at = positions.get(Position.APPENDED)
    return min(positions.get(Position.LOG_MIN), at), at, max(at, positions.get(Position.CONFIRMED))
