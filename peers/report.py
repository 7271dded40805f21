"""What people read of a run: tables, for the terminal, the page of plots and docs/benchmarks.md."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from .plan import JAVA, PYTHON, Kind, Work
from .systems import OURS

NONE: Final = "-"
FAILED: Final = "failed"  # why stands in the last table
CANNOT: Final = "cannot"  # the same
RATIO: Final = "#of the best peer: Towline by ZeroMQ, by shared memory, by TCP, by RocketMQ's protocol"
LIMITS: Final = {
    "copy_gb_s": "memory copy, GB/s",
    "write_gb_s": "sequential write of 1-MiB blocks, synced at the end, GB/s",
    "synced_64_x_100_per_s": "append + fdatasync of 64 x 100 B, messages/s",
    "synced_64_x_1024_per_s": "append + fdatasync of 64 x 1 KiB, messages/s",
    "synced_1_x_1024_per_s": "append + fdatasync of 1 KiB, messages/s",
    "raw_zmq_64_x_100_per_s": "raw pyzmq push-pull, frames of 64 x 100 B, messages/s",
    "raw_zmq_64_x_1024_per_s": "raw pyzmq push-pull, frames of 64 x 1 KiB, messages/s",
    "raw_zmq_64_x_16384_per_s": "raw pyzmq push-pull, frames of 64 x 16 KiB, messages/s",
}
STORED: Final = {
    "first_ack_s": ("kill -9 to the first acknowledgement, s", ".2f"),
    "memory_mb": ("memory of all processes, MB", ",.0f"),
    "store_pages_mb": ("pages of store files mapped by them, MB", ",.0f"),
    "disk_per_byte": ("bytes on disk per body byte", ".2f"),
    "lost": ("lost of what was acknowledged before the kill", ",.0f"),
    "replay_per_s": ("replay after the restart, messages/s", ",.0f"),
}
IDLE: Final = {
    "idle_mb": ("memory of the processes that hold them, MB", ",.0f"),
    "idle_bytes_each": ("bytes each of them adds to that", ",.0f"),
    "idle_cpu_percent": ("CPU of those processes, percent of a core", ".1f"),
}
LATE: Final = "there was no time for it"
LATENCIES: Final = ("p50_us", "p99_us", "p99_9_us")


@dataclass(frozen=True, slots=True)
class Section:
    """A table. Columns whose name begins with # hold numbers."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def sections(result: Mapping[str, Any]) -> list[Section]:
    """Every table that has a row."""
    systems = tuple(result["versions"])
    found = [
        _table(result, systems, "messages a second", "per_s", rate, _flows),
        _table(result, systems, "latency in us: p50 / p99 / p99.9", "p99_us", None, _timed),
        _table(result, systems, "CPU of the server in us per message", "cpu_us", "{:.2f}".format, _flows),
        _kept(result, systems, "what is stored, and after kill -9", Kind.STORED, STORED),
        _kept(result, systems, "connections that say nothing", Kind.IDLE, IDLE),
        Section(
            "limits of this machine, in the same run",
            ("limit", "#"),
            tuple((LIMITS[key], rate(value) if "per_s" in key else f"{value:.2f}") for key, value in _known(result)),
        ),
        goals_section(result["goals"]),
        Section(
            "not measured",
            ("what", "why"),
            (*result["absent"].items(), *result["failed"].items(), *((each, LATE) for each in result["skipped"])),
        ),
    ]
    return [section for section in found if section.rows]


def goals_section(goals: Sequence[Mapping[str, Any]]) -> Section:
    rows = tuple(
        (
            row["goal"],
            row["what"],
            f"{_number(row['reached'])}{row['unit']}",
            _bound(row, "floor", "floor_met"),
            _bound(row, "bound", "goal_met"),
        )
        for row in goals
    )
    return Section("floors and goals", ("", "of", "#reached", "#floor", "#goal"), rows)


def rate(per_s: float) -> str:
    """Three digits and a letter."""
    for size, letter in ((1e6, " M"), (1e3, " k")):
        if per_s >= size:
            value = per_s / size
            return f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f}{letter}"
    return f"{per_s:.0f}"


def markdown(result: Mapping[str, Any]) -> str:
    """The tables of docs/benchmarks.md: throughput, latency, what is stored, goals, what no round measured."""
    machine = result["machine"]
    shown = {**result, "skipped": list(_never_measured(result))}
    chosen = [each for each in sections(shown) if not each.title.startswith("CPU")]
    lines = [
        f"Measured {result['made'][:10]} by `towline bench peers --full`: {machine['cpus']} CPUs ({machine['cpu']}), "
        f"{machine['memory_gb']:.0f} GB, medians of as many rounds as the tables say. {_versions(result)}.",
        "",
    ]
    for section in chosen:
        heads = [column.removeprefix("#") for column in section.columns]
        marks = ["---:" if column.startswith("#") else "---" for column in section.columns]
        lines += [f"### {section.title[0].upper()}{section.title[1:]}", ""]
        lines += [line(heads), line(marks), *(line(row) for row in section.rows), ""]
    return "\n".join(lines)


def _table(
    result: Mapping[str, Any],
    systems: tuple[str, ...],
    title: str,
    figure: str,
    shown: Callable[[float], str] | None,
    picks: Callable[[Work], bool],
) -> Section:
    """A row for each work that `picks`, a column for each system; `shown` None: three latencies."""
    rows = []
    for row in result["rows"]:
        if not picks(Work.read(row["work"])):
            continue
        cells = []
        for system in systems:
            figures = row["systems"].get(system, {})
            if figure not in figures:
                cells.append(_missing(result, system, row["name"]))
            elif shown is None:
                cells.append(" / ".join(_us(figures[name]) for name in LATENCIES))
            else:
                cells.append(shown(figures[figure]))
        rows.append((row["name"], _rounds(row), *cells, _ratios(row["systems"], figure)))
    ratio = f"{RATIO}, p99" if shown is None else RATIO
    return Section(title, ("work", "#rounds", *(f"#{system}" for system in systems), ratio), tuple(rows))


def _us(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}"


def _rounds(row: Mapping[str, Any]) -> str:
    """Of those who did it; fewer than the others in brackets."""
    done = sorted({len(figures["rounds"]) for figures in row["systems"].values()})
    return str(done[-1]) if len(done) == 1 else f"{done[-1]} ({done[0]})"


def _missing(result: Mapping[str, Any], system: str, work: str) -> str:
    name = f"{system}: {work}"
    return FAILED if name in result["failed"] else CANNOT if name in result["absent"] else NONE


def _ratios(systems: Mapping[str, Mapping[str, Any]], figure: str) -> str:
    """Of each of ours."""
    name = f"{figure}_of_best"
    found = [f"{systems[ours][name]:.2f}x" if name in systems.get(ours, {}) else NONE for ours in OURS]
    return " / ".join(found) if set(found) != {NONE} else NONE


def _kept(
    result: Mapping[str, Any], systems: tuple[str, ...], title: str, kind: Kind, named: Mapping[str, tuple[str, str]]
) -> Section:
    """A row for each figure that is `named`, with its form, of each work of a kind."""
    made = []
    for row in result["rows"]:
        if Work.read(row["work"]).kind is kind:
            for figure, (name, form) in named.items():
                cells = [
                    format(figures[figure], form)
                    if figure in (figures := row["systems"].get(system, {}))
                    else _missing(result, system, row["name"])
                    for system in systems
                ]
                made.append((f"{row['name']}: {name}", _rounds(row), *cells))
    heads = ("work", "#rounds", *(f"#{system}" for system in systems))
    return Section(title, heads, tuple(made))


def _flows(work: Work) -> bool:
    return work.kind in (Kind.PUT, Kind.SINGLE, Kind.REPLAY, *PYTHON, *JAVA)


def _timed(work: Work) -> bool:
    """Where a latency says something: of a full window it says what the throughput says."""
    return work.kind in (Kind.RATE, Kind.TAIL, Kind.SINGLE, Kind.SEND, Kind.JAVA_SYNC)


def _never_measured(result: Mapping[str, Any]) -> Iterator[str]:
    """Works for which no round had time. How many rounds the others had stands in their rows."""
    measured = {row["name"] for row in result["rows"]}
    for skipped in result["skipped"]:
        works = skipped.partition(": ")[2].split("; ")
        yield from (work for work in works if work not in measured)


def _known(result: Mapping[str, Any]) -> list[tuple[str, float]]:
    return [(key, result["limits"][key]) for key in LIMITS if key in result["limits"]]


def _versions(result: Mapping[str, Any]) -> str:
    return "; ".join(f"{system}: {version}" for system, version in result["versions"].items())


def _bound(row: Mapping[str, Any], bound: str, met: str) -> str:
    if row[bound] is None:
        return NONE
    mark = "met" if row[met] else "NOT met"
    return f"{'<=' if row['at_most'] else '>='} {_number(row[bound])}: {mark}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.2f}"


def line(cells: Sequence[str]) -> str:
    """A row of a table in Markdown."""
    return f"| {' | '.join(cells)} |"
