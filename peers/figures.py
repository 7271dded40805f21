"""The figures of single commands, and the six of README: tables drawn from what is kept in loadtest/results.

`figures.json` names the machines; each figure says what was measured, by which command, when it was written down, the
goal if there is one, and on each machine the result and whether the goal is met (null: nothing was asked).
"""

from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any, Final

from .report import NONE, line, rate

COMMAND: Final = "make bench-full"
MARKS: Final = {True: ", met", False: ", **not met**", None: ""}
# Label, work, system, key and form of the figure, key of the ratio to the best peer.
OF_PEERS: Final = (
    ("put 100 B, one client", "put 100 B, 1 client, async", "towline-ring", "per_s", "per_s_of_best"),
    ("put 1 KiB, synced first, four clients", "put 1 KiB, 4 clients, sync", "towline-ring", "per_s", "per_s_of_best"),
    ("put one 1-KiB message at a time", "single 1 KiB, 1 client, async", "towline-ring", "per_s", "per_s_of_best"),
    ("read 100 B from the beginning", "replay 100 B x 1,024,000, 1 client, async", "towline", "per_s", "per_s_of_best"),
    (
        "first acknowledgement after kill -9, 1 GB stored",
        "stored 1 KiB x 1,000,000, 1 client, async",
        "towline",
        "first_ack_s",
        "",
    ),
)


def tables(kept: Mapping[str, Any]) -> str:
    """Every figure, a table for each topic, and the notes that its rows name."""
    names = {machine["id"]: machine["name"] for machine in kept["machines"]}
    lines = [*(f"- **{machine['name']}**: {machine['what']}." for machine in kept["machines"]), ""]
    numbers = {name: number for number, name in enumerate(kept["notes"], 1)}
    heads = ["what", "goal", *names.values(), "written down", "command"]
    for topic, rows in groupby(kept["figures"], key=lambda row: row["topic"]):
        lines += [f"### {topic}", "", line(heads), line(["---"] * len(heads))]
        lines += [line(list(_cells(row, names, numbers))) for row in rows]
        lines.append("")
    lines += [f"{number}. {kept['notes'][name]}" for name, number in numbers.items()]
    return "\n".join([*lines, ""])


def _cells(row: Mapping[str, Any], names: Mapping[str, str], numbers: Mapping[str, int]) -> Iterator[str]:
    notes = ", ".join(str(numbers[name]) for name in row.get("notes", ()))
    yield f"{row['what']} (note {notes})" if notes else row["what"]
    yield row["goal"] or NONE
    for machine in names:
        found = row["results"].get(machine)
        yield f"{found['figure']}{MARKS[found['met']]}" if found else NONE
    yield row["recorded"]
    yield f"`{row['command']}`"


def six(peers: Mapping[str, Any], kept: Mapping[str, Any]) -> str:
    """The table of README."""
    lines = [line(["", "Towline", "of the best peer", "command"]), line(["---"] * 4)]
    works = {row["name"]: row["systems"] for row in peers["rows"]}
    for label, work, system, key, ratio in OF_PEERS:
        found = works[work][system]
        shown = f"{rate(found[key])} msg/s" if key == "per_s" else f"{found[key]:.2f} s"
        best = f"{found[ratio]:.1f} times" if ratio else _best(works[work], key)
        lines.append(line([label, shown, best, f"`{COMMAND}`"]))
    for row in kept["figures"]:
        if "readme" in row:
            (found,) = row["results"].values()
            lines.append(line([row["readme"], found["figure"], NONE, f"`{row['command']}`"]))
    return "\n".join([*lines, ""])


def _best(systems: Mapping[str, Mapping[str, Any]], key: str) -> str:
    """The least of the peers, with its name."""
    value, name = min((found[key], name) for name, found in systems.items() if not name.startswith("towline"))
    return f"{name} {value:.2f} s"
