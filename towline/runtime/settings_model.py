"""Every key of the settings, in groups: RocketMQ's own keys in snake_case with RocketMQ's defaults (spec section 12).

A key is described once, here: default, unit, meaning, bounds, RocketMQ's spelling where it is not the plain camelCase,
older spellings, where the default differs from RocketMQ's, why, and whose processes take a change while the node runs.
docs/settings.md is made from this module.
"""

import re
from enum import Enum
from pathlib import Path
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from towline.format.wire.put_ring import REQUESTS_SIZE_MAX, REQUESTS_SIZE_MIN
from towline.limits import (
    DAY_S,
    DELAY_MAX_S,
    GIB,
    KERNEL_BYTES_MAX,
    KIB,
    MESSAGE_BODY_MAX,
    MIB,
    NODE_MAX,
    PAGE,
    QUEUES_MAX,
    REQUEST_SIZE_MAX,
    ROCKETMQ_SLAVES_MAX,
)

INT32_MAX, INT64_MAX = 2**31 - 1, 2**63 - 1
LISTEN_PORT, FAST_LISTEN_PORT, HA_PORT, NAME_SERVER_PORT = 10_911, 10_909, 10_912, 9_876  # RocketMQ's numbers
DELAY_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"


class FlushDiskType(Enum):
    ASYNC_FLUSH = "ASYNC_FLUSH"
    SYNC_FLUSH = "SYNC_FLUSH"


class LogLevel(Enum):
    DEBUG = "DEBUG"
    INFO = "INFO"
    WARNING = "WARNING"
    ERROR = "ERROR"


class LogFormat(Enum):
    TEXT = "text"
    JSON = "json"


class TlsMode(Enum):
    DISABLED = "DISABLED"
    PERMISSIVE = "PERMISSIVE"
    ENFORCING = "ENFORCING"


class BrokerRole(Enum):
    ASYNC_MASTER = "ASYNC_MASTER"
    SYNC_MASTER = "SYNC_MASTER"
    SLAVE = "SLAVE"


def key(
    default: object,
    unit: str,
    meaning: str,
    *,
    rocketmq: str = "",
    old: str = "",
    differs: str = "",
    live: str = "",
    lowest: int | None = None,
    highest: int | None = None,
) -> Any:
    """A field. `rocketmq`: its spelling there; `old`: a former one; `differs`: RocketMQ's default and why not ours.

    `live`: the processes that take another value while the node runs; "": it is read when the node starts. A number,
    which has a `lowest`, fits into 64 bits.
    """
    highest = INT64_MAX if highest is None and lowest is not None else highest
    facts: dict[str, Any] = {"unit": unit, "rocketmq": rocketmq, "old": old, "differs": differs, "live": live}
    text = f"{meaning} ({unit})" if unit else meaning
    text += f". RocketMQ: {differs}" if differs else ""
    return Field(default, ge=lowest, le=highest, description=text, json_schema_extra=facts)


def size(default: int, meaning: str, **more: Any) -> Any:
    return key(default, "bytes", meaning, **({"lowest": 1} | more))


def ms(default: int, meaning: str, **more: Any) -> Any:
    return key(default, "ms", meaning, **({"lowest": 0} | more))


def count(default: int, meaning: str, **more: Any) -> Any:
    return key(default, "", meaning, **({"lowest": 1} | more))


def percent(default: int, meaning: str, **more: Any) -> Any:
    return key(default, "percent", meaning, **({"lowest": 0, "highest": 100} | more))


def switch(default: bool, meaning: str, **more: Any) -> Any:
    return key(default, "", meaning, **more)


def port(default: int, meaning: str, **more: Any) -> Any:
    return key(default, "", f"{meaning}; 0: no TCP, only the local socket", lowest=0, highest=65_535, **more)


def clients_port(default: int, meaning: str, **more: Any) -> Any:
    return key(default, "", f"{meaning}; 0: none", lowest=0, highest=65_535, **more)


class Group(BaseModel):
    """A group of keys. `title` heads it in docs/settings.md."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)
    title: ClassVar[str] = ""


class StoreKeys(Group):
    title: ClassVar[str] = "Store files"

    store_path_root_dir: Path = key(Path("~/store"), "", "store root directory; `~` and relative paths are resolved")
    store_path_commit_log: Path | None = key(
        None, "", "directory of the CommitLog; it can only be `commitlog` below the root (link(2))"
    )
    mapped_file_size_commit_log: int = size(
        GIB,
        "size of a CommitLog segment, a multiple of 4096; master, slaves and readers must agree",
        old="mapedFileSizeCommitLog",
        lowest=PAGE,
        highest=INT32_MAX,
    )
    mapped_file_size_consume_queue: int = size(
        6_000_000,
        "size of a ConsumeQueue file, rounded up to a multiple of 20",
        old="mapedFileSizeConsumeQueue",
        highest=INT32_MAX - 19,
    )
    enable_consume_queue_ext: bool = switch(False, "write ConsumeQueueExt units beside the queues")
    mapped_file_size_consume_queue_ext: int = size(48 * MIB, "size of a ConsumeQueueExt file", highest=INT32_MAX)
    max_message_size: int = size(MESSAGE_BODY_MAX, "largest body of a message")
    auto_message_version_on_topic_len: bool = switch(
        True, "record version 2 for %RETRY% topics above 127 bytes; without it such a topic is refused"
    )
    enabled_append_prop_crc: bool = switch(
        False,
        "end the properties of each record with a CRC of the whole record, which is compared under "
        "force_verify_prop_crc alone",
        rocketmq="enabledAppendPropCRC",
    )
    force_verify_prop_crc: bool = switch(
        False,
        "recovery, verify, lookups and readers of the files take a record for damaged that does not end with its own "
        "such CRC; not for a store that has older records, or that a broker without enabledAppendPropCRC wrote to",
        rocketmq="forceVerifyPropCRC",
    )
    check_crc_on_recover: bool = switch(True, "recovery checks the CRC of each body", rocketmq="checkCRCOnRecover")


class FlushKeys(Group):
    title: ClassVar[str] = "Flushing"

    flush_disk_type: FlushDiskType = key(
        FlushDiskType.ASYNC_FLUSH, "", "SYNC_FLUSH: PUT_OK means on disk; ASYNC_FLUSH: in memory, on disk soon"
    )
    sync_flush_timeout: int = ms(5000, "SYNC_FLUSH: a put that is not on disk by then is answered FLUSH_DISK_TIMEOUT")
    flush_interval_commit_log: int = ms(500, "ASYNC_FLUSH: pause between two checks", lowest=1)
    flush_commit_log_timed: bool = switch(True, "ASYNC_FLUSH: the pause is full; false: a put ends it early")
    flush_commit_log_least_pages: int = key(
        4, "pages of 4096 bytes", "ASYNC_FLUSH: flush from so many dirty pages", lowest=0
    )
    flush_commit_log_thorough_interval: int = ms(10_000, "ASYNC_FLUSH: however few are dirty, flush after this time")
    commit_interval_commit_log: int = ms(200, "transient pool: pause between two commits", lowest=1)
    commit_commit_log_least_pages: int = key(
        4, "pages of 4096 bytes", "transient pool: commit from so many pages", lowest=0
    )
    commit_commit_log_thorough_interval: int = ms(200, "transient pool: commit whatever there is after this time")
    wake_commit_when_put_message: bool = switch(True, "transient pool: a put wakes the commit service")
    wake_flush_when_put_message: bool = switch(False, "a put wakes the flush service")
    flush_interval_consume_queue: int = ms(1000, "pause between two flushes of the ConsumeQueues", lowest=1)
    flush_consume_queue_least_pages: int = key(
        2, "pages of 4096 bytes", "flush a queue from so many dirty pages", lowest=0
    )
    flush_consume_queue_thorough_interval: int = ms(60_000, "flush every queue, then the checkpoint, after this time")
    transient_store_pool_enable: bool = switch(
        False, "append to locked memory and copy to the file; only with ASYNC_FLUSH, not used by a SLAVE"
    )
    transient_store_pool_size: int = count(5, "buffers of the transient pool, one segment each")
    fast_fail_if_no_buffer_in_store_pool: bool = switch(False, "refuse at once when the transient pool is empty")


class AllocateKeys(Group):
    title: ClassVar[str] = "Allocating segments"

    warm_mapped_file_enable: bool = switch(
        True,
        "a new segment's pages are written before the log's writer gets it",
        rocketmq="warmMapedFileEnable",
        differs="false; a put that meets a cold page waits for it, and warming is another process's work here",
    )
    flush_least_pages_when_warm_mapped_file: int = count(
        1024,
        "warming syncs after so many pages of 4096 bytes",
        rocketmq="flushLeastPagesWhenWarmMapedFile",
        differs="4096, and only under SYNC_FLUSH; pages that are left dirty slow every writer of the machine down",
    )
    lock_mapped_files: bool = switch(
        False,
        "keep a segment in memory from its warm-up until 6 s after it was filled, as far as RLIMIT_MEMLOCK allows",
        differs="always; what is locked cannot be given to anybody else, and the node may be killed for it",
    )
    cached_after_filled_ms: int = ms(
        600_000,
        "a full segment that is flushed, dispatched and on every connected slave leaves the page cache after this time;"
        " 0: it stays until the kernel wants the memory",
    )


class IndexKeys(Group):
    title: ClassVar[str] = "Index"

    message_index_enable: bool = switch(True, "index messages by key and unique key")
    max_hash_slot_num: int = count(5_000_000, "hash slots of an index file; every reader must use the same")
    max_index_num: int = count(
        20_000_000, "entries of an index file, the unused entry 0 included; every reader must use the same", lowest=2
    )


class ReadKeys(Group):
    title: ClassVar[str] = "Reading"

    max_msgs_num_batch: int = count(64, "most messages of a lookup by key")
    default_query_max_num: int = count(32, "messages of a lookup that names no number")
    max_transfer_bytes_on_message_in_memory: int = size(
        4 * MIB, "most bytes of a pull from memory", differs="262144; a pull is a batch here", live="serve, remoting"
    )
    max_transfer_count_on_message_in_memory: int = count(
        65_536, "most messages of a pull from memory", differs="32; a pull is a batch here", live="serve, remoting"
    )
    max_transfer_bytes_on_message_in_disk: int = size(
        MIB, "most bytes of a pull from disk", differs="65536; a pull is a batch here", live="serve, remoting"
    )
    max_transfer_count_on_message_in_disk: int = count(
        16_384, "most messages of a pull from disk", differs="8; a pull is a batch here", live="serve, remoting"
    )
    access_message_in_memory_max_ratio: int = percent(40, "share of memory within which the log's end counts as cached")
    max_filter_message_size: int = size(
        6_000_000, "ConsumeQueue bytes that a filtered pull walks at most", differs="16000; a pull is a batch here"
    )
    offset_check_in_slave: bool = switch(False, "a slave corrects a pull's offset that lies outside its queue")
    slave_read_enable: bool = switch(False, "tell a reader that is far behind to read from a slave")
    long_polling_enable: bool = switch(True, "hold a pull that finds nothing until a message arrives")
    short_polling_time_mills: int = ms(1000, "without long polling: hold a pull that finds nothing this long")


class CleanKeys(Group):
    title: ClassVar[str] = "Cleaning and disk space"

    clean_resource_interval: int = ms(
        10_000, "pause between two checks for expired files, and messages", lowest=1, live="allocate, reput"
    )
    delete_when: str = key("04", "local hours, `;` between several", "when expired files are deleted", live="allocate")
    file_reserved_time: int = key(
        72, "hours", "age from which a segment is expired, unless a topic is kept longer", lowest=0, live="allocate"
    )
    delete_commit_log_files_interval: int = ms(100, "pause between two deleted segments")
    delete_consume_queue_files_interval: int = ms(100, "pause between two deleted ConsumeQueue files")
    destroy_mapped_file_interval_forcibly: int = ms(
        120_000,
        "a deleted file that is still in use is closed after this time",
        rocketmq="destroyMapedFileIntervalForcibly",
    )
    redelete_hanged_file_interval: int = ms(120_000, "pause before a file that was in use is deleted again")
    delete_file_batch_max: int = count(10, "most segments deleted in one turn")
    disk_max_used_space_ratio: int = percent(
        75, "above it expired files go at any hour; kept within 10 to 95", live="allocate"
    )
    disk_space_clean_forcibly_ratio: int = percent(
        85, "above it files go whatever their age; kept within 30 to 85", live="allocate"
    )
    disk_space_warning_level_ratio: int = percent(
        90, "above it puts are refused as well; kept within 35 to 90", live="allocate"
    )
    clean_file_forcibly_enable: bool = switch(
        True, "a full disk may delete files that are not expired", live="allocate"
    )


class PutKeys(Group):
    title: ClassVar[str] = "Putting, topics, delays, transactions"

    broker_permission: int = key(
        6,
        "sum of 4 read, 2 write",
        "what the broker as a whole allows; without 2 puts are refused; 4 has to be in it, as reads are never refused",
        lowest=4,
        highest=7,
        live="put, remoting",
    )
    auto_create_topic_enable: bool = switch(
        True, "the first message of an unknown topic creates it", live="put, remoting"
    )
    dots_in_topic_names: bool = switch(
        False, "topics may have dots in their names, which RocketMQ's own clients refuse", live="put, remoting"
    )
    default_topic_queue_nums: int = count(
        8, "queues of a topic that is created so; a client may ask for fewer", highest=KIB
    )
    auto_create_subscription_group: bool = switch(
        True, "the first request of an unknown consumer group creates it", live="serve"
    )
    wait_time_mills_in_send_queue: int = ms(200, "a put that waited longer for its turn is refused as busy", live="put")
    os_page_cache_busy_time_out_mills: int = ms(
        1000, "while an append takes longer, other puts are refused as busy", live="put"
    )
    flush_consumer_offset_interval: int = ms(5000, "pause between two writes of the consumer offsets", lowest=1)
    message_delay_level: str = key(DELAY_LEVELS, "numbers with s, m, h or d", "delay levels, the first is level 1")
    flush_delay_offset_interval: int = ms(
        500,
        "pause between two writes of the delay offsets",
        lowest=1,
        highest=10_000,
        differs="10000; after a crash, what was delivered since the last write is delivered again",
    )
    timer_max_delay_sec: int = key(
        3 * DAY_S, "s", "how far away a message's `deliver_at` may be", lowest=1, highest=DELAY_MAX_S
    )
    transaction_time_out: int = ms(6000, "age from which an open transaction is checked")
    transaction_check_max: int = count(15, "checks of an open transaction before it is put aside")
    transaction_check_interval: int = ms(30_000, "pause between two rounds of checks", lowest=1)


class FilterKeys(Group):
    title: ClassVar[str] = "Filters"

    enable_calc_filter_bit_map: bool = switch(False, "reput computes the filter bitmap of each message")
    expect_consumer_num_use_filter: int = count(32, "filtering groups of a topic that the bitmap is sized for")
    max_error_rate_of_bloom_filter: int = percent(20, "false positives of the bitmap", lowest=1, highest=99)
    enable_property_filter: bool = switch(False, "allow SQL92 filters on properties")


class HaKeys(Group):
    title: ClassVar[str] = "Replication"

    broker_role: BrokerRole = key(
        BrokerRole.ASYNC_MASTER,
        "",
        "SYNC_MASTER: PUT_OK means on all in-sync slaves as well, under its SYNC_FLUSH on their disks, under "
        "ASYNC_FLUSH in their memory; SLAVE: follows a master",
    )
    ha_master_address: str | None = key(None, "host:port", "SLAVE: the master's `ha_listen_port`")
    rocketmq_master_address: str | None = key(
        None,
        "host:port",
        "SLAVE: the `haListenPort` of a broker of RocketMQ that is the master, in place of `ha_master_address`",
    )
    rocketmq_master_broker: str | None = key(
        None, "host:port", "SLAVE: the `listenPort` of that broker, which is asked for topics, groups and offsets"
    )
    ha_send_heartbeat_interval: int = ms(5000, "a link that is silent so long sends a heartbeat", lowest=1)
    ha_housekeeping_interval: int = ms(20_000, "a link that is silent so long is closed", lowest=1)
    ha_transfer_batch_size: int = size(
        MIB, "most log bytes of a frame", differs="32768; a frame costs a turn of an interpreted loop here"
    )
    ha_max_gap_not_in_sync: int = size(
        256 * MIB, "a slave further behind does not join the in-sync set, and leaves it", old="haSlaveFallbehindMax"
    )
    ha_max_time_slave_not_catchup: int = ms(
        15_000, "a slave that did not catch up for so long leaves the in-sync set; one that is away leaves it at once"
    )
    slave_timeout: int = ms(
        3000, "SYNC_MASTER: a put that is not on the slaves by then is answered FLUSH_SLAVE_TIMEOUT"
    )
    total_replicas: int = count(
        1, "nodes that hold the log, the master included; at least `in_sync_replicas`", live="supervise"
    )
    in_sync_replicas: int = count(
        1,
        "nodes, the master included, that hold a put under SYNC_MASTER before PUT_OK, and the least the in-sync set "
        "has; 2 where SYNC_MASTER is set",
    )
    min_in_sync_replicas: int = count(
        1,
        "with fewer nodes of the in-sync set connected puts are refused before anything is written; from 2 on no "
        "failover loses what was acknowledged",
    )
    all_ack_in_sync_state_set: bool = switch(
        False,
        "a put waits for a late slave of the in-sync set until `ha_max_time_slave_not_catchup`; off: after half of "
        "`slave_timeout` the slave leaves the set, where `in_sync_replicas` nodes remain",
        differs="there it also decides what is confirmed; here that is always what the whole set holds",
    )
    enable_auto_in_sync_replicas: bool = switch(
        False, "while nodes are away the in-sync set may become smaller, down to `min_in_sync_replicas`"
    )
    ha_flow_control_enable: bool = switch(
        False, "limit what is sent to each slave in a second", live="send, rocketmq_ha"
    )
    max_ha_transfer_byte_in_second: int = size(100 * MIB, "that limit", live="send, rocketmq_ha")
    sync_from_last_file: bool = switch(False, "an empty slave begins with the master's last segment")
    seed: str = key(
        "oldest",
        "",
        "where an empty slave begins: `oldest` or `last` segment of the master, or the one that holds `offset:N`, or "
        "the first message at or after `time:MS` (epoch ms)",
    )
    seed_byte_in_second: int = size(
        0, "most that the master sends this slave in a second until it has caught up once, 0: any", lowest=0
    )
    async_learner: bool = switch(False, "this slave follows, never counts as in sync, and is never elected")


class NodeKeys(Group):
    title: ClassVar[str] = "The node and its addresses"

    broker_name: str = key("towline", "", "name that a master and its slaves share")
    broker_cluster_name: str = key("DefaultCluster", "", "name of the cluster; a peer of another one is refused")
    broker_id: int = count(
        0,
        "number of the node among those of one name; 1 where SLAVE is set, which may not be 0",
        lowest=0,
        highest=NODE_MAX,
    )
    broker_ip1: str = key(
        "127.0.0.1",
        "",
        "address in each record's STOREHOST",
        rocketmq="brokerIP1",
        differs="the first address of the host",
    )
    listen_port: int = clients_port(
        LISTEN_PORT,
        "TCP port of all clients, RocketMQ's own and ours; beyond loopback over TLS alone, unless `insecure`",
    )
    ha_listen_port: int = port(HA_PORT, "port for slaves")


class TowlineKeys(Group):
    title: ClassVar[str] = "Towline's own"

    log_level: LogLevel = key(
        LogLevel.INFO,
        "",
        "least level of what the processes of the node log; at a start recovery logs at INFO",
        live="all",
    )
    log_format: LogFormat = key(
        LogFormat.TEXT, "", "`text`: a line for people; `json`: an object on a line for each event", live="all"
    )
    log_file_size_max: int = size(
        32 * MIB,
        "`run/node.log` of this size is moved aside to `node.log.1`, that to `node.log.2` and so on; 0: it only grows",
        lowest=0,
        live="supervise",
    )
    log_file_count: int = count(4, "logs that were moved aside are so many at most", highest=KIB, live="supervise")
    listen_host: str = key("127.0.0.1", "", "address to listen on; beyond loopback it takes `keys_dir`")
    keys_dir: Path | None = key(
        None, "", "key ring of `towline keys new`: TCP takes its keys alone, and `listen_port` has its certificate"
    )
    insecure: bool = switch(False, "listen beyond loopback without keys: whoever reaches the ports owns the store")
    name_server_port: int = clients_port(
        NAME_SERVER_PORT,
        "another port for the same as `listen_port`, which clients name as their name server's; where it is not given, "
        "0 beside another `listen_port`",
    )
    fast_listen_port: int = clients_port(
        FAST_LISTEN_PORT,
        "another port for the same, RocketMQ's VIP channel (there always `listenPort` - 2); where it is not given, 0 "
        "beside another `listen_port`",
    )
    tls_server_mode: TlsMode = key(
        TlsMode.PERMISSIVE,
        "",
        "of `listen_port`: TLS never, where a client begins with it, or always; where it is not given, always beyond "
        "loopback, unless `insecure`",
    )
    tls_server_cert_path: Path | None = key(
        None, "", "PEM file of a certificate, with those above it, beside the one of `keys_dir`"
    )
    tls_server_key_path: Path | None = key(None, "", "PEM file of its private key")
    metrics_port: int = clients_port(
        0,
        "port of `/metrics`, `/live` and `/ready` over HTTP",
        rocketmq="metricsPromExporterPort",
        differs="5557, where metricsExporterType is PROM",
    )
    metrics_address: str = key(
        "127.0.0.1",
        "",
        "address of `metrics_port`; beyond loopback whoever reaches it reads names of topics and groups, no message",
        rocketmq="metricsPromExporterHost",
        differs="that of brokerIP1",
    )
    metrics_labels_max: int = count(
        100, "topics, groups, and topics of groups with series of their own in `/metrics`; others are summed"
    )
    rocketmq_ha_port: int = clients_port(
        0,
        "port at which brokers of RocketMQ follow a master as its slaves, in plain TCP; needs `listen_port`, and "
        "`fast_listen_port` 2 below it, which it is where it is not given",
    )
    rocketmq_ha_address: str = key(
        "127.0.0.1",
        "",
        "address of `rocketmq_ha_port`, which names no slave and hides nothing: beyond loopback whoever reaches it "
        "reads every message",
    )
    rocketmq_ha_from_oldest: bool = switch(
        False,
        "a slave of RocketMQ that is empty gets the whole log; off: the last segment alone, as from a broker",
        live="rocketmq_ha",
    )
    rocketmq_ha_acks: int = count(
        0,
        "brokers of RocketMQ, each on a host of its own, that follow this node and have reported a put before PUT_OK; "
        "needs `rocketmq_ha_from_oldest`. What a broker reports may be in its memory alone",
        lowest=0,
        highest=ROCKETMQ_SLAVES_MAX,
    )
    request_size_max: int = size(REQUEST_SIZE_MAX, "most record bytes of one put request", highest=KERNEL_BYTES_MAX)
    shared_memory_puts: bool = switch(
        True, "producers on this machine, of the node's own user, may put through rings in shared memory"
    )
    shared_memory_puts_size: int = size(
        2 * MIB,
        "bytes of the requests that a producer may have in its ring, a power of two; a larger request, and one of more "
        "than half of it, goes over the socket",
        lowest=REQUESTS_SIZE_MIN,
        highest=REQUESTS_SIZE_MAX,
    )
    shared_memory_puts_max: int = count(64, "rings of a node; further producers use the socket", highest=KIB)
    put_waiting_max: int = count(
        65_536, "most requests that wait for their acknowledgement; more are refused as busy", live="put"
    )
    flush_backlog_max: int = size(
        512 * MIB, "how far `flushed` may trail `appended` before puts are refused as busy", live="put"
    )
    populate_ahead_bytes: int = size(
        8 * MIB, "how far ahead a log's writer with nothing to do populates; 0: never, each page faults", lowest=0
    )
    pull_bytes_max: int = size(8 * MIB, "most record bytes of a pull, whatever it asks for")
    ha_window_bytes: int = size(32 * MIB, "log bytes sent to a slave and not acknowledged yet, at most")
    ha_peers: str = key(
        "",
        "id=host:port,...",
        "`broker_id` and `ha_listen_port` of every node of this name, this one's too; others may come and go",
        live="send, receive, follow, lease, serve, remoting",
    )
    promoted_role: BrokerRole = key(
        BrokerRole.ASYNC_MASTER,
        "",
        "what a slave is once it is promoted; SYNC_MASTER where `in_sync_replicas` is 2 or more",
    )
    etcd_endpoints: str = key(
        "", "http://host:port,...", "leadership is a lease in this etcd; empty: promotion is by hand"
    )
    etcd_ca_file: str = key("", "PEM file", "authorities of etcd's certificate; empty: the system's")
    etcd_cert_file: str = key("", "PEM file", "our certificate, where etcd asks for one")
    etcd_key_file: str = key("", "PEM file", "its key; empty: in the file of the certificate")
    etcd_user: str = key("", "name", "a user of etcd who may read and write below /towline/; empty: nobody")
    etcd_password_file: str = key("", "file", "the password of that user in its first line")
    lease_ms: int = ms(3000, "a master that cannot renew its lease for so long has lost it", lowest=1000)
    metadata_interval_ms: int = ms(
        1000,
        "a slave asks its master for topics and offsets so often, and hears of changes at once",
        lowest=1,
        highest=60_000,
    )
    consumer_expires_ms: int = ms(10_000, "a member of a group that is silent for so long has left it", lowest=100)
    rebalance_lock_max_live_time: int = ms(60_000, "a queue lock that is not renewed ends after this time", lowest=1)
    dispatchers: str = key("", "package.module:function", "what reput does with each record besides queues and index")
    process_scheduling: str = key(
        "allocate=batch",
        "process=policy[:nice][@cpu+cpu],...",
        "how the system schedules processes of the node: `other`, `batch` or `idle`, a nice value, CPUs",
    )
    queues_max: int = count(QUEUES_MAX, "queues of a node, over all topics", highest=QUEUES_MAX)
    producer_states_max: int = count(
        10_000,
        "idempotent producers that the node knows, and queues that these send to; those that were silent longest are "
        "forgotten first",
        highest=MIB,
    )
    producer_id_expiration_ms: int = ms(
        DAY_S * 1000, "an idempotent producer that stores nothing for so long is forgotten", lowest=1000
    )
    file_reserved_bytes: int = size(
        0,
        "above it the oldest segments go at any hour, whatever their age; 0: the log may have any size",
        lowest=0,
        live="allocate",
    )
    keep_until_archived: bool = switch(
        False,
        "neither age nor `file_reserved_bytes` takes a segment that `towline pipeline archive` has not archived yet; a "
        "full disk does, unless `clean_file_forcibly_enable` is off",
        live="allocate",
    )
    reserve_file_size: int = size(
        16 * MIB, "room kept in the file `reserve` for state files and queues on a full disk; 0: none", lowest=0
    )


GROUPS: tuple[type[Group], ...] = (
    NodeKeys,
    StoreKeys,
    FlushKeys,
    AllocateKeys,
    HaKeys,
    PutKeys,
    ReadKeys,
    IndexKeys,
    FilterKeys,
    CleanKeys,
    TowlineKeys,
)


def camel(snake: str) -> str:
    """`flush_disk_type` -> `flushDiskType`, RocketMQ's spelling of most keys."""
    head, *rest = snake.split("_")
    return head + "".join(word[:1].upper() + word[1:] for word in rest)


def snake(name: str) -> str:
    """`checkCRCOnRecover` -> `check_crc_on_recover`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def facts_of(group: type[Group], name: str) -> dict[str, str]:
    """Unit, rocketmq, old, differs and live of a key, as given to `key`."""
    facts = group.model_fields[name].json_schema_extra
    assert isinstance(facts, dict)
    return {fact: str(text) for fact, text in facts.items()}


def live_keys() -> dict[str, str]:
    """Key -> the processes that take another value of it while the node runs, for keys that may change then."""
    return {
        name: live
        for group in GROUPS
        for name in group.__annotations__.keys() & group.model_fields.keys()
        if (live := facts_of(group, name)["live"])
    }


def spellings() -> tuple[dict[str, str], dict[str, str]]:
    """Every accepted spelling -> key: (snake_case, for TOML, environment and flags; camelCase, for a broker.conf)."""
    snakes: dict[str, str] = {}
    camels: dict[str, str] = {}
    for group in GROUPS:
        for name in group.__annotations__.keys() & group.model_fields.keys():
            facts = facts_of(group, name)
            theirs = [spelling for spelling in (facts["rocketmq"] or camel(name), facts["old"]) if spelling]
            snakes |= dict.fromkeys([name, *map(snake, theirs)], name)
            camels |= dict.fromkeys(theirs, name)
    return snakes, camels
