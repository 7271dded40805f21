"""The operations of a drill in the form of Porcupine, a checker of histories that knows nothing of Towline.

`operations.jsonl` has a line for each with the members of Porcupine's `Operation`: `ClientId`, `Input`, `Call`,
`Output`, `Return`, and who it was as `Metadata`. Times are microseconds since the drill began. `Return` and `Output`
are null where nobody knows what became of it. `Input.object` is "list TOPIC/QUEUE" or "register TOPIC/QUEUE":

    f       Input                Output                      of
    append  value, copies        at                          a list: `at` is the queue offset
    read                         from, values, whole         a list: `whole` where nothing follows
    write   value                                            a register
    read                         value                       a register: "" before the first write

`copies` is how often the value may be there: as often as it was sent, or once where an idempotent producer sent it.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import orjson

from towline.places import Store

from .check import Found, read_found
from .history import ACKNOWLEDGED, STORES, History, read_history, read_lines, write_lines
from .load import QUEUES

OPERATIONS: Final = "operations.jsonl"
WITNESSED: Final = "witnessed.jsonl"  # what witnesses noted, one Operation a line
MICROSECONDS: Final = 1_000_000
APPEND, READ, WRITE = "append", "read", "write"


@dataclass(frozen=True, slots=True)
class Operation:
    """`call` and `returned` are seconds since the drill began."""

    who: str
    of: str  # the list or register
    f: str
    call: float
    returned: float | None
    given: dict[str, Any]
    found: dict[str, Any] | None


def list_of(topic: str, queue: int) -> str:
    return f"list {topic}/{queue}"


def register_of(topic: str, queue: int) -> str:
    return f"register {topic}/{queue}"


def value_of(key: str, crc: int) -> str:
    """Of a message: another body under its key is another value."""
    return f"{key}:{crc:08x}"


def in_places(start: int, found: Iterable[tuple[int, str]]) -> list[str]:
    """The values from offset `start` on; "" where none came, and all that came for one offset joined by "+"."""
    places: dict[int, str] = {}
    for at, value in found:
        places[at] = f"{places[at]}+{value}" if at in places else value
    return [places.get(at, "") for at in range(start, max(places, default=start - 1) + 1)]


def write_operations(directory: Path) -> int:
    """Writes those of the drill kept in `directory`; how many. Raises what the judge raises."""
    said: dict[str, Any] = orjson.loads((directory / STORES).read_bytes())
    operations = [Operation(**row) for row in read_lines(directory / WITNESSED)]
    operations += _appends(read_history(directory), once=said["idempotent"])
    end = max((one.returned or one.call for one in operations), default=0.0)
    for name, path in said["stores"].items():
        if name not in said["away"]:
            found = read_found(Store(Path(path)), said["segment_size"], said["topics"])
            operations += _whole(name, found, said["topics"], end)
    operations.sort(key=lambda one: one.call)
    clients = {who: number for number, who in enumerate(sorted({one.who for one in operations}))}
    write_lines(directory / OPERATIONS, (_line(one, clients[one.who]) for one in operations))
    return len(operations)


def _line(one: Operation, client: int) -> dict[str, Any]:
    return {
        "ClientId": client,
        "Input": {"object": one.of, "f": one.f, **one.given},
        "Call": round(one.call * MICROSECONDS),
        "Output": one.found,
        "Return": None if one.returned is None else round(one.returned * MICROSECONDS),
        "Metadata": one.who,
    }


def _appends(history: History, *, once: bool) -> Iterator[Operation]:
    """What was stored without a promise may be lost: its outcome is as unknown as that of what had no answer."""
    known = history.has(ACKNOWLEDGED).tolist()
    keys, topics = history.keys.tolist(), history.topics.tolist()
    for row in range(len(history)):
        if not history.attempts[row]:
            continue  # it was never sent
        copies = 1 if once else int(history.attempts[row])
        key, acknowledged = keys[row].decode(), known[row]
        yield Operation(
            f"producer {int(key[8:10])}",
            list_of(topics[row].decode(), int(history.queues[row])),
            APPEND,
            float(history.t_start[row]),
            float(history.t_end[row]) if acknowledged else None,
            {"value": value_of(key, int(history.crcs[row])), "copies": copies},
            {"at": int(history.offsets[row])} if acknowledged else None,
        )


def _whole(node: str, found: Found, topics: Sequence[str], end: float) -> Iterator[Operation]:
    """Every queue as a node's log has it at the end, when nobody sends any more."""
    rows: dict[tuple[int, int], list[tuple[int, str]]] = {
        (number, queue): [] for number in range(len(topics)) for queue in range(QUEUES)
    }
    columns = (found.keys.tolist(), found.queues.tolist(), found.offsets.tolist(), found.crcs.tolist())
    for key, queue, offset, crc in zip(*columns, strict=True):
        rows[int(key[8:10]), queue].append((offset, value_of(key.decode(), crc)))
    for (number, queue), values in rows.items():
        place = list_of(topics[number], queue)
        whole = {"from": 0, "values": in_places(0, values), "whole": True}
        yield Operation(node, place, READ, end, end, {}, whole)
