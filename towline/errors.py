"""The base of all errors, and those that several packages raise or catch.

An error names the facts, and its class says what to do about it. It holds nothing else, so it pickles exactly and
crosses process borders. A class without a docstring is explained by its template.
"""

from enum import Enum
from shlex import quote
from typing import Any, ClassVar, dataclass_transform


class Remedy(Enum):
    RETRY = "try again"  # the store is healthy, the moment was not
    FIX_CALL = "change the call"  # the caller asked for something that cannot be
    FIX_SETTINGS = "change the settings"
    FIX_DISK = "look at the disk"  # bytes are not what we wrote
    RESTART = "restart the process"  # our own rule was broken; state cannot be trusted


@dataclass_transform(eq_default=False)
class TowlineError(Exception):
    """Base class. A subclass declares its facts as annotated attributes; `template`, formatted with them, says what
    happened, and `advice` what to do next. Where the sentence has a choice, `describe` makes it.

    The constructor takes the facts in their order, those of the class above first; `args` are all of them.
    """

    remedy: ClassVar[Remedy] = Remedy.RESTART
    advice: ClassVar[str] = "restart the process and report what happened"
    template: ClassVar[str] = ""
    fields: ClassVar[tuple[str, ...]] = ()
    _defaults: ClassVar[dict[str, Any]] = {}

    def __init_subclass__(cls, remedy: Remedy | None = None) -> None:
        own = (name for name, kind in cls.__annotations__.items() if getattr(kind, "__origin__", None) is not ClassVar)
        cls.fields = (*cls.fields, *own)
        cls._defaults = {name: getattr(cls, name) for name in cls.fields if hasattr(cls, name)}
        cls.remedy = remedy or cls.remedy
        cls.__doc__ = cls.__doc__ or cls.template

    def __init__(self, *values: Any, **named: Any) -> None:
        facts = self._defaults | dict(zip(self.fields, values, strict=False)) | named
        if len(values) > len(self.fields) or facts.keys() != set(self.fields):
            raise TypeError(f"{type(self).__name__} takes ({', '.join(self.fields)}), not {values} and {named}")
        vars(self).update(facts)
        super().__init__(*(facts[name] for name in self.fields))

    def describe(self) -> str:
        """What happened; without a template, the facts that are not empty, with colons between them."""
        if self.template:
            return self.template.format_map(vars(self))
        return ": ".join(str(fact) for fact in self.args if fact != "")

    def __str__(self) -> str:
        return f"{self.describe()}; {self.advice}"


def end_of_log(*stores: str) -> str:
    """The command that shows the last lines of these nodes' logs, as it is typed: `tail -n 20 /var/a/run/node.log`."""
    return f"`tail -n 20 {' '.join(quote(store.rstrip('/') + '/run/node.log') for store in stores)}`"


# --- bytes


class MalformedRecord(TowlineError, remedy=Remedy.FIX_CALL):
    """A record's bytes break a rule of the format."""

    rule: str
    sentence: str
    at: int  # byte in the buffer
    template = "{rule} at byte {at}: {sentence}"
    advice = "send records as the client library encodes them"


class MalformedFile(TowlineError, remedy=Remedy.FIX_DISK):
    """A file does not hold what its format says."""

    path: str
    problem: str
    advice = "restore the file from a copy, or run `towline store verify` and `towline store repair --yes`"


class MalformedFrame(TowlineError, remedy=Remedy.FIX_CALL):
    """A ZeroMQ frame is not one of ours."""

    problem: str
    advice = "talk to Towline with its own client of the same version"


class DecompressedTooLarge(TowlineError, remedy=Remedy.FIX_CALL):
    size_max: int
    template = "the body decompresses to more than the cap of {size_max} bytes"
    advice = "raise body_size_max of the reader if the sender is to be trusted"


class UnreadableBody(TowlineError, remedy=Remedy.FIX_CALL):
    kind: str
    problem: str
    template = "the body is no {kind} stream: {problem}"
    advice = "look at the sender: the store keeps bodies as it receives them"


# --- what the caller asks to be stored


class IllegalProperty(TowlineError, remedy=Remedy.FIX_CALL):
    """A property that could not be read back."""

    name: str
    problem: str
    template = "property {name!r}: {problem}"
    advice = "give every property a name and a value without the bytes 0x00, 0x01 and 0x02"


class ProducerFenced(TowlineError, remedy=Remedy.FIX_CALL):
    """An idempotent producer is not the newest of its name any more: nothing of it is stored from here on."""

    sentence: str
    advice = "close this producer: another one of its name goes on; what has no result here may have been stored"


class UnknownProducer(TowlineError, remedy=Remedy.RETRY):
    """The node does not know any more what an idempotent producer has sent, and so cannot tell whether this was stored
    before. Messages that were never tried go on by themselves in a new epoch."""

    sentence: str
    advice = (
        "look the unique key up and send the message again if it is not there; raise producer_states_max or "
        "producer_id_expiration_ms on the node where that happens often"
    )


class OutOfOrderSequence(TowlineError, remedy=Remedy.RETRY):
    """What an idempotent producer sends does not follow what the node has of it: messages before this one, though they
    were acknowledged, are gone. Nothing of this one was stored; later ones go on in a new epoch."""

    sentence: str
    advice = (
        "see which of the messages before are missing, send these again, then this one; to lose none with a node put "
        "under SYNC_FLUSH, or SYNC_MASTER with min_in_sync_replicas=2"
    )


# --- processes of a node


class UnsupportedMachine(TowlineError, remedy=Remedy.FIX_SETTINGS):
    system: str
    machine: str
    template = "{system} on {machine} does not promise the store order that the positions rest on"
    advice = "run the server on Linux x86-64; clients run anywhere"


class PositionsUnusable(TowlineError, remedy=Remedy.RESTART):
    path: str
    why: str
    template = "the positions file {path} {why}"
    advice = (
        "stop the node if it runs (`towline master stop`), and start it: `towline master start` or `towline slave "
        "start` writes the file anew"
    )


class HolderSilent(TowlineError, remedy=Remedy.RETRY):
    """A process that is no running node holds a store: a command at work, a node that starts, a real broker."""

    path: str
    pid: int
    template = "the positions file {path} does not tell how far process {pid} has come, which holds the store"
    advice = "wait until that process has ended, or its node runs, then try again"


class NotTheWriter(TowlineError):
    position: str
    duty: str
    owner: str
    template = "{position} is written by {owner}, not by {duty}"
    advice = "let the owner write it; the table is in ARCHITECTURE.md"


class DutyTaken(TowlineError, remedy=Remedy.FIX_CALL):
    duty: str
    pid: int
    lock: str
    template = "the duty {duty} is held by process {pid} ({lock})"
    advice = "stop that process first, or leave the duty to it"


class StoreTaken(TowlineError, remedy=Remedy.FIX_CALL):
    """Another process has the store open."""

    store: str
    pid: int  # 0 if unknown
    is_node: bool = True  # else it is a command at work, or another program

    @property
    def advice(self) -> str:  # type: ignore[override]
        end = "wait until that process has ended, which is no node but a command at work or another program"
        if self.is_node:
            end = f"stop that node (`towline master stop --store {quote(self.store)}`)"
        if not self.pid:
            end = "stop it where it runs: in another container, or on another machine"
        return f"{end}, or use another store directory"

    def describe(self) -> str:
        holder = f"process {self.pid}" if self.pid else "a process that is not seen from here"
        return f"the store {self.store} is in use by {holder}"


class StoreNotWritable(TowlineError, remedy=Remedy.FIX_DISK):
    path: str
    reason: str
    template = "{path} cannot be written: {reason}"
    advice = "give this user write permission on the directory, or name another one with --store"


class NodeNotRunning(TowlineError, remedy=Remedy.FIX_CALL):
    store: str
    template = "no node is running on {store}"

    @property
    def advice(self) -> str:  # type: ignore[override]
        where = f"--store {quote(self.store)}"
        return f"start it with `towline master start {where}` or `towline slave start {where}`"


class NodeNotReadable(NodeNotRunning, remedy=Remedy.RESTART):
    """A node runs, and nothing of it can be read from here."""

    pid: int
    template = (
        "the node on {store} runs as process {pid}, and its memory cannot be read: the node is about to start, or that "
        "memory was deleted, or is of another version of Towline"
    )

    @property
    def advice(self) -> str:  # type: ignore[override]
        stop = f"`towline master stop --store {quote(self.store)}`"
        return f"try again in a moment; if it stays so, stop the node ({stop}) and {super().advice}"


class NodeStillRunning(TowlineError, remedy=Remedy.RETRY):
    store: str
    pid: int
    waited_s: int
    template = "the node on {store} (process {pid}) did not stop within {waited_s} s"

    @property
    def advice(self) -> str:  # type: ignore[override]
        where = f"--store {quote(self.store)}"
        names = f"`towline master status {where}` names a process that stands still, and {end_of_log(self.store)}"
        return f"{names} shows how far the node has come; then stop it again (`towline master stop {where}`)"


class MissingPackage(TowlineError, remedy=Remedy.FIX_SETTINGS):
    package: str
    extra: str
    template = "the package {package} is not installed: pip install 'towline[{extra}]'"
    advice = "install the extra that brings it, then run the command again"


class DemoFailed(TowlineError, remedy=Remedy.RETRY):
    """A node of the demo did not do what it must."""

    problem: str
    store: str = ""  # the directory of both stores where it stays, else ""

    @property
    def advice(self) -> str:  # type: ignore[override]
        if self.store:
            shows = end_of_log(f"{self.store}/master", f"{self.store}/slave")
            return f"{shows} shows what both nodes did; `towline doctor` finds what this machine lacks"
        return "run it again as `towline demo --store DIR`, which keeps the logs of both nodes and says where they are"

    def describe(self) -> str:
        return self.problem


class BenchFailed(TowlineError, remedy=Remedy.RETRY):
    """A benchmark has no result."""

    problem: str
    advice = "run it again on a machine that does nothing else"


class StartFailed(TowlineError):
    duty: str
    said: str
    template = "{duty} did not start: {said}"
    advice = "remove the cause that is named, then start it again"


class TooManyQueues(TowlineError, remedy=Remedy.FIX_SETTINGS):
    """The table of queues has no room for another topic."""

    queues_max: int
    deleted: int = 0
    advice = (
        "use fewer topics or fewer queues per topic on one node; places of deleted topics are free again when the log "
        "is cleaned of their messages and the node was started anew"
    )

    def describe(self) -> str:
        of_deleted = f", {self.deleted} of them by topics that were deleted" if self.deleted else ""
        return f"a node holds {self.queues_max} queues and not so many are free{of_deleted}"


class IllegalTopic(TowlineError, remedy=Remedy.FIX_CALL):
    """A name that no topic may have."""

    name: str
    problem: str
    template = "topic {name!r}: {problem}"
    advice = "choose a name of letters, digits, %, |, _ and -, at most 127 long"


class IllegalMessageId(TowlineError, remedy=Remedy.FIX_CALL):
    text: str
    problem: str
    template = "message id {text!r}: {problem}"
    advice = "give the id as the producer or the store returned it"


class UnknownTopic(TowlineError, remedy=Remedy.FIX_CALL):
    topic: str
    template = "the topic {topic!r} does not exist here"

    @property
    def advice(self) -> str:  # type: ignore[override]
        return f"create it (`towline topic create {quote(self.topic)}`), or set auto_create_topic_enable on the node"


class UnknownQueue(TowlineError, remedy=Remedy.FIX_CALL):
    topic: str
    queue_id: int
    template = "the topic {topic!r} has no queue {queue_id}"
    advice = "ask for one of the topic's queues; they are numbered from 0"


class TopicExists(TowlineError, remedy=Remedy.FIX_CALL):
    topic: str
    template = "the topic {topic!r} exists already"
    advice = "use the topic as it is, or choose another name"


class TopicChangeRefused(TowlineError, remedy=Remedy.FIX_CALL):
    """A topic cannot be made or changed like that."""

    topic: str
    problem: str
    template = "topic {topic!r}: {problem}"
    advice = "change what the sentence names"


class TopicProtected(TowlineError, remedy=Remedy.FIX_CALL):
    topic: str
    template = "the topic {topic!r} is the broker's own: it is not changed from outside"
    advice = "use a topic of your own; what the broker keeps for itself follows its settings"


# --- the link


class InvalidEndpoint(TowlineError, remedy=Remedy.FIX_CALL):
    """An address that cannot be one of ours."""

    text: str
    problem: str
    advice = "give an address such as tcp://127.0.0.1:10911 or ipc:///run/towline/put.sock"


class CannotListen(TowlineError, remedy=Remedy.FIX_SETTINGS):
    """The system refuses a server its address."""

    endpoint: str
    number: int  # errno
    reason: str
    holder: str = ""  # who listens there, "" if unknown
    setting: str = ""  # that names the endpoint, "" if unknown

    @property
    def advice(self) -> str:  # type: ignore[override]
        return f"stop who has it, or give another one (`--set {self.setting or 'KEY'}=VALUE`, or in the settings file)"

    def describe(self) -> str:
        said = f", as {self.setting} says" if self.setting else ""
        return f"nobody can listen at {self.endpoint}{said}: {self.reason}{self.holder and f' by {self.holder}'}"


_LINKS = {  # what to do about a refused link, by its code
    "FULL": "end clients that are not needed, or give the node more open files (`ulimit -n`) where it is started",
    "SEVERAL_BROKERS": "name the broker behind the last port, as in rocketmq://HOST:9876/BROKER",
    "TLS": "connect as the sentence says",
}


class LinkRefused(TowlineError, remedy=Remedy.FIX_SETTINGS):
    code: str
    sentence: str
    template = "the link was refused ({code}): {sentence}"

    @property
    def advice(self) -> str:  # type: ignore[override]
        if self.code == "NOT_MASTER":
            return "give that address, or those of all nodes with commas, so that the master is found"
        if self.code == "KEY":
            made = ", `towline keys new NAME --dir DIR --role ROLE` makes one"
            named = (
                "name a key file with that role by TOWLINE_KEYS: `towline keys list --dir DIR` shows what each may be"
            )
            return named if "`towline keys new" in self.sentence else named + made
        otherwise = "connect to the process that belongs to this cluster and store, with a client of its version"
        return _LINKS.get(self.code, otherwise)


class NoAnswer(TowlineError, remedy=Remedy.RETRY):
    endpoint: str
    waited_ms: int
    trouble: str
    template = "no answer from {endpoint} within {waited_ms} ms: {trouble}"
    advice = "check that the process runs and that the address is right, then try again"


# --- files of the store


class SegmentSizeMismatch(TowlineError, remedy=Remedy.FIX_SETTINGS):
    path: str
    length: int
    configured: int
    template = "{path} is {length} bytes long, the configured size is {configured}"

    @property
    def advice(self) -> str:  # type: ignore[override]
        made = f"`--set mapped_file_size_commit_log={self.length}` if it is {self.length}"
        return (
            f"start with the segment size that the store was made with ({made}), or restore the file from a copy; "
            "never change the size of a store"
        )


class ForeignFile(TowlineError, remedy=Remedy.FIX_DISK):
    """A file that has no place in a directory of segments."""

    path: str
    why: str
    template = "{path} {why}"
    advice = (
        "move the file out of the directory, or run `towline store repair --yes`, which moves it to diverged/; only "
        "segments may stand there"
    )


class DiskFull(TowlineError, remedy=Remedy.FIX_DISK):
    path: str
    size: int
    template = "no room for {size} bytes of {path}"
    advice = "free space on that file system, or shorten the time for which files are kept"


class NoFirstSegment(DiskFull):
    """A new store lies on a file system without room for a segment: nothing could be put there."""

    available: int
    advice = (
        "free that much, name a store directory on another file system (--store), or take smaller segments, as in "
        "`--set mapped_file_size_commit_log=16777216`"
    )

    def describe(self) -> str:
        missing = self.size - self.available
        return (
            f"no room for the first segment in {self.path}: it needs {self.size:,} bytes, {self.available:,} are "
            f"available, {missing:,} are missing (DISK_FULL)"
        )


class RuntimeDirectoryFull(DiskFull):
    """The file system of a node's runtime directory has no room for what its processes share."""

    advice = (
        "free room there, or give it more: `docker run --shm-size`, `mount -o remount,size=...`, or an "
        "XDG_RUNTIME_DIR on a larger file system in memory"
    )


class SyncFailed(TowlineError, remedy=Remedy.FIX_DISK):
    path: str
    start: int  # 0 to 0: the whole file
    end: int
    errno: int
    reason: str
    template = "sync of {path} bytes {start} to {end} failed: errno {errno} ({reason})"
    advice = "look at the kernel log and the disk; nothing beyond the last durable offset is promised any more"


class CorruptLog(TowlineError, remedy=Remedy.FIX_DISK):
    """What was surely on the disk is damaged or missing."""

    path: str
    at: int
    rule: str
    sentence: str
    template = "{path} byte {at}, below the durable offset of the log: {rule}, {sentence}"

    @property
    def offset(self) -> int:
        """Of the log."""
        name = self.path.rpartition("/")[2]
        return self.at + (int(name) if name.isdecimal() else 0)

    @property
    def advice(self) -> str:  # type: ignore[override]
        restore = "nothing was changed: restore the file from a copy or from another node"
        if self.rule == "MISSING":
            return restore
        skip = f"`towline store repair --yes --skip {self.offset}`"
        if self.rule == "START_MISSING":
            return f"{restore}, or give up what is missing with {skip}: the log begins later then"
        return f"{restore}, or look with `towline store verify` and step over it with {skip}"


class StoreSyncFailed(TowlineError, remedy=Remedy.FIX_DISK):
    path: str
    flushed: int  # everything before it is synced
    template = "{path}: a sync of the log failed, only bytes before offset {flushed} are surely on the disk"
    advice = "look at the disk, then run `towline store mend --yes`: it writes everything behind that offset anew"


class NotInLog(TowlineError, remedy=Remedy.FIX_CALL):
    offset: int
    log_min: int
    log_end: int
    template = "offset {offset} is not in the log, which holds {log_min} to {log_end}"
    advice = "ask for an offset between the two"


class IndexDisabled(TowlineError, remedy=Remedy.FIX_SETTINGS):
    template = "this node keeps no index of keys: message_index_enable is off"
    advice = "restart the node with `--set message_index_enable=true`, or ask another one"


class AppendMismatch(TowlineError, remedy=Remedy.RETRY):
    offset: int
    size: int
    log_end: int
    room: int
    template = (
        "{size} bytes for offset {offset} do not continue the log, which ends at {log_end} with {room} bytes left in "
        "its segment"
    )
    advice = "start the handshake with the master again; it answers with the offset to go on from"


class IdentityMismatch(TowlineError, remedy=Remedy.FIX_SETTINGS):
    path: str
    what: str
    held: str
    expected: str
    template = "{path} holds {what} {held}, expected was {expected}"
    advice = "give the store of that cluster, or an empty directory"


class StoreOfAnotherVersion(IdentityMismatch):
    """A store whose format only another version of Towline knows. It is left as it is, by repairs too."""

    template = "{path} says format version {held}, and this program knows {expected}"
    advice = "use the version of Towline that wrote the store, or a later one; docs/upgrading.md says what fits what"


class QueueGap(TowlineError, remedy=Remedy.FIX_DISK):
    topic: str
    queue_id: int
    queue_offset: int
    due: int
    physical_offset: int
    template = (
        "the record at {physical_offset} is number {queue_offset} of queue {queue_id} of {topic}, where number {due} "
        "is due"
    )
    advice = (
        "stop the node and run `towline store repair --yes`: it fills what is missing, or names the record to step over"
    )


# --- settings

_KEPT = "/kept.toml"  # of a store: what `towline config set --keep` has left there


def _taken_back(path: str, what: str) -> str:
    """The remedy of a refusal that comes from this file; "" unless a store keeps its changes there."""
    store, kept, _ = path.rpartition(_KEPT)
    return f"take it back with `towline config unset {what} --store {quote(store)}`" if kept and store else ""


class UnknownSetting(TowlineError, remedy=Remedy.FIX_SETTINGS):
    """A key that is no setting."""

    key: str
    source: str
    nearest: str  # "" if none is near

    @property
    def advice(self) -> str:  # type: ignore[override]
        return _taken_back(self.source, quote(self.key)) or "correct or remove the key; docs/settings.md lists all"

    def describe(self) -> str:
        meant = f", did you mean {self.nearest!r}?" if self.nearest else ""
        return f"{self.source}: {self.key!r} is not a setting{meant}"


class BadSetting(TowlineError, remedy=Remedy.FIX_SETTINGS):
    """A setting has a value that cannot be."""

    key: str
    value: str
    source: str
    why: str
    template = "{source}: {key} = {value}: {why}"

    @property
    def advice(self) -> str:  # type: ignore[override]
        correct = "correct the value; docs/settings.md gives the unit and the meaning of each key"
        return _taken_back(self.source, quote(self.key)) or correct


class FixedSetting(TowlineError, remedy=Remedy.FIX_SETTINGS):
    """A change, at run time, of what a node reads when it starts."""

    keys: str
    template = "takes effect after a restart only: {keys}"
    advice = "set it where the node is started and restart it; docs/settings.md shows which change at run time"


class OverruledSetting(TowlineError, remedy=Remedy.FIX_SETTINGS):
    """A value that is to be kept, and that another source would replace at the next start."""

    key: str
    source: str
    template = "{key} cannot be kept: {source} sets it at each start of the node, and wins"
    advice = "change it there, or do not ask for it to be kept (--keep): then it holds until the node ends"


class ChangeUndone(TowlineError, remedy=Remedy.RETRY):
    """A change of settings that the node did not answer in time."""

    store: str
    template = "the node on {store} did not say in time that its settings are changed"
    advice = "`towline master status` says what it is doing, `towline config get` what holds; then ask again"


class ChangeFailed(TowlineError, remedy=Remedy.RETRY):
    """A change of settings at which the node failed in a way that nobody expected."""

    store: str
    why: str
    template = "the node on {store} failed to change its settings: {why}"

    @property
    def advice(self) -> str:  # type: ignore[override]
        more = f"{end_of_log(self.store)} on the node's machine says more, and `towline config get` what holds"
        return f"{more}; correct the values, or the disk, and ask again"


class UnreadableSettings(TowlineError, remedy=Remedy.FIX_SETTINGS):
    path: str
    why: str
    template = "the settings file {path} cannot be read: {why}"

    @property
    def advice(self) -> str:  # type: ignore[override]
        if taken_back := _taken_back(self.path, "--all"):
            return f"mend it, or {taken_back}, which puts the file aside as kept.toml.bak"
        return "name a readable .toml file, or a broker.conf of Java properties"


# --- reading


class QueueDamaged(TowlineError, remedy=Remedy.FIX_DISK):
    topic: str
    queue_id: int
    offset: int
    problem: str
    template = "entry {offset} of queue {queue_id} of {topic!r} is damaged: {problem}"
    advice = (
        "stop the node and run `towline store repair --yes`, which derives its queues anew; with `seek` a reader goes "
        "on behind the entry"
    )


class NoRecordHere(TowlineError, remedy=Remedy.FIX_CALL):
    offset: int
    problem: str
    template = "no record begins at offset {offset}: {problem}"
    advice = "ask for an offset or a message id as the store returned it; where it is one, run `towline store verify`"


class RecordDamaged(TowlineError, remedy=Remedy.FIX_DISK):
    offset: int
    problem: str
    template = "the record at offset {offset} of the log is damaged: {problem}"
    advice = "read it from another node; `towline store verify` finds all there are, and says what to do"


# --- who is master


class PromotionRefused(TowlineError, remedy=Remedy.FIX_CALL):
    node: int
    why: str
    template = "node {node} is not promoted: {why}"
    advice = "promote the node that is named, bring the silent ones back, or say --accept-loss"


class AloneRefused(TowlineError, remedy=Remedy.FIX_CALL):
    """A master whose peers are silent may have been replaced by one of them."""

    node: int
    peers: str
    template = "node {node} was master and none of its peers answers ({peers})"
    advice = (
        "start its peers first, or say --alone if none of them can be a master now; with min_in_sync_replicas of 2 or "
        "more it starts by itself, because it acknowledges nothing alone"
    )


class DoubtRefused(AloneRefused):
    """A master may have lost what it had acknowledged, and whoever surely holds it is silent."""

    template = "node {node} is not master again: {peers}"
    advice = "start the nodes that are named, or say --alone if what they hold may be lost"


class NothingToGiveUp(TowlineError, remedy=Remedy.FIX_CALL):
    store: str
    why: str
    template = "the node on {store} {why}: it has nothing to give up"
    advice = "say it when `towline slave status` shows that the node waits for it, or when the node is stopped"


class OrderUndone(TowlineError, remedy=Remedy.RETRY):
    store: str
    order: str
    seconds: float
    template = "the node on {store} was told to {order} and has not done it within {seconds:.0f} s"

    @property
    def advice(self) -> str:  # type: ignore[override]
        status = f"`towline master status --store {quote(self.store)}`, which finds the node whatever its role is"
        return f"{status}, names a process that stands still, and {end_of_log(self.store)} shows how far it has come"


class OrderTooOld(TowlineError, remedy=Remedy.FIX_CALL):
    store: str
    seconds: float
    template = "the promotion of the node on {store} was ordered {seconds:.0f} s ago and is not gone on with"

    @property
    def advice(self) -> str:  # type: ignore[override]
        where = f"--store {quote(self.store)}"
        whom = f"`towline master status {where}` says which master it follows"
        return f"{whom}; if it is to be the master itself, order it again with `towline promote {where}`"


class MalformedKey(TowlineError, remedy=Remedy.FIX_SETTINGS):
    """A key in etcd does not hold what a node writes there."""

    key: str
    problem: str
    changed: int  # the revision of etcd in which that was written
    template = "{key} in etcd: {problem}"

    @property
    def advice(self) -> str:  # type: ignore[override]
        key = quote(self.key)
        before = f"etcdctl get {key} --rev={self.changed - 1} --print-value-only"
        heal = f"put back what it was (`{before} | etcdctl put {key}`)"
        if self.key.endswith("/leader"):  # its lease has gone with it
            heal = f"delete the key (`etcdctl del {key}`): a leader is elected anew"
        return f"look who else writes there, and {heal}; etcdctl takes etcd_endpoints as ETCDCTL_ENDPOINTS"


class EtcdUnavailable(TowlineError, remedy=Remedy.RETRY):
    troubles: str
    template = "etcd does not answer: {troubles}"
    advice = "look at etcd, and at etcd_endpoints; puts go on by themselves when it answers again"
