"""The recover process, first of a node's start: recovers the store's files and writes the positions."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from towline.errors import TowlineError
from towline.log.backup.restore import check_restored
from towline.log.files.config_file import clear_staged
from towline.log.recovery.offset_rollback import Clamped, clamp_to_recovered, lower_floors, lower_minima
from towline.log.recovery.recovery import Recovered, RecoverySettings, recover
from towline.log.recovery.shutdown_snapshot import Known
from towline.log.recovery.state_files import clear_leftovers, find_backups, heal_copies
from towline.log.recovery.truncation import truncate
from towline.log.recovery.verdicts import Decided
from towline.log.state.epoch_file import EpochFile, open_epoch
from towline.log.state.floors import adopt_queue_floors, adopt_transaction_floors
from towline.log.state.kafka_import import check_imported, clear_ended
from towline.log.state.topics_file import read_table
from towline.node.peers.peer_server import state_of
from towline.node.process.context import Node
from towline.node.process.failure import write_failure
from towline.node.process.own_log import begin_log
from towline.node.roles.agreement import next_epoch, report_of
from towline.node.roles.promise import begin_doubt, load_promise, promise_before, save_promise
from towline.node.roles.roles import wrote_as_sole_master
from towline.node.store.pool_state import PoolState, drop_pool
from towline.node.store.transient_pool import open_pool, salvage
from towline.runtime.failpoints import ARMED, reach
from towline.runtime.positions import Duty, Position, Positions, State
from towline.runtime.process import StopFlag, set_name
from towline.runtime.queue_ends import QueueEnds
from towline.runtime.settings import Settings
from towline.runtime.settings_model import BrokerRole

from .snapshot_store import discard_snapshots, load_snapshot, may_have_lost, record_nothing_lost, save_for_next_recovery

FOREVER: Final = 2**63 - 1


def recover_node(store_root: Path, log_file: Path | None) -> int:
    """Exit status of the recover process; a failure is left where the supervisor finds it."""
    StopFlag()
    set_name("towline:recover")
    log = begin_log(Duty.RECOVER.label, store_root, log_file)
    node = Node.of(store_root, Duty.RECOVER)
    try:
        node.line.enter(node.generation, State.RECOVERING)
        check_restored(node.store)
        check_imported(node.store)
        clear_ended(node.store)
        for directory in (node.store.config, node.store.ha):
            clear_staged(directory)
        decided = Decided()
        backups = find_backups(node.store, decided)  # before a save makes the files whole again
        for note in decided.notes:
            log.warning("%s", note)
        clear_leftovers(node.store, decided)
        for sentence in salvage(node.store, node.runtime):  # what the walk is to find (H25)
            log.warning("%s", sentence)
        truncate_log(node, decided)
        if node.settings.broker_role is not BrokerRole.SLAVE:
            adopt_queue_floors(node.store)
        known = load_snapshot(node.store, node.runtime, log)
        opened = EpochFile(node.store).load()[-1].number
        sole = wrote_as_sole_master(node.store, node.settings.broker_id, opened)
        recovered = recover(node.store, recovery_settings(node.settings), known, sole=sole)
        drop_pool(node.store, node.runtime)
        update_doubt(node, recovered, known)
        ends = node.queue_ends(writable=True)
        table = read_table(node.store)
        if node.settings.broker_role is not BrokerRole.SLAVE:
            table = lower_floors(node.store, recovered, node.settings.mapped_file_size_commit_log)
        ends.floors = table.floors()
        ends.minima = lower_minima(node.store, recovered, node.settings.mapped_file_size_commit_log)
        clamped = roll_back_offsets(node, recovered, ends.floors)
        publish(node.positions, ends, recovered)
        pooled = open_pool(node, recovered.end) is PoolState.ON
        # With a pool everything found is committed; without one COMMITTED goes with FLUSHED.
        committed = recovered.end if pooled else recovered.durable.flushed
        node.positions.writer(Position.COMMITTED, Duty.RECOVER).advance(committed)
        publish_history(node, recovered, decided, past=0 if recovered.resumed else opened)
        node.store.recovery.write_bytes(json.dumps(facts_of(recovered, clamped, backups, decided)).encode())
    except TowlineError as error:
        log.error("%s", error)
        write_failure(node.store, Duty.RECOVER, error)
        return 1
    for note in (*recovered.notes, *clamped.notes):
        log.warning("%s", note)
    log.info("recovered in %.3f s: log %d to %d", recovered.seconds, recovered.log_min, recovered.end)
    node.line.state = State.STOPPED
    return 0


def update_doubt(node: Node, recovered: Recovered, known: Known | None) -> None:
    """Begins or ends the doubt whether the store lacks written bytes; saves the snapshot for the next recovery."""
    if recovered.resumed and known is not None:
        save_for_next_recovery(node.store, node.runtime, node.log, replace(known, appended=recovered.end))
    shorter = known is not None and recovered.end < known.appended  # somebody put another log there
    on_disk = known is not None and known.synced
    if not shorter and (recovered.resumed or on_disk or not may_have_lost(node.store, node.runtime)):
        record_nothing_lost(node.store, node.runtime, node.log)
    elif node.settings.ha_peers:
        begin_doubt(node.store)


def truncate_log(node: Node, decided: Decided) -> None:
    """What this node's master does not have (H17). Nothing that was known of the store holds after that."""
    if not node.store.truncate.exists():
        return
    discard_snapshots(node.store, node.runtime)
    sizes = node.settings.mapped_file_size_commit_log, node.settings.mapped_file_size_consume_queue
    done = truncate(node.store, *sizes, _reached, decided)
    for note in done[1] if done is not None else ():
        node.log.warning("%s", note)


def _reached(step: str) -> None:
    if ARMED:
        reach(f"truncate.before_{step}")


def roll_back_offsets(node: Node, recovered: Recovered, floors: Mapping[tuple[bytes, int], int]) -> Clamped:
    """Offsets go back to where the log ends now, before put gives the lost numbers to other messages (H15).

    Not a slave's, which are its master's and may be ahead of its own log.
    """
    if node.settings.broker_role is BrokerRole.SLAVE:
        return Clamped()
    if adopt_transaction_floors(node.store, recovered.end):
        node.log.info("transactions go on where a RocketMQ broker stood")
    sizes = node.settings.mapped_file_size_commit_log, node.settings.mapped_file_size_consume_queue
    return clamp_to_recovered(node.store, recovered, floors, sizes)


def publish_history(node: Node, recovered: Recovered, decided: Decided, *, past: int) -> None:
    """Publishes the log's epoch and the promise. A master that has no peers opens its epoch here; another
    one does it when it has agreed with its peers. `past`: the newest epoch of which the log may have lost everything,
    so that its readers do not believe that it still lasts.
    """
    epoch = EpochFile(node.store).cut(recovered.end, recovered.log_min)[-1].number
    promise = load_promise(node.store)
    for note in heal_copies(node.store, decided):  # damage is refused before any process needs the files
        node.log.warning("%s", note)
    if node.settings.broker_role is BrokerRole.SLAVE and promise != (before := promise_before(node.store)):
        node.log.warning("takes back epoch %d, promised to itself: it never became master", promise.epoch)
        save_promise(node.store, promise := before)  # or it would depose the master that it greets
    node.positions.writer(Position.PROMISED, Duty.RECOVER).advance(promise.epoch)
    if node.settings.broker_role is not BrokerRole.SLAVE and not node.store.asked.exists():
        own = report_of(state_of(node))
        if past > own.written:
            own = replace(own, promised=max(past, own.promised), promised_node=-1)
        epoch = next_epoch(own, [], promotion=False)
        open_epoch(node.store, epoch, recovered.end)
    node.positions.writer(Position.EPOCH, Duty.RECOVER).advance(epoch)
    if not node.settings.etcd_endpoints:  # nobody can take the leadership away
        node.positions.writer(Position.LEASE_UNTIL, Duty.RECOVER).advance(FOREVER)


def facts_of(recovered: Recovered, clamped: Clamped, backups: list[str], decided: Decided) -> dict[str, Any]:
    """What recovery found and did, as run/recovery.json says it. Offsets and sizes in bytes, times in seconds.

    `clamped`: file -> how many of its offsets were beyond the ends of their queues. `backups`: files of config/ of
    which the generation before was used. `decided`: rows of the table that apply to other files than those of the log.
    """
    plain = ("log_min", "end", "dispatched", "confirmed", "clean", "cut_bytes", "notes", "seconds", "stages", "resumed")
    cases = [case.name for case in (*decided.cases, *recovered.cases)]
    more = {"queues": len(recovered.queues), "cases": cases, "clamped": clamped.counts, "backups": backups}
    return {name: getattr(recovered, name) for name in plain} | more


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

    What was confirmed stays so, on a master and on a slave: the replicas' marks begin there.
    """
    values = {
        Position.LOG_MIN: recovered.log_min,
        Position.APPENDED: recovered.end,
        Position.FLUSHED: recovered.durable.flushed,
        Position.DISPATCHED: recovered.dispatched,
        Position.INDEXED: recovered.indexed,
        Position.CONFIRMED: recovered.confirmed,
        Position.REPLICATED: recovered.confirmed,
        Position.ALLOCATED: recovered.allocated,
        Position.WANTED: recovered.active_base,
        Position.STORE_TIMESTAMP: recovered.last_store_timestamp,
        Position.DISPATCHED_TIMESTAMP: 0,
        Position.EPOCH: recovered.epochs[-1].number,
    }
    for position, value in values.items():
        positions.writer(position, Duty.RECOVER).advance(value)
    for queue in recovered.queues:
        newest = recovered.dispatched if queue.physical_end is None else queue.physical_end
        ends.add(queue.topic.encode(), queue.queue_id, queue.min_offset, queue.end_offset, newest)
