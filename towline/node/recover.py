"""The first process of a node's start: recovers the store's files and writes the positions before any owner exists."""

import json
from pathlib import Path
from typing import Any

from towline.errors import TowlineError
from towline.log.deleted_topics import settle
from towline.log.recovery import Recovered, RecoverySettings, recover
from towline.log.segment_files import clear_staging
from towline.log.topics_file import read_table
from towline.runtime.logging import configure
from towline.runtime.positions import Duty, Position, Positions, State
from towline.runtime.process import StopFlag, set_name
from towline.runtime.queue_ends import QueueEnds
from towline.runtime.settings import Settings
from towline.runtime.settings_model import BrokerRole

from .context import Node
from .failure import write_failure
from .pool_left import drop_pool
from .remembered import recall
from .transient import PoolState, open_pool, salvage


def recover_node(store_root: Path, log_file: Path | None) -> int:
    """Exit status of the recover process; a failure is left where the supervisor finds it."""
    StopFlag()
    set_name("towline:recover")
    log = configure(Duty.RECOVER.label, log_file)
    node = Node.of(store_root, Duty.RECOVER)
    try:
        node.line.enter(node.generation, State.RECOVERING)
        node.store.staging.mkdir(exist_ok=True)
        clear_staging(node.store.staging)
        for sentence in salvage(node.store, node.runtime):  # what the walk is to find (H25)
            log.warning("%s", sentence)
        known = recall(node.store, node.runtime, log)
        recovered = recover(node.store, recovery_settings(node.settings), known)
        drop_pool(node.store, node.runtime)
        ends = node.queue_ends(writable=True)
        table = read_table(node.store)
        if node.settings.broker_role is not BrokerRole.SLAVE:
            table = settle(node.store, recovered, node.settings.mapped_file_size_commit_log)
        ends.floors = table.floors()
        publish(node.positions, ends, recovered)
        pooled = open_pool(node, recovered.end) is PoolState.ON
        # With a pool everything found is committed; without one COMMITTED goes with FLUSHED.
        committed = recovered.end if pooled else recovered.durable.flushed
        node.positions.writer(Position.COMMITTED, Duty.RECOVER).advance(committed)
        node.store.recovery.write_bytes(json.dumps(facts_of(recovered)).encode())
    except TowlineError as error:
        log.error("%s", error)
        write_failure(node.store, Duty.RECOVER, error)
        return 1
    for note in recovered.notes:
        log.warning("%s", note)
    log.info("recovered in %.3f s: log %d to %d", recovered.seconds, recovered.log_min, recovered.end)
    node.line.state = State.STOPPED
    return 0


def facts_of(recovered: Recovered) -> dict[str, Any]:
    """What recovery found and did, as run/recovery.json says it. Offsets and sizes in bytes, times in seconds."""
    plain = ("log_min", "end", "dispatched", "clean", "cut_bytes", "notes", "seconds", "stages", "resumed")
    cases = [case.name for case in recovered.cases]
    return {name: getattr(recovered, name) for name in plain} | {"queues": len(recovered.queues), "cases": cases}


def recovery_settings(settings: Settings) -> RecoverySettings:
    return RecoverySettings(
        segment_size=settings.mapped_file_size_commit_log,
        queue_file_size=settings.mapped_file_size_consume_queue,
        index_slots=settings.max_hash_slot_num if settings.message_index_enable else None,
        index_indexes=settings.max_index_num,
        check_crc=settings.check_crc_on_recover,
        force_property_crc=settings.force_verify_prop_crc,
    )


def publish(positions: Positions, ends: QueueEnds, recovered: Recovered) -> None:
    """The positions of a new generation, but COMMITTED, which the transient pool decides.

    What was dispatched was confirmed, so the replicas' marks begin there.
    """
    values = {
        Position.LOG_MIN: recovered.log_min,
        Position.APPENDED: recovered.end,
        Position.FLUSHED: recovered.durable.flushed,
        Position.DISPATCHED: recovered.dispatched,
        Position.INDEXED: recovered.indexed,
        Position.CONFIRMED: recovered.dispatched,
        Position.REPLICATED: recovered.dispatched,
        Position.ALLOCATED: recovered.allocated,
        Position.WANTED: recovered.active_base,
        Position.STORE_TIMESTAMP: recovered.last_store_timestamp,
        Position.DISPATCHED_TIMESTAMP: 0,
    }
    for position, value in values.items():
        positions.writer(position, Duty.RECOVER).advance(value)
    for queue in recovered.queues:
        newest = recovered.dispatched if queue.physical_end is None else queue.physical_end
        ends.add(queue.topic.encode(), queue.queue_id, queue.min_offset, queue.end_offset, newest)
