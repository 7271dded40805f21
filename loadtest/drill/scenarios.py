"""The drills: what is done to the cluster, and when it counts as taken back.

Each function is one round under a load that runs before, meanwhile and after.
"""

import signal
from pathlib import Path
from typing import Final

import numpy as np

from towline.format.record.properties import UNIQ_KEY
from towline.format.record.properties import decode as decode_properties
from towline.format.record.record import MAGIC_V1, MAGIC_V2, SIZE_MIN, decode
from towline.kernels.base.directory import QueueDirectory
from towline.log.commitlog.commit_log import CommitLogReader
from towline.log.commitlog.dispatch import DispatchScan
from towline.node.supervise.launch import stop_node
from towline.places import Store

from .drill import Drill
from .errors import DrillFailed, DrillImpossible
from .ground import Replaced
from .network import CLIENTS, ETCD, Network
from .nodes import MASTER, SLAVE
from .waiting import await_
from .watch import Fault

TAIL_RECORDS: Final = 200
BEFORE_S: Final = 0.5
LATE_S: Final = 0.5  # acknowledgements that were under way
TAIL_MAX_S: Final = 30.0


def kill_master(drill: Drill) -> None:
    """kill -9 of every process of the master; a slave takes over; the old one comes back as a slave."""
    ground, old = drill.ground, drill.master()
    drill.run_for(BEFORE_S)
    fault = drill.fault(f"kill -9 of node {old}, the master", node=old)
    ground.node(old).kill(drill.draw.getrandbits(16))
    replaced = ground.replace_master(old)
    fault.facts |= replaced.facts
    new, how = replaced.master, replaced.how
    _serve_without_one(drill, fault)
    drill.heal(fault, ground.node(old).start, f"node {new} was {how}; node {old} is back")
    if fault.service is None:
        drill.served(fault)
    drill.must_be_slave(old)
    drill.expect(ground.master() == new, f"node {new} is no longer master after node {old} came back")


def kill_slave(drill: Drill) -> None:
    """kill -9 of every process of a slave; the master goes on; the slave comes back and catches up."""
    ground, slave = drill.ground, drill.slave()
    master = drill.master()
    drill.run_for(BEFORE_S)
    fault = drill.fault(f"kill -9 of node {slave}, a slave", node=slave)
    ground.node(slave).kill(drill.draw.getrandbits(16))
    _serve_without_one(drill, fault)
    drill.run_for(drill.seconds)
    drill.heal(fault, ground.node(slave).start, f"node {slave} is back")
    if fault.service is None:
        drill.served(fault)
    drill.expect(ground.master() == master, "the death of a slave changed the master")


def _serve_without_one(drill: Drill, fault: Fault) -> None:
    """The service is there again, or, with fewer nodes than an acknowledgement needs, nothing is acknowledged."""
    if len(drill.ground.nodes) - 1 >= drill.ground.least:
        drill.served(fault)
        return
    drill.run_for(LATE_S)
    before = drill.load.acknowledged
    drill.run_for(LATE_S)
    more = drill.load.acknowledged - before
    drill.expect(not more, f"{more} messages were acknowledged by {len(drill.ground.nodes) - 1} nodes")


def kill_process(drill: Drill) -> None:
    """kill -9 of one process of a node; its supervisor brings it back, or the node, and nothing else stops."""
    ground, name = drill.ground, drill.target
    master = drill.master()
    for number in (master, *ground.slaves()):
        if name in ground.node(number).pids():
            break
    else:
        known = sorted({label for node in ground.nodes for label in node.pids()})
        raise DrillImpossible("kill-process", f"no node runs {name}; there are {', '.join(known)}")
    node, pid = ground.node(number), ground.node(number).pids()[name]
    drill.run_for(BEFORE_S)
    fault = drill.fault(f"kill -9 of {name} of node {number}", node=number)
    node.signal(signal.SIGKILL, [pid])

    def again() -> None:
        if name == "supervisor":
            _restart_whole(drill, number)
        else:
            node.await_restarted(name, pid)

    drill.heal(fault, again, f"{name} runs again")
    drill.served(fault)


def _restart_whole(drill: Drill, number: int) -> None:
    """Its processes died with the supervisor; an operator, or an etcd, goes on from there."""
    ground = drill.ground
    ground.node(number).kill(0)
    if ground.master() is None:
        ground.replace_master(number)
    ground.node(number).start()


def pause_slave(drill: Drill) -> None:
    """SIGSTOP of every process of a slave for a while, then SIGCONT: it left the in-sync set and comes back."""
    ground, slave = drill.ground, drill.slave()
    drill.run_for(BEFORE_S)
    fault = drill.fault(f"node {slave}, a slave, is paused", node=slave)
    pids = ground.node(slave).pause()
    try:
        drill.run_for(drill.seconds)
        _serve_without_one(drill, fault)
    finally:
        ground.node(slave).go_on(pids)
    drill.heal(fault, lambda: None, f"node {slave} goes on")


def partition(drill: Drill) -> None:
    """The master is cut off from slaves, etcd and all producers but one; another node takes over; the cut heals.

    The producer that still reaches the old master must get no acknowledgement from it for what the others do not have:
    the check finds it lost otherwise.
    """
    ground, old = drill.ground, drill.master()
    network: Network = ground.network
    others = [number for number in ground.numbers if number != old]
    ways = [pair for other in others for pair in ((old, other), (other, old))]
    ways += [(old, ETCD), (CLIENTS, old), (old, old)]
    drill.run_for(BEFORE_S)
    before = ground.node(old).observe()
    fault = drill.fault(f"node {old}, the master, is cut off ({network.kind})", node=old, network=network.kind)
    network.cut(ways, half=drill.target == "half-open")
    try:
        replaced = ground.replace_master(old) if network.parts else Replaced(old, "left as it is", {})
        fault.facts |= replaced.facts
        new, how = replaced.master, replaced.how
        drill.served(fault)
        drill.run_for(drill.seconds)
        alone = ground.node(old).observe()
        if before is not None and alone is not None:
            fault.facts["appended_alone"] = alone.appended - before.appended
    except BaseException:
        network.heal()
        raise
    drill.heal(fault, network.heal, f"node {new} was {how}; the cut is healed")
    if network.parts:
        drill.must_be_slave(old)
    drill.expect(ground.master() == new, f"node {new} is no longer master after the cut was healed")


def rejoin_diverged(drill: Drill) -> None:
    """A master writes a tail that no slave gets, dies, is replaced, comes back: the tail is kept in diverged/."""
    ground, old = drill.ground, drill.master()
    node = ground.node(old)
    drill.run_for(BEFORE_S)
    fault = drill.fault(f"node {old}, the master, writes what no slave gets", node=old)
    sender = node.pause("send")

    def has_tail() -> bool:
        seen = node.observe()  # what is dispatched is confirmed: everything behind it may be a tail
        return seen is not None and tail_of(node.store, ground.segment_size, seen.dispatched, seen.appended) >= (
            2 * TAIL_RECORDS
        )

    try:
        await_(has_tail, TAIL_MAX_S, f"a tail of {2 * TAIL_RECORDS} records")
    except BaseException:
        node.go_on(sender)
        raise
    node.kill(drill.draw.getrandbits(16))
    replaced = ground.replace_master(old)
    fault.facts |= replaced.facts
    new, how = replaced.master, replaced.how
    drill.served(fault)
    drill.heal(fault, node.start, f"node {new} was {how}; node {old} is back with another tail")
    kept = kept_keys(node.store)
    fault.facts["kept_records"] = len(kept)
    drill.facts["kept_records"] = len(kept)
    drill.expect(len(kept) >= TAIL_RECORDS, f"diverged/ of node {old} holds {len(kept)} records of {TAIL_RECORDS}")
    drill.must_be_slave(old)


def rolling_restart(drill: Drill) -> None:
    """Every node in turn is stopped in order and started; a master's role moves to a slave first taken over."""
    ground = drill.ground
    first = drill.master()
    for number in [*ground.slaves(), first]:
        role = MASTER if number == drill.master() else SLAVE
        node = ground.node(number)
        fault = drill.fault(f"node {number}, the {role}, is stopped", node=number)
        clean = node.stop() if node.launched is not None else stop_node(node.store.root)
        drill.expect(clean, f"the store of node {number} was not clean after an orderly stop")
        if role == MASTER:
            replaced = ground.replace_master(number)
            fault.facts |= replaced.facts
        _serve_without_one(drill, fault)
        drill.heal(fault, node.start, f"node {number} is back")
    if drill.master() == first:
        raise DrillFailed("the role of the master did not move")


# --- records that a log holds, and that were cut off


_HEAD: Final = 8


def tail_of(store: Store, segment_size: int, start: int, end: int) -> int:
    """How many records stand in [start, end) of a log; `start` is a record's."""
    if start >= end:
        return 0
    log = CommitLogReader(store.commitlog, segment_size)
    log.load()
    scan, at, count = DispatchScan(log, QueueDirectory()), start, 0
    while at < end:
        batch = scan.read(at, end)
        count += len(batch.rows)
        if batch.end == at:
            break
        at = batch.end
    del batch, scan
    log.close()
    return count


def kept_keys(store: Store) -> list[str]:
    """Unique keys of the records in `diverged/`, each decoded whole. Raises MalformedRecord."""
    found = []
    for path in sorted(store.diverged.glob("*.log")) if store.diverged.is_dir() else ():
        found += _keys_of(path)
    return found


def _keys_of(path: Path) -> list[str]:
    data = np.memmap(path, dtype=np.uint8, mode="r")
    at, keys = 0, []
    while at <= len(data) - SIZE_MIN:
        head = data[at : at + _HEAD].tobytes()
        size, magic = int.from_bytes(head[:4], "big"), int.from_bytes(head[4:], "big")
        if magic not in (MAGIC_V1, MAGIC_V2) or size > len(data) - at:
            break  # a blank, or the end of what was written
        properties = decode_properties(decode(data[at : at + size].tobytes()).properties)
        keys.append(str(properties.get(UNIQ_KEY, "")))
        at += size
    return keys
