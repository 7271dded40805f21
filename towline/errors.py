"""Every error of Towline. An error names the facts, and its class says what to do about it.

Errors hold facts only, so they pickle exactly and cross process borders.
"""

from enum import Enum
from typing import ClassVar


class Remedy(Enum):
    RETRY = "try again"  # the store is healthy, the moment was not
    FIX_CALL = "change the call"  # the caller asked for something that cannot be
    FIX_SETTINGS = "change the settings"
    FIX_DISK = "look at the disk"  # bytes are not what we wrote
    RESTART = "restart the process"  # our own rule was broken; state cannot be trusted


class TowlineError(Exception):
    """Base class. `args` are the facts; `describe()` makes the sentence; `advice` says what to do next."""

    remedy: ClassVar[Remedy] = Remedy.RESTART
    advice: ClassVar[str] = "restart the process and report what happened"

    def describe(self) -> str:
        return " ".join(str(fact) for fact in self.args)

    def __str__(self) -> str:
        return f"{self.describe()}; {self.advice}"


# --- bytes


class MalformedRecord(TowlineError):
    """A record's bytes break a rule of the format. Facts: rule name, sentence, byte position in the buffer."""

    remedy = Remedy.FIX_CALL
    advice = "send records as the client library encodes them"

    def __init__(self, rule: str, sentence: str, at: int) -> None:
        self.rule, self.sentence, self.at = rule, sentence, at
        super().__init__(rule, sentence, at)

    def describe(self) -> str:
        return f"{self.rule} at byte {self.at}: {self.sentence}"


class MalformedFile(TowlineError):
    """A file does not hold what its format says. Facts: path, what is wrong."""

    remedy = Remedy.FIX_DISK
    advice = "restore the file from a copy, or run `towline store verify` and `towline store repair`"

    def __init__(self, path: str, problem: str) -> None:
        self.path, self.problem = path, problem
        super().__init__(path, problem)

    def describe(self) -> str:
        return f"{self.path}: {self.problem}"


class MalformedFrame(TowlineError):
    """A ZeroMQ frame is not one of ours. Facts: what is wrong."""

    remedy = Remedy.FIX_CALL
    advice = "talk to Towline with its own client of the same version"


# --- what the caller asks to be stored


class IllegalProperty(TowlineError):
    """A property that could not be read back. Facts: its name, what is wrong."""

    remedy = Remedy.FIX_CALL
    advice = "give every property a name and a value without the bytes 0x00, 0x01 and 0x02"

    def __init__(self, name: str, problem: str) -> None:
        self.name, self.problem = name, problem
        super().__init__(name, problem)

    def describe(self) -> str:
        return f"property {self.name!r}: {self.problem}"


# --- processes of a node


class UnsupportedMachine(TowlineError):
    """Facts: platform, machine."""

    remedy = Remedy.FIX_SETTINGS
    advice = "run the server on Linux x86-64; clients run anywhere"

    def __init__(self, system: str, machine: str) -> None:
        self.system, self.machine = system, machine
        super().__init__(system, machine)

    def describe(self) -> str:
        return f"{self.system} on {self.machine} does not promise the store order that the positions rest on"


class PositionsUnusable(TowlineError):
    """Facts: path, why."""

    remedy = Remedy.RESTART
    advice = "start the node: `towline master start` or `towline slave start` writes the file anew"

    def __init__(self, path: str, why: str) -> None:
        self.path, self.why = path, why
        super().__init__(path, why)

    def describe(self) -> str:
        return f"the positions file {self.path} {self.why}"


class NotTheWriter(TowlineError):
    """Facts: position, the duty that asked, the duties that own it."""

    advice = "let the owner write it; the table is in ARCHITECTURE.md"

    def __init__(self, position: str, duty: str, owner: str) -> None:
        self.position, self.duty, self.owner = position, duty, owner
        super().__init__(position, duty, owner)

    def describe(self) -> str:
        return f"{self.position} is written by {self.owner}, not by {self.duty}"


class WrongGeneration(TowlineError):
    """Facts: generation of the process, generation of the node."""

    advice = "nothing to do: a process of an earlier start leaves by itself"

    def __init__(self, mine: int, current: int) -> None:
        self.mine, self.current = mine, current
        super().__init__(mine, current)

    def describe(self) -> str:
        return f"this process belongs to start {self.mine} of the node, which is at {self.current}"


class DutyTaken(TowlineError):
    """Facts: duty, pid of its owner, lock file."""

    remedy = Remedy.FIX_CALL
    advice = "stop that process first, or leave the duty to it"

    def __init__(self, duty: str, pid: int, lock: str) -> None:
        self.duty, self.pid, self.lock = duty, pid, lock
        super().__init__(duty, pid, lock)

    def describe(self) -> str:
        return f"the duty {self.duty} is held by process {self.pid} ({self.lock})"


class StoreTaken(TowlineError):
    """Facts: store root, pid of the holder (0 if unknown)."""

    remedy = Remedy.FIX_CALL
    advice = "stop that node (`towline master stop`), or use another store directory"

    def __init__(self, store: str, pid: int) -> None:
        self.store, self.pid = store, pid
        super().__init__(store, pid)

    def describe(self) -> str:
        return f"the store {self.store} is in use by process {self.pid or 'of another program'}"


class StoreNotWritable(TowlineError):
    """Facts: path, reason of the operating system."""

    remedy = Remedy.FIX_DISK
    advice = "give this user write permission on the directory, or name another one with --store"

    def __init__(self, path: str, reason: str) -> None:
        self.path, self.reason = path, reason
        super().__init__(path, reason)

    def describe(self) -> str:
        return f"{self.path} cannot be written: {self.reason}"


class NodeNotRunning(TowlineError):
    """Facts: store root."""

    remedy = Remedy.FIX_CALL
    advice = "start it with `towline master start` or `towline slave start`"

    def __init__(self, store: str) -> None:
        self.store = store
        super().__init__(store)

    def describe(self) -> str:
        return f"no node is running on {self.store}"


class NodeStillRunning(TowlineError):
    """Facts: store root, pid, seconds waited."""

    remedy = Remedy.RETRY
    advice = "wait for it or stop it again; run/node.log below the store directory says what it is doing"

    def __init__(self, store: str, pid: int, waited_s: int) -> None:
        self.store, self.pid, self.waited_s = store, pid, waited_s
        super().__init__(store, pid, waited_s)

    def describe(self) -> str:
        return f"the node on {self.store} (process {self.pid}) did not stop within {self.waited_s} s"


class ShadowedPackage(TowlineError):
    """A package of one of our names comes from somewhere else. Facts: name, where it was found, where ours are."""

    remedy = Remedy.FIX_SETTINGS
    advice = "install towline in an environment of its own, or remove the other package"

    def __init__(self, name: str, found: str, home: str) -> None:
        self.name, self.found, self.home = name, found, home
        super().__init__(name, found, home)

    def describe(self) -> str:
        return f"the package {self.name!r} comes from {self.found}, but towline lives in {self.home}"


class MissingPackage(TowlineError):
    """Something that an extra brings is not installed. Facts: package, extra."""

    remedy = Remedy.FIX_SETTINGS
    advice = "install the extra that brings it, then run the command again"

    def __init__(self, package: str, extra: str) -> None:
        self.package, self.extra = package, extra
        super().__init__(package, extra)

    def describe(self) -> str:
        return f"the package {self.package} is not installed: pip install 'towline[{self.extra}]'"


class DemoFailed(TowlineError):
    """Facts: what did not happen."""

    remedy = Remedy.RETRY
    advice = "run it with --store DIR, which keeps the stores, and read run/node.log of both"


class BenchFailed(TowlineError):
    """Facts: what did not happen."""

    remedy = Remedy.RETRY
    advice = "run it again on a machine that does nothing else"


class StartFailed(TowlineError):
    """Facts: duty, what it said."""

    advice = "read run/node.log below the store directory; the last lines say why"

    def __init__(self, duty: str, said: str) -> None:
        self.duty, self.said = duty, said
        super().__init__(duty, said)

    def describe(self) -> str:
        return f"{self.duty} did not start: {self.said}"


class TooManyQueues(TowlineError):
    """Facts: how many queues the table holds, and how many of them are of deleted topics."""

    remedy = Remedy.FIX_SETTINGS
    advice = (
        "use fewer topics or fewer queues per topic on one node; places of deleted topics are free again when the log "
        "is cleaned of their messages and the node was started anew"
    )

    def __init__(self, queues_max: int, deleted: int = 0) -> None:
        self.queues_max, self.deleted = queues_max, deleted
        super().__init__(queues_max, deleted)

    def describe(self) -> str:
        of_deleted = f", {self.deleted} of them by topics that were deleted" if self.deleted else ""
        return f"a node holds {self.queues_max} queues and not so many are free{of_deleted}"


class IllegalTopic(TowlineError):
    """A name that no topic may have. Facts: the name, what is wrong."""

    remedy = Remedy.FIX_CALL
    advice = "choose a name of letters, digits, %, |, _ and -, at most 127 long"

    def __init__(self, name: str, problem: str) -> None:
        self.name, self.problem = name, problem
        super().__init__(name, problem)

    def describe(self) -> str:
        return f"topic {self.name!r}: {self.problem}"


class IllegalMessageId(TowlineError):
    """A text that is not a message id. Facts: the text, what is wrong."""

    remedy = Remedy.FIX_CALL
    advice = "give the id as the producer or the store returned it"

    def __init__(self, text: str, problem: str) -> None:
        self.text, self.problem = text, problem
        super().__init__(text, problem)

    def describe(self) -> str:
        return f"message id {self.text!r}: {self.problem}"


class UnknownTopic(TowlineError):
    """Facts: topic."""

    remedy = Remedy.FIX_CALL
    advice = "create it (`towline topic create`), or set auto_create_topic_enable"

    def __init__(self, topic: str) -> None:
        self.topic = topic
        super().__init__(topic)

    def describe(self) -> str:
        return f"the topic {self.topic!r} does not exist here"


class UnknownQueue(TowlineError):
    """Facts: topic, queue id."""

    remedy = Remedy.FIX_CALL
    advice = "ask for one of the topic's queues; they are numbered from 0"

    def __init__(self, topic: str, queue_id: int) -> None:
        self.topic, self.queue_id = topic, queue_id
        super().__init__(topic, queue_id)

    def describe(self) -> str:
        return f"the topic {self.topic!r} has no queue {self.queue_id}"


class TopicExists(TowlineError):
    """Facts: topic."""

    remedy = Remedy.FIX_CALL
    advice = "use the topic as it is, or choose another name"

    def __init__(self, topic: str) -> None:
        self.topic = topic
        super().__init__(topic)

    def describe(self) -> str:
        return f"the topic {self.topic!r} exists already"


# --- the link


class InvalidEndpoint(TowlineError):
    """An address that cannot be one of ours. Facts: what was written, what is wrong."""

    remedy = Remedy.FIX_CALL
    advice = "give an address such as tcp://127.0.0.1:10911 or ipc:///run/towline/put.sock"

    def __init__(self, text: str, problem: str) -> None:
        self.text, self.problem = text, problem
        super().__init__(text, problem)

    def describe(self) -> str:
        return f"{self.text}: {self.problem}"


class CannotListen(TowlineError):
    """The system refuses a server its address. Facts: endpoint, errno, reason; who has it, setting: "" if unknown."""

    remedy = Remedy.FIX_SETTINGS
    advice = "stop who has it, or start with another one (`--set KEY=VALUE`, or in the settings file)"

    def __init__(self, endpoint: str, number: int, reason: str, holder: str = "", setting: str = "") -> None:
        self.endpoint, self.number, self.reason, self.holder, self.setting = endpoint, number, reason, holder, setting
        super().__init__(endpoint, number, reason, holder, setting)

    def describe(self) -> str:
        said = f", as {self.setting} says" if self.setting else ""
        return f"nobody can listen at {self.endpoint}{said}: {self.reason}{self.holder and f' by {self.holder}'}"


class LinkRefused(TowlineError):
    """One side of a link does not want the other. Facts: code, sentence with both sides' values."""

    remedy = Remedy.FIX_SETTINGS
    advice = "connect to the process that belongs to this cluster and store, with a client of its version"

    def __init__(self, code: str, sentence: str) -> None:
        self.code, self.sentence = code, sentence
        super().__init__(code, sentence)

    def describe(self) -> str:
        return f"the link was refused ({self.code}): {self.sentence}"


class NoAnswer(TowlineError):
    """Nothing usable came back in time. Facts: endpoint, ms waited, what is known about the reason."""

    remedy = Remedy.RETRY
    advice = "check that the process runs and that the address is right, then try again"

    def __init__(self, endpoint: str, waited_ms: int, trouble: str) -> None:
        self.endpoint, self.waited_ms, self.trouble = endpoint, waited_ms, trouble
        super().__init__(endpoint, waited_ms, trouble)

    def describe(self) -> str:
        return f"no answer from {self.endpoint} within {self.waited_ms} ms: {self.trouble}"


# --- files of the store


class SegmentSizeMismatch(TowlineError):
    """Facts: path, its length, the configured size; bytes."""

    remedy = Remedy.FIX_SETTINGS
    advice = "set the segment size the store was made with, or restore the file from a copy; never change it in place"

    def __init__(self, path: str, length: int, configured: int) -> None:
        self.path, self.length, self.configured = path, length, configured
        super().__init__(path, length, configured)

    def describe(self) -> str:
        return f"{self.path} is {self.length} bytes long, the configured size is {self.configured}"


class ForeignFile(TowlineError):
    """A file that has no place in a directory of segments. Facts: path, why."""

    remedy = Remedy.FIX_DISK
    advice = "move the file out of the directory, or run `towline store repair`; only segments may stand there"

    def __init__(self, path: str, why: str) -> None:
        self.path, self.why = path, why
        super().__init__(path, why)

    def describe(self) -> str:
        return f"{self.path} {self.why}"


class DiskFull(TowlineError):
    """Blocks could not be reserved. Facts: path, bytes asked for."""

    remedy = Remedy.FIX_DISK
    advice = "free space on that file system, or shorten the time for which files are kept"

    def __init__(self, path: str, size: int) -> None:
        self.path, self.size = path, size
        super().__init__(path, size)

    def describe(self) -> str:
        return f"no room for {self.size} bytes of {self.path}"


class RuntimeDirectoryFull(DiskFull):
    """The file system of a node's runtime directory has no room for what its processes share. Facts as above."""

    advice = (
        "free room there, or give it more: `docker run --shm-size`, `mount -o remount,size=...`, or an XDG_RUNTIME_DIR "
        "on a larger file system in memory"
    )

    def __init__(self, path: str, size: int) -> None:
        super().__init__(path, size)


class SyncFailed(TowlineError):
    """The disk did not take bytes. Facts: path, range synced (0, 0: the whole file), errno, its text."""

    remedy = Remedy.FIX_DISK
    advice = "look at the kernel log and the disk; nothing beyond the last durable offset is promised any more"

    def __init__(self, path: str, start: int, end: int, errno: int, reason: str) -> None:
        self.path, self.start, self.end, self.errno, self.reason = path, start, end, errno, reason
        super().__init__(path, start, end, errno, reason)

    def describe(self) -> str:
        return f"sync of {self.path} bytes {self.start} to {self.end} failed: errno {self.errno} ({self.reason})"


class CorruptLog(TowlineError):
    """What was surely on the disk is damaged or missing. Facts: path, byte in the file, rule broken, its sentence."""

    remedy = Remedy.FIX_DISK
    advice = (
        "nothing was changed: restore the file from a copy or from another node, or look with `towline store verify` "
        "and step over it with `towline store repair --skip OFFSET`"
    )

    def __init__(self, path: str, at: int, rule: str, sentence: str) -> None:
        self.path, self.at, self.rule, self.sentence = path, at, rule, sentence
        super().__init__(path, at, rule, sentence)

    def describe(self) -> str:
        return f"{self.path} byte {self.at}, below the durable offset of the log: {self.rule}, {self.sentence}"


class StoreSyncFailed(TowlineError):
    """A sync failed before this start. Facts: path of the durable-offset file, log offset up to which all is synced."""

    remedy = Remedy.FIX_DISK
    advice = "look at the disk, then run `towline store mend --yes`: it writes everything behind that offset anew"

    def __init__(self, path: str, flushed: int) -> None:
        self.path, self.flushed = path, flushed
        super().__init__(path, flushed)

    def describe(self) -> str:
        return f"{self.path}: a sync of the log failed, only bytes before offset {self.flushed} are surely on the disk"


class NotInLog(TowlineError):
    """Facts: offset asked for, first and end offset of the log here; bytes."""

    remedy = Remedy.FIX_CALL
    advice = "ask for an offset between the two"

    def __init__(self, offset: int, log_min: int, log_end: int) -> None:
        self.offset, self.log_min, self.log_end = offset, log_min, log_end
        super().__init__(offset, log_min, log_end)

    def describe(self) -> str:
        return f"offset {self.offset} is not in the log, which holds {self.log_min} to {self.log_end}"


class IndexDisabled(TowlineError):
    """A lookup by key on a node that keeps no index. No facts."""

    remedy = Remedy.FIX_SETTINGS
    advice = "set message_index_enable and restart the node, or ask another one"

    def __init__(self) -> None:
        super().__init__()

    def describe(self) -> str:
        return "this node keeps no index of keys: message_index_enable is off"


class AppendMismatch(TowlineError):
    """Bytes that do not continue the log. Facts: their offset and size, the log's end, room left in its segment."""

    remedy = Remedy.RETRY
    advice = "start the handshake with the master again; it answers with the offset to go on from"

    def __init__(self, offset: int, size: int, log_end: int, room: int) -> None:
        self.offset, self.size, self.log_end, self.room = offset, size, log_end, room
        super().__init__(offset, size, log_end, room)

    def describe(self) -> str:
        return (
            f"{self.size} bytes for offset {self.offset} do not continue the log, "
            f"which ends at {self.log_end} with {self.room} bytes left in its segment"
        )


class IdentityMismatch(TowlineError):
    """Facts: path of the identity file, what differs, the value it holds, the value expected."""

    remedy = Remedy.FIX_SETTINGS
    advice = "give the store of that cluster, or an empty directory"

    def __init__(self, path: str, what: str, held: str, expected: str) -> None:
        self.path, self.what, self.held, self.expected = path, what, held, expected
        super().__init__(path, what, held, expected)

    def describe(self) -> str:
        return f"{self.path} holds {self.what} {self.held}, expected was {self.expected}"


class QueueGap(TowlineError):
    """Facts: topic, queue id, queue offset of the record, the one that was due, physical offset."""

    remedy = Remedy.FIX_DISK
    advice = "stop the node and run `towline store repair`: it fills what is missing, or names the record to step over"

    def __init__(self, topic: str, queue_id: int, queue_offset: int, due: int, physical_offset: int) -> None:
        self.topic, self.queue_id, self.queue_offset = topic, queue_id, queue_offset
        self.due, self.physical_offset = due, physical_offset
        super().__init__(topic, queue_id, queue_offset, due, physical_offset)

    def describe(self) -> str:
        return (
            f"the record at {self.physical_offset} is number {self.queue_offset} of queue {self.queue_id} of "
            f"{self.topic}, where number {self.due} is due"
        )
