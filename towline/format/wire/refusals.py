"""Causes of a refused put: a name, its numbers, and the sentence of an answer that holds both. Facts of other refusals.

    cause=flush_backlog backlog=536870913B limit=536870912B retry_after=40ms: the disk does not keep up

A refused request was not stored, whatever the cause: no byte of it is in the log.
"""

import re
from collections.abc import Mapping
from enum import IntEnum
from typing import Any, Final

from towline.errors import TowlineError, end_of_log

_UNITS: Final = {"_ms": "ms", "_bytes": "B"}
_SENTENCE: Final = re.compile(r"cause=(\w+)((?: \w+=-?[0-9]{1,19}(?:ms|B)?)*)(?:: (.*))?", re.DOTALL)
_NUMBER: Final = re.compile(r" (\w+)=(-?[0-9]{1,19})(ms|B)?")


class Cause(IntEnum):
    """(place of its counter in the positions file, what an operator can do about it)."""

    remedy: str  # with STORE for the directory of the node's store
    _remedy: str

    REQUEST = 0, "look at what the producers send: the answers name record and rule"
    PAGE_CACHE = 1, "an append waited for the disk: look at its latency, lower populate_ahead_bytes or the load"
    FLUSH_BACKLOG = 2, "the disk takes less than is put: lower the load, or use a faster disk"
    REPLICA_WAIT = 3, "slaves do not keep up: look at `towline master status` for the one that is behind"
    WAITING_REQUESTS = 4, "too many requests wait for the disk: look at its latency, or raise put_waiting_max"
    SEND_QUEUE = 5, "put does not keep up with what arrives: send fewer and larger requests, or add a CPU"
    ALLOCATE_WAIT = 6, "the next segment did not come: look at the disk, and at what allocate says in {log}"
    DISK_FULL = 7, "free space on the store's disk, or keep less: puts go on by themselves"
    LOGIC_DISK_FULL = 8, "free space on the store's disk: ConsumeQueues have none, puts go on by themselves"
    QUEUE_ERROR = 9, "a ConsumeQueue cannot be written: look at what reput says in {log}, then restart the node"
    INDEX_ERROR = 10, "free space on the store's disk: the index has none, puts go on by themselves"
    READ_ONLY = 11, "the log cannot be written: look at the disk, then restart the node"
    SYNC_FAILED = (
        12,
        "a sync of the log failed: look at the disk, stop the node (`towline master stop`), run "
        "`towline store mend --yes`, and start it again",
    )
    DISPATCH_STOPPED = 13, "a record cannot be dispatched: `towline master status` names it, and what mends it"
    REPLICAS = (
        14,
        "too few slaves are in sync: start them, or lower min_in_sync_replicas (rocketmq_ha_acks) and restart the node",
    )
    PERMISSION = 15, "broker_permission makes the node read-only: `towline config set broker_permission=6` ends that"
    EXPIRED = 16, "requests came after their deadline: look at the clocks and at the producers' send_timeout_ms"
    STOPPING = 17, "the node is being stopped: producers try again until it is back"
    MALFORMED = 18, "somebody sends what is no request: put names the address in {log}"
    TRANSIENT_POOL = 19, "commits do not keep up: raise transient_store_pool_size, or give the store a faster disk"
    LEASE = 20, "leadership could not be renewed in time: look at etcd; puts go on by themselves"
    FENCED = 21, "another node is master now, or about to be: producers find it among their endpoints"
    TOPICS_FILE = 22, "topics.json could not be saved: look at the disk; these topics go on when it takes the file"
    RUNTIME_FULL = 23, "the runtime directory's file system is full: free room there, or give it more; puts go on then"
    PEER_CUT = 24, "a client sent faster than put takes, or read no answers: put names it in {log}"

    def __new__(cls, number: int, remedy: str) -> "Cause":
        member = int.__new__(cls, number)
        member._value_ = number
        member._remedy = remedy
        member.remedy = member.remedy_at("STORE")
        return member

    def remedy_at(self, store: str) -> str:
        """The remedy for a node on this store directory, where that is known: its log is named by a command."""
        return self._remedy.replace("{log}", f"its log ({end_of_log(store)})")

    @property
    def label(self) -> str:
        return self.name.lower()


CAUSES: Final = {cause.label: cause for cause in Cause}


def sentence_of(cause: Cause, numbers: Mapping[str, int], retry_after_ms: int = 0, words: str = "") -> str:
    """Numbers whose names end in `_ms` or `_bytes` are written with that unit behind them."""
    parts = [f"cause={cause.label}"]
    for name, value in (*numbers.items(), *((("retry_after_ms", retry_after_ms),) if retry_after_ms else ())):
        ending = next((ending for ending in _UNITS if name.endswith(ending)), "")
        parts.append(f"{name.removesuffix(ending)}={value}{_UNITS.get(ending, '')}")
    return " ".join(parts) + (f": {words}" if words else "")


def read_sentence(sentence: str) -> tuple[Cause, dict[str, int], str]:
    """(cause, numbers with their units in the names, words). A sentence that names none is about the request itself."""
    found = _SENTENCE.fullmatch(sentence)
    if found is None or found[1] not in CAUSES:
        return Cause.REQUEST, {}, sentence
    endings = {unit: ending for ending, unit in _UNITS.items()}
    numbers = {name + endings.get(unit, ""): int(value) for name, value, unit in _NUMBER.findall(found[2])}
    return CAUSES[found[1]], numbers, found[3] or ""


def error_facts(error: TowlineError) -> dict[str, Any]:
    """The facts of an error for a peer: its name, its sentence, which ends with the remedy, the remedy, and where in an
    expression or a queue it is, if anywhere."""
    facts: dict[str, Any] = {"error": type(error).__name__, "sentence": str(error), "remedy": error.advice}
    where = {name: getattr(error, name, None) for name in ("position", "offset", "problem")}
    return facts | {name: value for name, value in where.items() if value is not None}
