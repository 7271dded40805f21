"""What an import is to do, as `plan.json` keeps it: with the same plan the same bytes are written, however often.

Everything that the bytes depend on stands in it: partitions and their bounds, names, the time of storing, the host.
"""

from dataclasses import asdict, dataclass, fields
from pathlib import Path
from shlex import quote
from typing import Any, Final, Self

from towline.kafka.log.partition import Partition

from .encoding import Shape

VERSION: Final = 1
_CHOSEN: Final = ("aborted", "open_", "tombstones", "holes", "too_large", "torn")
_OPTIONS: Final = {"topics": "topic", "renames": "rename", "open_": "open", "too_large": "too-large"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """What the caller chose. `topics`: none are all; `renames` as OLD=NEW."""

    topics: tuple[str, ...] = ()
    renames: tuple[str, ...] = ()
    aborted: str = "drop"
    open_: str = "refuse"
    tombstones: str = "keep"
    holes: str = "keep"
    too_large: str = "refuse"
    torn: str = "refuse"

    def options(self) -> str:
        """As they are typed; those that are not named are left out."""
        plain = Choices()
        named = [(name, value) for name in ("topics", "renames") for value in getattr(self, name)]
        named += [(name, getattr(self, name)) for name in _CHOSEN if getattr(self, name) != getattr(plain, name)]
        return " ".join(f"--{_OPTIONS.get(name, name)} {quote(value)}" for name, value in named)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A partition that becomes a queue: offsets [start, end). `size` is that of its segments in bytes."""

    directory: str
    source: str  # topic there
    topic: str  # and here
    number: int
    log_start: int
    start: int
    end: int
    size: int
    torn: bool = False
    transactional: bool = False
    left_open: int = 0  # offsets from an open transaction on, which are left out

    def partition(self) -> Partition:
        """Raises what Partition does."""
        return Partition(Path(self.directory), self.log_start, cut_torn=self.torn)


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """What a partition makes: messages, bytes of their bodies and of the log, and what does not cross."""

    records: int = 0
    body_bytes: int = 0
    log_bytes: int = 0
    holes: int = 0
    hole_records: int = 0
    keys: int = 0
    largest: int = 0
    control: int = 0
    aborted: int = 0
    tombstones: int = 0  # that are dropped
    left_out: int = 0  # too large

    def __add__(self, other: "Counted") -> "Counted":
        found = {each.name: getattr(self, each.name) + getattr(other, each.name) for each in fields(Counted)}
        return Counted(**found | {"largest": max(self.largest, other.largest)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """Partitions that fill segments of their own, one after the other: the log from `base` on, `segments` of them.

    `used`: bytes of the last segment; `last`: the log ends there.
    """

    number: int
    parts: tuple[int, ...]  # rows of the plan's
    base: int
    segments: int
    used: int
    last: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """[log_min, end) is the store's log before the import, `store_timestamp` what every record gets, ms."""

    store: str
    source: str
    directory_id: str
    choices: Choices
    shape: Shape
    log_min: int
    end: int
    store_timestamp: int
    parts: tuple[Part, ...]
    counts: tuple[Counted, ...]
    units: tuple[Unit, ...]

    @property
    def base(self) -> int:
        """Where the import's first segment begins."""
        return -(-self.end // self.shape.segment_size) * self.shape.segment_size

    @property
    def new_end(self) -> int:
        """Where the log ends with the import."""
        last = self.units[-1]
        return last.base + (last.segments - 1) * self.shape.segment_size + last.used

    @property
    def segments(self) -> int:
        return sum(unit.segments for unit in self.units)

    def topics(self) -> dict[str, int]:
        """By their names here: how many queues."""
        found: dict[str, int] = {}
        for part in self.parts:
            found[part.topic] = max(found.get(part.topic, 0), part.number + 1)
        return found

    def content(self) -> dict[str, Any]:
        """As JSON."""
        found = asdict(self)
        found["shape"]["store_host"] = self.shape.store_host.hex()
        return {"version": VERSION} | found

    @classmethod
    def of(cls, content: dict[str, Any]) -> Self:
        """Of what `content` made."""
        known = {name: value for name, value in content.items() if name != "version"}
        choices: dict[str, Any] = known["choices"]
        topics, renames = tuple(choices["topics"]), tuple(choices["renames"])
        known["choices"] = Choices(**choices | {"topics": topics, "renames": renames})
        shape: dict[str, Any] = known["shape"]
        known["shape"] = Shape(**shape | {"store_host": bytes.fromhex(shape["store_host"])})
        known["parts"] = tuple(Part(**each) for each in known["parts"])
        known["counts"] = tuple(Counted(**each) for each in known["counts"])
        known["units"] = tuple(Unit(**each | {"parts": tuple(each["parts"])}) for each in known["units"])
        return cls(**known)
