"""Positions: the progress of every duty, in shared memory. One 64-byte line each, one writer each, many readers.

    line 0        magic, layout version, generation, first and second half of the boot id
    lines 1..     one position each, word 0 (the table `Position` names its writer per role)
    lines 32..    two lines per duty: beat, pid, sleeping, state, generation, flags, turn, lost; then counters
    lines 64..71  two words per cause of refusals, written by put: how many, and when the last one was
    lines 72..    one line per slave of a master: connected, appended, flushed, node id, why it is not in sync
    one line      written by schedule: delayed messages that wait, when the next of them is due
    then          written by remoting: connections, why they ended, requests refused (`remoting_counts`)
    two lines     one word per duty, written by it: the change of settings that it has taken
    then          how long batches took, a histogram per stage, written by its duty (`stage_times`)
    the last      one line per slave that is a broker of RocketMQ, written by rocketmq_ha

The file is volatile: recovery writes it anew at each start of a node and nothing outlives the machine's boot.
No position moves back within a generation (H17). A word is stored only through a cast view (`shared.py`).
"""

import contextlib
import ipaddress
import os
import time
from collections.abc import Iterable
from enum import Enum, IntEnum, IntFlag
from pathlib import Path
from typing import Final

from towline.clock import boot_id
from towline.errors import NotTheWriter, PositionsUnusable
from towline.format.wire.refusals import Cause
from towline.limits import ROCKETMQ_SLAVES_MAX, SLAVES_MAX

from .shared import SharedWords

MAGIC: Final = 0x31534F504C574F54  # "TOWLPOS1" as the machine's 64-bit word
LAYOUT_VERSION: Final = 9
LINE: Final = 8  # words of a 64-byte line
WORD: Final = 8  # bytes
GENERATION_WORD: Final = 2
_POSITIONS_AT: Final = 1
_DUTIES_AT: Final = 32
_CAUSES_AT: Final = 64
_SLAVES_AT: Final = 72
_DELAYS_AT: Final = _SLAVES_AT + SLAVES_MAX
REMOTING_AT: Final = _DELAYS_AT + 1
REMOTING_LINES: Final = 12
TAKEN_AT: Final = REMOTING_AT + REMOTING_LINES
TAKEN_LINES: Final = 2
STAGES_AT: Final = TAKEN_AT + TAKEN_LINES
STAGES_LINES: Final = 12
_ROCKETMQ_SLAVES_AT: Final = STAGES_AT + STAGES_LINES
SIZE: Final = (_ROCKETMQ_SLAVES_AT + ROCKETMQ_SLAVES_MAX) * LINE * 8
assert max(Cause) < (_SLAVES_AT - _CAUSES_AT) * LINE // 2


class Duty(Enum):
    """One process, one duty. The number is its place in the positions file."""

    PUT = ("put", 0)
    RECEIVE = ("receive", 1)  # ha receiver: on a slave in the place of put
    ALLOCATE = ("allocate", 2)
    FLUSH = ("flush", 3)
    REPUT = ("reput", 4)
    SERVE = ("serve", 5)
    SEND = ("send", 6)  # ha sender of a master
    FOLLOW = ("follow", 7)  # metadata of a slave
    SUPERVISE = ("supervise", 8)
    RECOVER = ("recover", 9)
    SCHEDULE = ("schedule", 10)  # delays and transactions of a master
    AGREE = ("agree", 11)  # asks the peers before a start: which role, which epoch
    LEASE = ("lease", 12)  # leadership in etcd
    REMOTING = ("remoting", 13)  # RocketMQ's own clients
    METRICS = ("metrics", 14)  # what Prometheus and probes ask
    ROCKETMQ_HA = ("rocketmq_ha", 15)  # a master's log for slaves that are brokers of RocketMQ

    def __init__(self, label: str, place: int) -> None:
        self.label = label
        self.place = place

    @classmethod
    def named(cls, label: str) -> "Duty":
        return next(duty for duty in cls if duty.label == label)


assert len(Duty) <= TAKEN_LINES * LINE


class Position(Enum):
    """(line, the duties that may write it: one on a master, one on a slave). RECOVER writes all before any owner is."""

    APPENDED = (0, (Duty.PUT, Duty.RECEIVE))
    ALLOCATED = (1, (Duty.ALLOCATE,))
    COMMITTED = (2, (Duty.FLUSH,))
    FLUSHED = (3, (Duty.FLUSH,))
    DISPATCHED = (4, (Duty.REPUT,))
    REPLICATED = (5, (Duty.SEND,))
    CONFIRMED = (6, (Duty.RECEIVE,))  # on a slave: what the master says is confirmed
    LOG_MIN = (7, (Duty.ALLOCATE, Duty.RECEIVE))  # receive only while an empty slave's log has not begun
    STORE_TIMESTAMP = (8, (Duty.PUT,))  # of the newest record, ms
    SYNC_FAILED = (9, (Duty.FLUSH,))  # 1 after a failed sync, until an operator mends the range (H5)
    DISPATCH_STOPPED = (10, (Duty.REPUT,))  # 1 + offset of the record reput cannot dispatch
    WANTED = (11, (Duty.PUT, Duty.RECEIVE))  # base of the segment the writer is in, or waits for
    INDEXED = (13, (Duty.REPUT,))  # end of what is indexed: trails DISPATCHED only while the disk is full
    DISPATCHED_TIMESTAMP = (12, (Duty.REPUT,))  # store time of the newest dispatched record, ms
    TRANSIENT_POOL = (14, ())  # whether the pool is used, or why not; written by recovery alone, for the whole start
    DERIVED_SYNC_FAILED = (15, (Duty.FLUSH,))  # 1 after a failed sync of a queue or index file, until the next start
    DISPATCH_STOPPED_WHY = (19, (Duty.REPUT,))  # what is wrong with that record: a Rule or a Halt
    FILTERS = (20, (Duty.REPUT,))  # fingerprint of the SQL92 subscriptions that are evaluated for bitmaps
    MAKING = (16, (Duty.ALLOCATE,))  # end of the segment that allocate works on, or worked on last
    WARM = (17, (Duty.ALLOCATE,))  # end of the segments that were warmed
    SYNC_WANTED = (18, (Duty.SCHEDULE,))  # flush syncs up to here at once, whatever its policy: offsets wait for it
    EPOCH = (21, (Duty.RECEIVE,))  # of the master that this node is or follows; a master's is set by its start
    PROMISED = (22, (Duty.SEND, Duty.FOLLOW))  # the greatest epoch promised to a peer: nothing lower is believed
    IN_SYNC = (23, (Duty.SEND, Duty.RECEIVE))  # the in-sync set as recorded: bit n is the node of broker_id n
    IN_SYNC_WANTED = (24, (Duty.SEND,))  # the set that etcd is to record next
    IN_SYNC_KEPT = (25, (Duty.LEASE,))  # the set that etcd has recorded
    DAMAGED = (27, (Duty.SERVE,))  # records that readers found damaged, as serve saw by their CRCs
    DAMAGED_NEWEST = (28, (Duty.SERVE,))  # 1 + offset of the one that was found last
    LEASE_UNTIL = (26, (Duty.LEASE,))  # CLOCK_BOOTTIME ns until which this master may acknowledge; INT64_MAX: no etcd

    SETTINGS = (29, (Duty.SUPERVISE,))  # how often settings were changed in this generation

    def __init__(self, line: int, writers: tuple[Duty, ...]) -> None:
        self.line = line
        self.writers = writers
        self.word = (_POSITIONS_AT + line) * LINE


class State(IntEnum):
    """What a duty says it is doing; a heartbeat that stands still is reported with it (H9)."""

    ABSENT = 0
    STARTING = 1
    RUNNING = 2
    SYNCING = 3
    KERNEL = 4
    RECOVERING = 5
    STOPPING = 6
    STOPPED = 7


class Flag(IntFlag):
    """RocketMQ's RunningFlags (spec 5). Each duty sets its own; the node's are those of all duties together."""

    LOGIC_QUEUE_ERROR = 4  # reput: a ConsumeQueue file cannot be written
    INDEX_ERROR = 8  # reput: an IndexFile cannot be written
    DISK_FULL = 16  # allocate: the disk ratio is above the warning level, or a segment could not be reserved
    LOGIC_DISK_FULL = 64  # reput: no room for ConsumeQueue files
    RUNTIME_FULL = 256  # ours; reput: no room in the runtime directory for the ends of another queue
    SEGMENT_ERROR = 128  # ours; allocate: the next segment could not be made, and none was since


class Counter(IntEnum):
    """Statistics of a duty, words of its second line."""

    MESSAGES = 0
    BYTES = 1
    BATCHES = 2
    REFUSED = 3
    BUSY_NS = 4
    SYNCS = 5
    FALLBACKS = 6
    LATE = 7


class Writer:
    """The only hand on one position."""

    def __init__(self, words: memoryview, word: int) -> None:
        self._words = words
        self._word = word

    def get(self) -> int:
        return int(self._words[self._word])

    def advance(self, value: int) -> None:
        assert value >= self._words[self._word], f"a position never moves back: {self.get()} -> {value}"
        self._words[self._word] = value

    def replace(self, value: int) -> None:
        """Of a word that is no place in the log and may become smaller."""
        self._words[self._word] = value


class DutyLine:
    """One duty's line: written by that process alone, read by its neighbours and by the supervisor."""

    BEAT, PID, SLEEPING, STATE, GENERATION, FLAGS, TURN, LOST = range(8)

    def __init__(self, words: memoryview, duty: Duty) -> None:
        self.duty = duty
        self._words = words
        self._at = (_DUTIES_AT + 2 * duty.place) * LINE
        self._taken = TAKEN_AT * LINE + duty.place

    def enter(self, generation: int, state: State = State.STARTING) -> None:
        self._words[self._at + self.PID] = os.getpid()
        self._words[self._at + self.GENERATION] = generation
        for word in (self.SLEEPING, self.FLAGS, self.TURN):
            self._words[self._at + word] = 0
        self.taken = 0
        self.state = state

    def positions(self) -> bytes:
        """Generation and every position of the node as they are now, to be compared."""
        return bytes(self._words[: _DUTIES_AT * LINE])

    @property
    def words(self) -> memoryview:
        """All words of the file, for a kernel; it is nobody else's to store any but the beat."""
        return self._words

    @property
    def beat_at(self) -> int:
        """The byte at which the beat stands."""
        return self._at * WORD

    def beat(self) -> None:
        self._words[self._at] = time.monotonic_ns()

    @property
    def beat_ns(self) -> int:
        return int(self._words[self._at])

    @property
    def pid(self) -> int:
        return int(self._words[self._at + self.PID])

    @property
    def sleeping(self) -> bool:
        return bool(self._words[self._at + self.SLEEPING])

    @sleeping.setter
    def sleeping(self, value: bool) -> None:
        self._words[self._at + self.SLEEPING] = value

    @property
    def state(self) -> State:
        return State(self._words[self._at + self.STATE])

    @state.setter
    def state(self, value: State) -> None:
        self._words[self._at + self.STATE] = value
        self.beat()

    def say(self, state: State) -> None:
        """Without a beat: said by another thread of the process, for one that stands still."""
        self._words[self._at + self.STATE] = state

    @property
    def flags(self) -> Flag:
        return Flag(self._words[self._at + self.FLAGS])

    def raise_flag(self, flag: Flag) -> None:
        self._words[self._at + self.FLAGS] |= flag

    def lower_flag(self, flag: Flag) -> None:
        self._words[self._at + self.FLAGS] &= ~flag

    @property
    def turn_began_ns(self) -> int:
        """CLOCK_MONOTONIC at which the append (flush: the sync) that is under way inside the mapping began, else 0."""
        return int(self._words[self._at + self.TURN])

    @turn_began_ns.setter
    def turn_began_ns(self, value: int) -> None:
        self._words[self._at + self.TURN] = value

    @property
    def lost(self) -> int:
        """Messages that this duty could not do anything for any more, since the node was started."""
        return int(self._words[self._at + self.LOST])

    def lose(self, amount: int) -> None:
        self._words[self._at + self.LOST] += amount

    @property
    def taken(self) -> int:
        """The newest change of settings, as SETTINGS counts them, that this duty works by."""
        return int(self._words[self._taken])

    @taken.setter
    def taken(self, number: int) -> None:
        self._words[self._taken] = number

    def count(self, counter: Counter, amount: int = 1) -> None:
        self._words[self._at + LINE + counter] += amount

    def counter(self, counter: Counter) -> int:
        return int(self._words[self._at + LINE + counter])


class SlaveLine:
    """What a master knows of one slave; written by the ha sender."""

    CONNECTED, APPENDED, FLUSHED, NODE, OUTSIDE = range(5)

    def __init__(self, words: memoryview, place: int) -> None:
        assert 0 <= place < SLAVES_MAX
        self._words = words
        self._at = (_SLAVES_AT + place) * LINE

    def set(self, *, connected: bool, appended: int, flushed: int, node: int | None = None) -> None:
        """`node` is the slave's broker_id; None leaves it as it is."""
        if node is not None:
            self._words[self._at + self.NODE] = node
        self._words[self._at + self.APPENDED] = appended
        self._words[self._at + self.FLUSHED] = flushed
        self._words[self._at + self.CONNECTED] = connected

    @property
    def connected(self) -> bool:
        return bool(self._words[self._at + self.CONNECTED])

    @property
    def appended(self) -> int:
        return int(self._words[self._at + self.APPENDED])

    @property
    def flushed(self) -> int:
        return int(self._words[self._at + self.FLUSHED])

    @property
    def node(self) -> int:
        return int(self._words[self._at + self.NODE])

    @property
    def outside(self) -> int:
        """Why it is not in the in-sync set, an `Outside`; 0 for a member."""
        return int(self._words[self._at + self.OUTSIDE])

    @outside.setter
    def outside(self, value: int) -> None:
        self._words[self._at + self.OUTSIDE] = value


class RocketmqSlaveLine:
    """What a master knows of one slave that is a broker of RocketMQ; written by rocketmq_ha.

    Nothing counts it but put, with `rocketmq_ha_acks`.
    """

    CONNECTED, SENT, REPORTED, PORT, HOST = range(5)  # HOST: two words, the 16 bytes of an IPv6 address

    def __init__(self, words: memoryview, place: int) -> None:
        assert 0 <= place < ROCKETMQ_SLAVES_MAX
        self._words = words
        self._at = (_ROCKETMQ_SLAVES_AT + place) * LINE

    def join(self, host: str, port: int, end: int) -> None:
        """A slave has connected from there, whose log ends at `end`."""
        address = ipaddress.ip_address(host.partition("%")[0])
        packed = (address if address.version == 6 else ipaddress.ip_address(f"::ffff:{address}")).packed
        self._words[self._at + self.HOST] = int.from_bytes(packed[:WORD], "big", signed=True)
        self._words[self._at + self.HOST + 1] = int.from_bytes(packed[WORD:], "big", signed=True)
        self._words[self._at + self.PORT] = port
        self.reach(end, end)
        self._words[self._at + self.CONNECTED] = 1

    def leave(self) -> None:
        self._words[self._at + self.CONNECTED] = 0

    def reach(self, sent: int, reported: int) -> None:
        """Ends of the log: what was sent to it, what it says that it has."""
        self._words[self._at + self.SENT] = sent
        self._words[self._at + self.REPORTED] = reported

    @property
    def connected(self) -> bool:
        return bool(self._words[self._at + self.CONNECTED])

    @property
    def sent(self) -> int:
        return int(self._words[self._at + self.SENT])

    @property
    def reported(self) -> int:
        return int(self._words[self._at + self.REPORTED])

    @property
    def host(self) -> tuple[int, int]:
        """The two words of its IPv6 address."""
        return int(self._words[self._at + self.HOST]), int(self._words[self._at + self.HOST + 1])

    @property
    def address(self) -> str:
        """`host:port` from which it has connected."""
        host = ipaddress.IPv6Address(b"".join(word.to_bytes(WORD, "big", signed=True) for word in self.host))
        port = int(self._words[self._at + self.PORT])
        return f"{host.ipv4_mapped}:{port}" if host.ipv4_mapped else f"[{host}]:{port}"


class DelaysLine:
    """What waits to be delivered; written by schedule."""

    WAITING, NEXT_DUE = range(2)

    def __init__(self, words: memoryview) -> None:
        self._words = words
        self._at = _DELAYS_AT * LINE

    def set(self, waiting: int, next_due_ms: int) -> None:
        """`next_due_ms`: 0 where nothing waits."""
        self._words[self._at + self.NEXT_DUE] = next_due_ms
        self._words[self._at + self.WAITING] = waiting

    @property
    def waiting(self) -> int:
        return int(self._words[self._at + self.WAITING])

    @property
    def next_due_ms(self) -> int:
        """Wall clock; in the past where it is late."""
        return int(self._words[self._at + self.NEXT_DUE])


class Refused:
    """Requests that put refused, by cause, since the node was started. Times are CLOCK_MONOTONIC ns, 0 for never."""

    def __init__(self, words: memoryview) -> None:
        self._words = words

    def add(self, cause: Cause, now_ns: int) -> None:
        at = _CAUSES_AT * LINE + 2 * cause
        self._words[at] += 1
        self._words[at + 1] = now_ns

    def count(self, cause: Cause) -> int:
        return int(self._words[_CAUSES_AT * LINE + 2 * cause])

    def last_ns(self, cause: Cause) -> int:
        return int(self._words[_CAUSES_AT * LINE + 2 * cause + 1])


class Positions:
    """The mapped positions file of a running node."""

    def __init__(self, shared: SharedWords) -> None:
        self.path = shared.path
        self._shared = shared
        self.words = shared.words
        self._slaves = [SlaveLine(shared.words, place) for place in range(SLAVES_MAX)]
        self._rocketmq_slaves = [RocketmqSlaveLine(shared.words, place) for place in range(ROCKETMQ_SLAVES_MAX)]
        self._flags = [(_DUTIES_AT + 2 * duty.place) * LINE + DutyLine.FLAGS for duty in Duty]

    @classmethod
    def create(cls, path: Path, generation: int) -> "Positions":
        if path.exists():  # a process of an earlier start that still lives sees that it has to leave
            with contextlib.suppress(OSError, ValueError):
                SharedWords.open(path).words[GENERATION_WORD] = generation
        shared = SharedWords.create(path, SIZE, reserved=SIZE)
        boot = boot_id().replace("-", "")
        shared.words[1] = LAYOUT_VERSION
        shared.words[GENERATION_WORD] = generation
        shared.words[3] = int(boot[:15], 16)
        shared.words[4] = int(boot[15:30], 16)
        shared.words[0] = MAGIC
        return cls(shared)

    @classmethod
    def open(cls, path: Path, *, writable: bool = True) -> "Positions":
        """Raises PositionsUnusable when there is no file, or one of another layout or boot."""
        try:
            shared = SharedWords.open(path, writable=writable)
        except (OSError, ValueError) as error:
            raise PositionsUnusable(str(path), f"cannot be mapped ({error})") from None
        words = shared.words
        boot = boot_id().replace("-", "")
        if len(words) * 8 != SIZE or words[0] != MAGIC:
            raise PositionsUnusable(str(path), "is not a positions file")
        if words[1] != LAYOUT_VERSION:
            raise PositionsUnusable(str(path), f"has layout version {words[1]}, this program writes {LAYOUT_VERSION}")
        if (words[3], words[4]) != (int(boot[:15], 16), int(boot[15:30], 16)):
            raise PositionsUnusable(str(path), "was written before the machine's last boot")
        return cls(shared)

    @property
    def generation(self) -> int:
        return int(self.words[GENERATION_WORD])

    def retire(self) -> None:
        """The node ends: whoever was started by hand for this generation finishes its duty and leaves."""
        self.words[GENERATION_WORD] = 0

    def revive(self, generation: int) -> None:
        """Every process has ended: the next start may use what they wrote."""
        self.words[GENERATION_WORD] = generation

    def get(self, position: Position) -> int:
        return int(self.words[position.word])

    def writer(self, position: Position, duty: Duty) -> Writer:
        """Raises NotTheWriter unless the table names `duty` (RECOVER may write all: it runs before any owner)."""
        if duty is not Duty.RECOVER and duty not in position.writers:
            raise NotTheWriter(position.name, duty.label, " or ".join(writer.label for writer in position.writers))
        return Writer(self.words, position.word)

    def duty(self, duty: Duty) -> DutyLine:
        return DutyLine(self.words, duty)

    @property
    def flags(self) -> Flag:
        """The running flags of the node."""
        raised = 0
        for word in self._flags:
            raised |= self.words[word]
        return Flag(raised)

    def states(self, positions: Iterable[Position]) -> list[int]:
        """These words and every duty's flags, to be compared with what they were."""
        words = self.words
        return [words[position.word] for position in positions] + [words[word] for word in self._flags]

    @property
    def refused(self) -> Refused:
        return Refused(self.words)

    @property
    def delays(self) -> DelaysLine:
        return DelaysLine(self.words)

    def slaves(self) -> list[SlaveLine]:
        return self._slaves

    def rocketmq_slaves(self) -> list[RocketmqSlaveLine]:
        return self._rocketmq_slaves

    def rocketmq_ends(self) -> list[int]:
        """What connected brokers of RocketMQ have reported, the greatest end of each host, the greatest of all first.

        The protocol names no broker: one that comes again before its old connection is found dead is there twice.
        """
        ends: dict[tuple[int, int], int] = {}
        for line in self._rocketmq_slaves:
            if line.connected:
                ends[line.host] = max(line.reported, ends.get(line.host, 0))
        return sorted(ends.values(), reverse=True)

    def rocketmq_reported(self, count: int) -> int:
        """The end of the log that brokers of RocketMQ on so many hosts have reported; 0 while there are fewer."""
        ends = self.rocketmq_ends()
        return ends[count - 1] if count <= len(ends) else 0

    def close(self) -> None:
        self._slaves = []
        self._rocketmq_slaves = []
        self._shared.close()
