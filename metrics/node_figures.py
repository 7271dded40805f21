"""What the node is, whether it is ready, its processes, its slaves or its master, its disk, and who is connected."""

import math
from importlib.metadata import version
from typing import Final

from towline.clock import boottime_ns
from towline.node.process.context import Node
from towline.node.report.processes import standing_still
from towline.node.report.readiness import Reason
from towline.node.report.status import space_of
from towline.node.roles.role_commands import read_json_file
from towline.node.store.confirmed import confirmed_of
from towline.runtime.positions import Counter, Duty, Flag, Position, State
from towline.runtime.remoting_counts import RemotingCounts, Total
from towline.runtime.settings_model import BrokerRole

from .families import Families
from .looking import Look

_NS: Final = 1_000_000_000
_MS: Final = 1_000
_COUNTERS: Final = {
    "towline_process_messages_total": "messages",
    "towline_process_batches_total": "batches",
    "towline_process_refused_total": "refused",
}
_BUSY: Final = (Duty.PUT.label, Duty.RECEIVE.label)  # others do not count it
VERSION: Final = version("towline")


def add_node(to: Families, look: Look) -> None:
    """What is known also while the node starts."""
    settings = look.node.settings
    is_master = settings.broker_role is not BrokerRole.SLAVE
    to.add(
        "towline_node_info",
        1,
        VERSION,
        "master" if is_master else "slave",
        settings.broker_role.value,
        settings.flush_disk_type.value,
        settings.broker_cluster_name,
        settings.broker_name,
        str(settings.broker_id),
    )
    to.add("towline_is_master", is_master)
    reasons = {each["reason"] for each in look.not_ready}
    to.add("towline_ready", not reasons)
    to.add_each("towline_not_ready", {each.value: each.value in reasons for each in Reason})


def add_state(to: Families, look: Look) -> None:
    positions, settings = look.node.positions, look.node.settings
    to.add("towline_epoch", positions.get(Position.EPOCH))
    to.add("towline_promised_epoch", positions.get(Position.PROMISED))
    if look.facts is not None:
        to.add("towline_start_time_seconds", look.facts["started"] / _MS)
    raised = positions.flags
    to.add_each("towline_flag", {flag.name.lower(): flag in raised for flag in Flag if flag.name})
    to.add("rocketmq_broker_permission", settings.broker_permission)


def add_processes(to: Families, look: Look, pss: dict[str, int]) -> None:
    still = {each["duty"] for each in standing_still(look.processes)}
    for process in look.processes:
        duty = process["duty"]
        to.add("towline_process_cpu_seconds_total", process["cpu_s"], duty)
        to.add("towline_process_standing_still", duty in still, duty)
        if duty in pss:
            to.add("towline_process_pss_bytes", pss[duty], duty)
        if "beat_age_ms" not in process:
            continue  # the zygote
        counters = process["counters"]
        to.add("towline_process_beat_age_seconds", process["beat_age_ms"] / _MS, duty)
        to.add("towline_process_turn_seconds", process["turn_ms"] / _MS, duty)
        for name, counter in _COUNTERS.items():
            to.add(name, counters[counter], duty)
        if duty in _BUSY:
            to.add("towline_process_busy_seconds_total", counters[Counter.BUSY_NS.name.lower()] / _NS, duty)
        if duty == Duty.FLUSH.label:
            to.add("towline_process_syncs_total", counters["syncs"], duty)
        to.add("towline_process_lost_total", process["lost"], duty)


def add_replication(to: Families, node: Node) -> None:
    positions = node.positions
    members = positions.get(Position.IN_SYNC)
    to.add("towline_in_sync_replicas", members.bit_count())
    appended = positions.get(Position.APPENDED)
    if node.settings.broker_role is BrokerRole.SLAVE:
        link = read_json_file(node.store.link)
        to.add("towline_follows_master", link is not None and bool(link["connected"]))
        to.add("towline_behind_master_bytes", max(0, positions.get(Position.CONFIRMED) - appended))
        return
    for slave in positions.slaves():
        if slave.connected or slave.appended:
            label = str(slave.node)
            to.add("towline_slave_connected", slave.connected, label)
            to.add("towline_slave_in_sync", slave.connected and bool(members >> slave.node & 1), label)
            to.add("towline_slave_behind_bytes", appended - slave.flushed, label)
    end = confirmed_of(node)()
    followers = [line for line in positions.rocketmq_slaves() if line.connected]
    to.add("towline_rocketmq_slaves", len(followers))
    for line in followers:
        to.add("towline_rocketmq_slave_behind_bytes", max(0, end - line.reported), line.address)
    if node.settings.etcd_endpoints:
        to.add("towline_lease_left_seconds", max(0, positions.get(Position.LEASE_UNTIL) - boottime_ns()) / _NS)


def add_disk(to: Families, node: Node) -> None:
    space = space_of(node)
    to.add("towline_disk_available_bytes", space["available"])
    to.add("towline_disk_used_ratio", space["used_percent"] / 100)
    to.add("towline_disk_full_seconds", math.inf if space["full_in_s"] is None else space["full_in_s"])


def add_connections(to: Families, node: Node) -> None:
    """Of the port for clients; nothing where there is none."""
    if node.positions.duty(Duty.REMOTING).state is State.ABSENT:
        return
    counts = RemotingCounts(node.positions)
    to.add("towline_connections", counts.total(Total.OPEN), "all")
    to.add("towline_connections", counts.total(Total.OWN_CLIENTS), "own")
    to.add("towline_connections_accepted_total", counts.total(Total.ACCEPTED))
    to.add("towline_connections_left_total", counts.total(Total.LEFT))
    to.add("towline_connection_bytes", counts.total(Total.HELD))
    to.add_each("towline_connections_ended_total", {ending.label: n for ending, (n, _) in counts.endings().items()})
    refused = {"other" if code is None else code.name: count for code, (count, _) in counts.refusals().items()}
    to.add_each("towline_remoting_refused_total", refused | {"own": counts.total(Total.OWN_REFUSED)})
