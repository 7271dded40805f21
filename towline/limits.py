"""Every limit of the store in one place, with the relations between them.

Sizes are bytes, times are milliseconds unless the name says otherwise.
"""

from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB
GIB: Final = 1024 * MIB
PAGE: Final = 4096

# --- CommitLog (spec 2.1, 2.2, 2.5, 12)
SEGMENT_SIZE_DEFAULT: Final = GIB
MESSAGE_BODY_MAX: Final = 4 * MIB
RECORD_OVERHEAD_MAX: Final = 64 * KIB  # a record may be this much larger than its body
RECORD_SIZE_MAX: Final = MESSAGE_BODY_MAX + RECORD_OVERHEAD_MAX
PROPERTIES_SIZE_MAX: Final = 32_767
TOPIC_SIZE_MAX: Final = 127  # UTF-8 bytes; V1 reads the length as a signed byte
RETRY_TOPIC_SIZE_MAX: Final = 255
RETRY_TOPIC_PREFIX: Final = "%RETRY%"
DEAD_LETTER_TOPIC_PREFIX: Final = "%DLQ%"
REPLY_TOPIC_SUFFIX: Final = "_REPLY_TOPIC"  # behind the name of a cluster
BLANK_SIZE_MIN: Final = 8

# --- kernels and requests
KERNEL_BYTES_MAX: Final = 16 * MIB  # a kernel call never walks more, so a heartbeat is never late (H9)
REQUEST_SIZE_MAX: Final = 8 * MIB  # record bytes of one put request
REQUEST_GROUPS_MAX: Final = 1024  # (topic, queue) groups of one put request
LARGE_PAGE: Final = 2 * MIB  # of x86-64; what a file system may keep contiguous is then mapped by one entry
POPULATE_STEP: Final = 512 * KIB  # put populates its mapping ahead in steps of this size (H6; decisions/0012)
PARTS_MAX: Final = 4  # ZeroMQ parts of one message, identity not counted; more drops the peer (H21)

# --- the link
FRAME_SIZE_MAX: Final = REQUEST_SIZE_MAX + MIB  # bytes of one ZeroMQ part; more costs the sender its connection
LINK_HIGH_WATER: Final = 1024  # messages queued for one peer
# What peers may make a server's process hold, mapped files not counted (H21).
LINK_SHARE_MAX: Final = 48 * MIB  # bytes that one peer has sent and that wait; more costs it the connection
LINK_PEERS_MAX: Final = 80 * MIB  # of memory for all of them; above it the one that holds most is cut
LINK_MEMORY_MAX: Final = 160 * MIB  # above it, which only a fault explains, all are cut
CLIENT_SHARE_MAX: Final = 32 * MIB  # bytes of requests that a client of ours leaves without an answer
SESSIONS_MAX: Final = 4096  # peers of one server that may stay greeted; the one silent for longest greets again
GREETING_SIZE_MAX: Final = 16 * KIB  # JSON facts of one greeting

# --- replication
NODE_MAX: Final = 62  # greatest broker_id: an in-sync set is the bits of a word that is not negative

# --- the client
DECOMPRESSED_SIZE_MAX: Final = 64 * MIB  # a reader's cap on one body, so that a small record cannot fill its memory

# --- delays
DAY_S: Final = 24 * 3600
DELAY_MAX_S: Final = 3650 * DAY_S  # of a level and of `deliver_at`; far below where times in ms would overflow

# --- filters
FILTER_SIZE_MAX: Final = 32 * KIB  # characters of one SQL92 expression
FILTER_DEPTH_MAX: Final = 100  # conditions inside conditions; evaluating one takes a Python frame for each

# --- shared tables
QUEUES_MAX: Final = 65_536  # (topic, queue id) pairs of a node
TOPIC_QUEUES_MAX: Final = 16_384  # of one topic; a consumer of it has as many pulls out
RETENTION_MS_MIN: Final = 1_000  # of a topic
RETENTION_MS_MAX: Final = 36_500 * 24 * 3_600_000
RETENTION_BYTES_MIN: Final = 64 * KIB  # of each queue of a topic
RETENTION_BYTES_MAX: Final = 2**63 - 1
SLAVES_MAX: Final = 16
ROCKETMQ_SLAVES_MAX: Final = 16  # brokers of RocketMQ that follow a master at once

# --- questions
STORE_TIMES_MAX: Final = 256  # messages whose times one question asks for
QUEUE_ENTRIES_MAX: Final = 4_096  # entries of a queue that one question asks for

# --- waiting
SLEEP_MAX_MS: Final = 100  # no process sleeps longer on its doorbell (H12)
LOOK_MS: Final = 5 * SLEEP_MAX_MS  # between two checks of a process that has more to see than positions and messages
REST_MAX_MS: Final = 10 * SLEEP_MAX_MS  # of sleeps that follow each other without a check

assert SEGMENT_SIZE_DEFAULT % PAGE == 0
assert RECORD_SIZE_MAX <= REQUEST_SIZE_MAX <= KERNEL_BYTES_MAX
assert REQUEST_SIZE_MAX + BLANK_SIZE_MIN <= SEGMENT_SIZE_DEFAULT
assert TOPIC_QUEUES_MAX <= QUEUES_MAX
assert RECORD_SIZE_MAX < FRAME_SIZE_MAX < KERNEL_BYTES_MAX
assert CLIENT_SHARE_MAX + REQUEST_SIZE_MAX < LINK_SHARE_MAX < LINK_PEERS_MAX < LINK_MEMORY_MAX
