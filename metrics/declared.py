"""Every metric of a node, described once: name, type, labels, meaning. docs/metrics.md is made from this module.

What RocketMQ 5 has, has RocketMQ's name, labels and unit. A metric without a unit in its name counts things.
"""

from dataclasses import dataclass
from typing import Final

GAUGE, COUNTER, HISTOGRAM = "gauge", "counter", "histogram"
BROKER: Final = ("cluster", "node_type", "node_id")  # RocketMQ's labels of a node, on every metric of its names


@dataclass(frozen=True, slots=True)
class Declared:
    name: str
    kind: str
    labels: tuple[str, ...]
    meaning: str


def _rocketmq(name: str, kind: str, meaning: str, *labels: str) -> Declared:
    return Declared(f"rocketmq_{name}", kind, (*BROKER, *labels), meaning)


def _towline(name: str, kind: str, meaning: str, *labels: str) -> Declared:
    return Declared(f"towline_{name}", kind, labels, meaning)


_TOPIC: Final = ("topic", "is_system")
_PAIR: Final = ("consumer_group", "topic", "is_retry", "is_system")

ROCKETMQ: Final = (
    _rocketmq("messages_in_total", COUNTER, "messages stored; on a slave: dispatched", *_TOPIC),
    _rocketmq("messages_out_total", COUNTER, "messages that serve has answered with", *_TOPIC),
    _rocketmq("throughput_in_total", COUNTER, "bytes of the records of messages_in", *_TOPIC),
    _rocketmq("throughput_out_total", COUNTER, "bytes of the records of messages_out", *_TOPIC),
    _rocketmq("consumer_lag_messages", GAUGE, "messages that a group has not read yet; on a master", *_PAIR),
    _rocketmq("consumer_lag_latency", GAUGE, "ms since the oldest of them was stored; on a master", *_PAIR),
    _rocketmq("storage_size", GAUGE, "bytes of log, queues and index", "storage_type", "storage_medium"),
    _rocketmq("storage_flush_behind_bytes", GAUGE, "bytes that are appended and not on the disk"),
    _rocketmq("storage_dispatch_behind_bytes", GAUGE, "bytes that are confirmed and not in their queues"),
    _rocketmq("storage_message_reserve_time", GAUGE, "ms since the oldest message of the log was stored"),
    _rocketmq("broker_permission", GAUGE, "sum of 4, it may be read, and 2, it takes messages"),
    _rocketmq("topic_number", GAUGE, "topics, those of the system too"),
    _rocketmq("consumer_group_number", GAUGE, "consumer groups with settings"),
)

_NODE: Final = (
    _towline(
        "node_info",
        GAUGE,
        "1; what the node is",
        "version",
        "role",
        "broker_role",
        "flush_disk_type",
        "cluster",
        "broker_name",
        "broker_id",
    ),
    _towline("is_master", GAUGE, "1 on a master, 0 on a slave"),
    _towline("epoch", GAUGE, "epoch of the master that the node is or follows"),
    _towline("promised_epoch", GAUGE, "greatest epoch that it has promised to another node"),
    _towline("start_time_seconds", GAUGE, "when the node was started, seconds since 1970"),
    _towline("ready", GAUGE, "1 where /ready answers 200"),
    _towline("not_ready", GAUGE, "1 for each reason why it is not ready", "reason"),
    _towline("flag", GAUGE, "1 for each running flag that is raised", "flag"),
    _towline("scrape_seconds", GAUGE, "how long reading the figures of this scrape took"),
    _towline("left_out", GAUGE, "topics, groups and topics of groups that have no series of their own", "of"),
)
_STORE: Final = (
    _towline("position_bytes", GAUGE, "offset in the log up to which something is done (ARCHITECTURE.md)", "position"),
    _towline("stage_behind_bytes", GAUGE, "bytes that a stage is behind the log's end", "stage"),
    _towline("stage_behind_seconds", GAUGE, "age of the newest stored message less that of the newest done", "stage"),
    _towline("sync_failed", GAUGE, "1 after a failed sync of the log, or of queues and index", "of"),
    _towline("dispatch_stopped", GAUGE, "1 where a record cannot be dispatched"),
    _towline("damaged_records_total", COUNTER, "records that readers found damaged"),
    _towline("put_latency_seconds", HISTOGRAM, "requests by the time from arrival to answer; on a master"),
    _towline(
        "stage_seconds",
        HISTOGRAM,
        "batches by the time that a stage took: append (one of 8), receive, flush, replicate, dispatch, serve",
        "stage",
    ),
    _towline("put_latency_max_seconds", GAUGE, "the longest of them since the start"),
    _towline("slow_puts_total", COUNTER, "requests that took more than 500 ms"),
    _towline("empty_pulls_total", COUNTER, "answers of serve without messages"),
    _towline("refused_total", COUNTER, "requests that put has refused", "cause"),
    _towline("segments_made_total", COUNTER, "segments of the log", "by"),
    _towline("segments_slow_total", COUNTER, "segments that took allocate more than 10 ms"),
    _towline("delayed_messages", GAUGE, "messages that wait to be delivered; on a master"),
    _towline("delayed_late_seconds", GAUGE, "for how long the next of them has been due; on a master"),
    _towline("queues", GAUGE, "queues that messages were ever dispatched to"),
    _towline("group_lag_messages", GAUGE, "messages that a group has not read yet, of all topics", "consumer_group"),
    _towline("group_behind_bytes", GAUGE, "log bytes from the oldest of them to the log's end", "consumer_group"),
    _towline(
        "group_reads_cold",
        GAUGE,
        "1 where they no longer are among the newest bytes of the log, which count as cached",
        "consumer_group",
    ),
    _towline("group_lag_seconds", GAUGE, "time since the oldest of them was stored", "consumer_group"),
)
_REPLICATION: Final = (
    _towline("in_sync_replicas", GAUGE, "nodes of the in-sync set, this one too"),
    _towline("slave_connected", GAUGE, "1 while it is; on a master", "node"),
    _towline("slave_in_sync", GAUGE, "1 where it is in the in-sync set; on a master", "node"),
    _towline("slave_behind_bytes", GAUGE, "bytes that are not on its disk; on a master", "node"),
    _towline("rocketmq_slaves", GAUGE, "brokers of RocketMQ that follow now; on a master"),
    _towline("rocketmq_slave_behind_bytes", GAUGE, "confirmed bytes that one has not reported; on a master", "address"),
    _towline("follows_master", GAUGE, "1 while a slave is connected to its master; on a slave"),
    _towline("behind_master_bytes", GAUGE, "bytes that its master has confirmed and it has not; on a slave"),
    _towline("lease_left_seconds", GAUGE, "for how long a master may still acknowledge; with etcd"),
)
_DISK: Final = (
    _towline("disk_available_bytes", GAUGE, "bytes of the store's file system that are free to the node"),
    _towline("disk_used_ratio", GAUGE, "share of it that is used, 0 to 1"),
    _towline("disk_full_seconds", GAUGE, "until puts are refused, at the rate of the last segments; +Inf: not known"),
    _towline("store_bytes", GAUGE, "bytes of a part of the store", "part"),
)
_PROCESSES: Final = (
    _towline("process_cpu_seconds_total", COUNTER, "time on a CPU", "process"),
    _towline("process_pss_bytes", GAUGE, "its share of memory, without pages of the store; a minute old", "process"),
    _towline("process_beat_age_seconds", GAUGE, "since it last did a turn of its work", "process"),
    _towline("process_turn_seconds", GAUGE, "for how long an append or a sync has been under way", "process"),
    _towline("process_standing_still", GAUGE, "1 where it has done no turn for two seconds", "process"),
    _towline("process_messages_total", COUNTER, "messages", "process"),
    _towline("process_batches_total", COUNTER, "batches of its work", "process"),
    _towline("process_refused_total", COUNTER, "requests that it has refused", "process"),
    _towline("process_busy_seconds_total", COUNTER, "time in its work, of put and receive", "process"),
    _towline("process_syncs_total", COUNTER, "syncs of the log, of flush", "process"),
    _towline("process_lost_total", COUNTER, "messages that it could do nothing for any more", "process"),
)
_REMOTING: Final = (
    _towline("connections", GAUGE, "connections of `listen_port`; `own`: of Towline's clients", "of"),
    _towline("connections_accepted_total", COUNTER, "connections that came"),
    _towline("connections_left_total", COUNTER, "connections that their clients have ended"),
    _towline("connections_ended_total", COUNTER, "connections that were ended from this side", "cause"),
    _towline("connection_bytes", GAUGE, "bytes of unfinished frames and of answers that were not taken"),
    _towline("remoting_refused_total", COUNTER, "requests that were refused, by the answer's code", "code"),
)

# Of a node that runs; before that only what STARTING names is known.
PARTS: Final = {
    "RocketMQ's names": ROCKETMQ,
    "The node": _NODE,
    "Log, queues, groups": _STORE,
    "Replication": _REPLICATION,
    "Disk": _DISK,
    "Processes": _PROCESSES,
    "`listen_port`": _REMOTING,
}
DECLARED: Final = {each.name: each for part in PARTS.values() for each in part}
STARTING: Final = tuple(DECLARED[f"towline_{name}"] for name in ("node_info", "is_master", "ready", "not_ready"))
