"""Failpoints: places where a test makes a process stall, die or fail. Compiled in, and off unless the environment says
otherwise; then each costs one comparison of a constant:

    if ARMED:
        reach(name)

In a kernel it is a comparison of a word, and a call of the function at that address.

TOWLINE_FAILPOINTS is `name=action[:argument][@nth]`, several separated by commas: `put.in_append=stall:3000@100`
stalls for 3000 ms when this process gets there for the 100th time. `kill` is a SIGKILL to itself; `raise:EIO` is an
OSError with that errno. Every process counts for itself, a restarted one anew.

With `trace:PATH` in the place of all that nobody fires: each process writes down when it gets where, into a file of the
directory PATH (`towline.runtime.trace`).

With `@PATH` the file PATH is read each time and holds the same words: a running node is
armed by renaming a file into place. Who fires takes the file away first, so exactly one process fires, once.
"""

import ctypes
import errno
import os
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from .trace import Trace

ENVIRONMENT: Final = "TOWLINE_FAILPOINTS"
NAMES: Final = (
    "put.before_append",
    "put.in_append",
    "put.between_records",
    "put.after_copy",
    "put.before_publish",
    "put.in_publish",
    "put.after_publish",
    "put.before_answer",
    "put.in_topics",
    "put.ring_before_take",
    "put.ring_taken",
    "put.ring_before_answer",
    "put.ring_answered",
    "remoting.plain_put",
    "flush.in_commit",
    "flush.before_sync",
    "flush.after_sync",
    "flush.before_watermark",
    "kafka_import.planned",
    "kafka_import.written",
    "kafka_import.named",
    "kafka_import.noted",
    "kafka_import.staged",
    "kafka_import.begun",
    "kafka_import.segment",
    "kafka_import.linked",
    "kafka_import.ended",
    "kafka_import.promised",
    "kafka_import.topics",
    "kafka_import.recovered",
    "kafka_import.unlinked",
    "kafka_import.closed",
    "reput.before_bitmaps",
    "reput.before_queues",
    "reput.before_entries",
    "reput.in_settle",
    "reput.in_queues",
    "reput.before_ends",
    "reput.before_index",
    "reput.before_slots",
    "reput.before_header",
    "reput.before_dispatched",
    "reput.after_dispatched",
    "reput.in_minima",
    "reput.before_trim",
    "reput.after_trim",
    "reput.before_index_trim",
    "reput.before_retention",
    "reput.in_retention",
    "reput.before_retention_trim",
    "allocate.before_link",
    "allocate.after_link",
    "allocate.in_give_back",
    "allocate.after_minimum",
    "allocate.before_unlink",
    "allocate.after_unlink",
    "receive.before_append",
    "receive.after_append",
    "receive.before_ack",
    "receive.before_set",
    "recover.in_salvage",
    "truncate.before_copy",
    "truncate.before_manifest",
    "truncate.before_durable",
    "truncate.before_queues",
    "truncate.before_offsets",
    "truncate.before_segment",
    "truncate.before_epochs",
    "truncate.before_removal",
    "agree.after_promise",
    "agree.after_promises",
    "agree.after_record",
    "agree.after_role",
    "schedule.before_end",
    "schedule.after_end",
    "schedule.after_check",
    "serve.woken",
    "serve.answered",
)
ACTIONS: Final = ("stall", "kill", "raise")
_TRACE: Final = "trace:"


@dataclass(slots=True)
class Failpoint:
    """What happens at the `nth` time from here on. `argument` is ms to stall, or the name of an errno."""

    action: str
    argument: str = ""
    nth: int = 1


def parse(text: str) -> dict[str, Failpoint]:
    """Raises ValueError naming the part that is none."""
    found: dict[str, Failpoint] = {}
    for part in filter(None, text.strip().split(",")):
        name, _, rest = part.strip().partition("=")
        what, _, nth = rest.partition("@")
        action, _, argument = what.partition(":")
        argument_fits = {
            "stall": argument.isdecimal(),
            "kill": not argument,
            "raise": (argument or "EIO") in errno.errorcode.values(),
        }
        if name not in NAMES or not argument_fits.get(action) or not (nth or "1").isdecimal():
            raise ValueError(f"{ENVIRONMENT}: {part!r} is no failpoint; {', '.join(NAMES)} with {', '.join(ACTIONS)}")
        found[name] = Failpoint(action, argument, int(nth or 1))
    return found


class Failpoints:
    """The failpoints of one process, from the words of the environment or from the file that they name."""

    def __init__(self, text: str) -> None:
        self._path = Path(text[1:]) if text.startswith("@") else None
        self._points = {} if self._path is not None else parse(text)
        self._read = (0, 0)  # inode and change time of the file that was read last

    def reach(self, name: str) -> None:
        """Acts if it is this one's turn. Raises OSError if that is its action."""
        if self._path is not None and not self._look(self._path):
            return
        point = self._points.get(name)
        if point is None:
            return
        point.nth -= 1
        if point.nth == 0 and self._claim():
            _act(name, point)

    def _look(self, path: Path) -> bool:
        """Whether the file is there; reads one that was not read before."""
        try:
            found = path.stat()
            if (found.st_ino, found.st_ctime_ns) != self._read:
                self._read = (found.st_ino, found.st_ctime_ns)
                self._points = parse(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return False
        return True

    def _claim(self) -> bool:
        if self._path is None:
            return True
        try:
            self._path.unlink()
        except FileNotFoundError:  # another process was first
            return False
        return True


def _act(name: str, point: Failpoint) -> None:
    match point.action:
        case "stall":
            time.sleep(int(point.argument) / 1000)
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "raise":
            number = getattr(errno, point.argument or "EIO")
            raise OSError(number, f"{os.strerror(number)} (failpoint {name})")


_TEXT: Final = os.environ.get(ENVIRONMENT, "")
ARMED: Final = bool(_TEXT)
_POINTS: Final = Trace(_TEXT.removeprefix(_TRACE), NAMES) if _TEXT.startswith(_TRACE) else Failpoints(_TEXT)


def reach(name: str) -> None:
    _POINTS.reach(name)


def address_of_failpoints(names: Sequence[str]) -> int:
    """The address of a C function of one word that reaches the failpoint of that number in `names`; 0 if none is armed.

    For kernels: there a failpoint may stall or kill, an error that it raises is printed and ignored.
    """
    if not ARMED:
        return 0

    def reach_number(number: int) -> int:
        reach(names[number])
        return 0

    function = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_long)(reach_number)
    _FUNCTIONS.append(function)
    address = ctypes.cast(function, ctypes.c_void_p).value
    assert address is not None
    return address


_FUNCTIONS: Final[list[object]] = []  # C keeps no reference to them
