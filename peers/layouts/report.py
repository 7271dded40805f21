"""What people read of a run of `towline bench layouts`: tables, and what they say in sentences."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from peers.report import NONE, Section, line, rate

from .cells import LAYOUTS, SERVERS
from .putting import ASYNC, ONE_LOG, PER_QUEUE, SYNC

NAMES: Final = {
    ONE_LOG: "one log",
    PER_QUEUE: "log per partition",
    "log-per-queue-syncfs": "the same, syncfs",
}
TIMES: Final = "times as good: one log"
LEVEL: Final = 1.1  # times: what is nearer than that is level

Result = Mapping[str, Any]


def _ms(us: float) -> str:
    return f"{us / 1000:.2f}" if us < 10_000 else f"{us / 1000:,.0f}"


def _s(seconds: float) -> str:
    return f"{seconds:.2f}" if seconds < 10 else f"{seconds:,.0f}"


@dataclass(frozen=True, slots=True)
class Topic:
    """A table: a figure of every layout under a policy, by the number of queues. `more`: the greater the better; None:
    nobody wins."""

    title: str
    flush: str
    figure: str
    shown: Callable[[float], str]
    more: bool | None = False


TOPICS: Final = (
    Topic("put, SYNC_FLUSH, messages a second", SYNC, "per_s", rate, more=True),
    Topic("put, SYNC_FLUSH, p99 of a group in ms", SYNC, "p99_us", _ms),
    Topic("syncs of a group, SYNC_FLUSH", SYNC, "syncs_per_group", "{:.1f}".format, more=None),
    Topic("syncs a second, SYNC_FLUSH", SYNC, "syncs_per_s", "{:,.0f}".format, more=None),
    Topic("put, ASYNC_FLUSH, messages a second in a burst", ASYNC, "per_s", rate, more=True),
    Topic("put, ASYNC_FLUSH, p99 of a group in ms under the steady load", ASYNC, "steady_p99_us", _ms),
    Topic("syncs a second, ASYNC_FLUSH, under the steady load", ASYNC, "steady_syncs_per_s", "{:,.1f}".format, None),
    Topic("CPU in us per message, ASYNC_FLUSH, in a burst", ASYNC, "cpu_us", "{:.2f}".format),
    Topic("reading a queue from memory, MB/s of bodies", ASYNC, "read_mb_s", "{:,.0f}".format, more=True),
    Topic("reading a queue from the disk, MB/s of bodies", ASYNC, "read_cold_mb_s", "{:,.0f}".format, more=True),
    Topic("bytes read from the disk for a byte of a body", ASYNC, "read_cold_times", "{:.2f}".format),
    Topic("after kill -9, s until a put may be acknowledged", ASYNC, "recover_s", _s),
    Topic("after kill -9, s until every queue can be read", ASYNC, "whole_s", _s),
    Topic("the same from the disk, s until a put may be acknowledged", ASYNC, "recover_cold_s", _s),
    Topic("the same from the disk, s until every queue can be read", ASYNC, "whole_cold_s", _s),
    Topic("files", ASYNC, "files", "{:,.0f}".format),
    Topic("bytes on the disk for a byte of a body", ASYNC, "disk_per_byte", "{:.2f}".format),
)


def sections(result: Result) -> list[Section]:
    """Every table that has a row."""
    found = [_table(result, topic) for topic in TOPICS]
    found += [
        _walks(result),
        *(_servers(result, flush) for flush in (SYNC, ASYNC)),
        Section(
            "not measured",
            ("what", "why"),
            (*result["absent"].items(), *result["failed"].items(), *((each, "no time") for each in result["skipped"])),
        ),
    ]
    return [section for section in found if section.rows]


def conclusions(result: Result) -> list[str]:
    """A sentence for each table in which one of the two layouts can win, then what queues cost each of them."""
    of = len(result["plan"]["queues"])
    found = [f"{topic.title}: {_verdict(each, of)}." for topic in TOPICS if (each := _advantages(result, topic))]
    return [*found, *_kept(result), *_syncs(result)]


def markdown(result: Result) -> str:
    """What docs/layouts.md quotes: how the run was made, the sentences, the tables."""
    plan, machine = result["plan"], result["machine"]
    lines = [
        f"Measured {result['made'][:10]}: {machine['cpus']} CPUs ({machine['cpu']}), {machine['memory_gb']:.0f} GB, "
        f"load {machine['load']:.1f} before and {machine['load_after']:.1f} at the end; {result['seconds'] / 60:.0f} "
        f"min. Rounds, whose medians these are: {plan['rounds']}, above 1,000 queues {plan['rounds_many']}, of servers "
        f"1. Messages of {plan['body']:,} B in batches of {plan['together']}, {plan['group']} batches in a group; "
        f"bursts of {plan['seconds']:g} s or {plan['count']:,} messages; the steady load has {plan['rate']:,} messages "
        f"a second; the page cache was emptied by {plan['cold']}.",
        "",
        *(f"- {sentence[0].upper()}{sentence[1:]}" for sentence in conclusions(result)),
        "",
    ]
    for section in sections(result):
        heads = [column.removeprefix("#") for column in section.columns]
        marks = ["---:" if column.startswith("#") else "---" for column in section.columns]
        lines += [f"### {section.title[0].upper()}{section.title[1:]}", ""]
        lines += [line(heads), line(marks), *(line(row) for row in section.rows), ""]
    return "\n".join(lines)


def figures(result: Result, flush: str, system: str, figure: str) -> dict[int, float]:
    """By the number of queues."""
    return {
        row["queues"]: row["figures"][figure]
        for row in result["rows"]
        if (row["flush"], row["system"]) == (flush, system) and figure in row["figures"]
    }


def _table(result: Result, topic: Topic) -> Section:
    systems = [system for flush, system in LAYOUTS if flush == topic.flush]
    by_system = {system: figures(result, topic.flush, system, topic.figure) for system in systems}
    better = _advantages(result, topic)
    queues = sorted({each for found in by_system.values() for each in found})
    rows = []
    for each in queues:
        cells = [topic.shown(found[each]) if each in found else NONE for found in by_system.values()]
        last = [f"{better[each]:.2f}" if each in better else NONE] if better else []
        rows.append((f"{each:,}", *cells, *last))
    heads = ("#queues", *(f"#{NAMES[system]}" for system in systems), *([f"#{TIMES}"] if better else []))
    return Section(topic.title, heads, tuple(rows))


def _walks(result: Result) -> Section:
    """The part of a partition's recovery that every broker has, whatever it writes."""
    found = figures(result, ASYNC, PER_QUEUE, "walk_s")
    rows = tuple((f"{queues:,}", _s(seconds)) for queues, seconds in sorted(found.items()))
    title = "after kill -9, s in which every batch of every partition is read and checked, nothing written"
    return Section(title, ("#queues", f"#{NAMES[PER_QUEUE]}"), rows)


def _servers(result: Result, flush: str) -> Section:
    """Whole servers, each with one client of its own."""
    by_system = [
        [figures(result, flush, system, name) for name in ("per_s", "p99_us", "first_ack_s")] for system in SERVERS
    ]
    rows = []
    for each in sorted({queues for per_s, _, _ in by_system for queues in per_s}):
        cells = [
            f"{rate(per_s[each])} / {_ms(us[each])} / {_s(again[each])}" if each in per_s else NONE
            for per_s, us, again in by_system
        ]
        rows.append((f"{each:,}", *cells))
    title = f"servers, {flush}: messages a second / p99 of a message in ms / s from kill -9 to the next acknowledgement"
    return Section(title, ("#queues", *(f"#{system}" for system in SERVERS)), tuple(rows))


def _advantages(result: Result, topic: Topic) -> dict[int, float]:
    """How many times as good one log is as a log per partition, by the number of queues."""
    if topic.more is None:
        return {}
    one, per = (figures(result, topic.flush, system, topic.figure) for system in (ONE_LOG, PER_QUEUE))
    both = sorted(each for each in set(one) & set(per) if one[each] and per[each])
    return {each: one[each] / per[each] if topic.more else per[each] / one[each] for each in both}


def _verdict(advantages: Mapping[int, float], of: int) -> str:
    """`of` numbers of queues were to be measured."""
    ahead = {each: times for each, times in advantages.items() if times >= LEVEL}
    behind = {each: 1 / times for each, times in advantages.items() if times <= 1 / LEVEL}
    level = [each for each in advantages if each not in ahead and each not in behind]
    said = [
        f"**{name}** is ahead {_where(some, of)}, {_span(list(some.values()))}"
        for name, some in (("one log", ahead), ("a log per partition", behind))
        if some
    ]
    said += [f"level {_where(dict.fromkeys(level, 1.0), of)}"] if level else []
    return "; ".join(said)


def _where(some: Mapping[int, float], of: int) -> str:
    if len(some) == of:
        return "at every number of queues"
    *others, last = (f"{each:,}" for each in some)
    return f"at {', '.join(others)}{' and ' if others else ''}{last} queue{'s' if list(some) != [1] else ''}"


def _span(times: Sequence[float]) -> str:
    least, most = f"{min(times):.1f}", f"{max(times):.1f}"
    return f"{most} times" if least == most else f"{least} to {most} times"


def _kept(result: Result) -> Iterator[str]:
    """What is left of the speed with fewest queues at the most that both were measured with."""
    for flush, what in ((SYNC, "puts under SYNC_FLUSH"), (ASYNC, "bursts under ASYNC_FLUSH")):
        one, per = (figures(result, flush, system, "per_s") for system in (ONE_LOG, PER_QUEUE))
        both = sorted(set(one) & set(per))
        if len(both) > 1:
            few, many = both[0], both[-1]
            said = ", ".join(
                f"{NAMES[name]} {found[many] / found[few]:.0%}" for name, found in ((ONE_LOG, one), (PER_QUEUE, per))
            )
            yield f"what {what} keep of their speed at {few:,} with {many:,} queues: {said}."


def _syncs(result: Result) -> Iterator[str]:
    """What a group of puts waits for."""
    found = {system: figures(result, SYNC, system, "syncs_per_group") for system in (ONE_LOG, PER_QUEUE)}
    if all(found.values()):
        said = ", ".join(f"{NAMES[system]} {_counts(list(each.values()))}" for system, each in found.items())
        yield f"syncs that a group of puts waits for under SYNC_FLUSH, from few queues to many: {said}."


def _counts(numbers: Sequence[float]) -> str:
    least, most = f"{min(numbers):.1f}", f"{max(numbers):.1f}"
    return most if least == most else f"{least} to {most}"
