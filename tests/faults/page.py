"""`docs/faults.md`: the fault matrix with what a recorded run counted."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from .plan import ROOT, WANTED, Row
from .results import WHOLE, Outcome, outcomes_of, reached

PAGE: Final = ROOT / "docs/faults.md"
SEEDS_MAX: Final = 3
HEAD: Final = """# Faults

What is done to Towline on purpose, and what came of it. `make faults` does it to real processes, under loads that are
checked message by message, and where a row is about files alone (F8, most of F18 to F21) to stores; it keeps the counts
in `loadtest/results/faults.json`, and writes this page from that file.

    python -m tests.faults --short            # each row, few repetitions: some twenty minutes
    python -m tests.faults --rows F1,F7       # these rows alone
    python -m tests.faults --minutes 30       # begins no further row after so many
    python -m tests.faults --record           # and writes the result file and this page

A run that was broken off goes on where it was: rows that passed are not run again, unless `--fresh` is given, also
where they passed at an earlier commit; so the page names the commits of all rows. Tests and drills note their own
counts; a case that notes nothing counts as one fault. The load and the checks are those of the tests that are named
below. A start that is refused fails its row, unless the test asks for that refusal and looks at its cause and remedy.

- **injected**: faults, in the unit that the row counts. **acknowledged**: messages that were promised meanwhile, by
  tests that count them. **lost**: of these. In brackets: gone within what the settings allow, as ASYNC_FLUSH with the
  power.
- **doubled**: second copies of messages whose answer a fault swallowed.
- **wrong bytes**: bodies in logs or handed out that are not what was sent, by tests that compare them.
- **outage**: seconds; the longest time between two acknowledgements of a drill, or until a start or a process served.
- "-": nobody counts it there. A row that this machine cannot run, wholly or in part, says so and is no success.

Which promise each row holds up stands in [promises](promises.md); drills have [a page](drills.md) of their own.
"""


def page(document: Mapping[str, Any], rows: Sequence[Row]) -> str:
    """Of a result file."""
    return "".join(line + "\n" for line in _lines(document, rows))


def _lines(document: Mapping[str, Any], rows: Sequence[Row]) -> Iterator[str]:
    outcomes = outcomes_of(document)
    yield HEAD
    yield "## The recorded run\n"
    yield _summary(document, rows, outcomes) + "\n"
    yield "| counted | wanted in a whole run | reached |\n|---|---|---|"
    for counts, number in reached(rows, outcomes).items():
        yield f"| {counts} | {WANTED[counts]:,} | {number:,} |"
    for what, number, wanted in _sums(outcomes):
        yield f"| {what} | {wanted} | {number} |"
    yield "\n| row | fault | injected | acknowledged | lost | doubled | wrong bytes | outage | seed | result |"
    yield "|---|---|---|---|---|---|---|---|---|---|"
    yield from (_row(row, outcomes.get(row.name)) for row in rows)
    yield "\n## What does each\n"
    yield "| row | how | test or drill | not injected |\n|---|---|---|---|"
    for row in rows:
        names = "<br>".join(f"`{name}`" for name in dict.fromkeys(step.name for step in row.steps)) or "none"
        yield f"| {row.name} | {row.how} | {names} | {row.lacks or '-'} |"
    yield from _troubles(rows, outcomes)


def _summary(document: Mapping[str, Any], rows: Sequence[Row], outcomes: Mapping[str, Outcome]) -> str:
    machine, form = document["machine"], _form(outcomes)
    passed = sum(outcome.verdict == "passed" for outcome in outcomes.values())
    times = sorted(outcome.at for outcome in outcomes.values()) or ["never"]
    loads = [outcome.load for outcome in outcomes.values()] or [0.0]
    minutes = sum(outcome.seconds for outcome in outcomes.values()) / 60
    where = f"{machine.get('cpus', '?')} CPUs ({machine.get('cpu', '?')}), {machine.get('memory_gb', '?')} GB"
    return (
        f"{form}. {passed} of {len(rows)} rows passed{_commits(outcomes)}; {minutes:.0f} minutes of rows, which "
        f"began between {times[0]} and {times[-1]}, on "
        f"{where}, Linux {machine.get('kernel', '?')}, with a load of {min(loads):.1f} to {max(loads):.1f} at the rows'"
        " beginnings."
    )


def _form(outcomes: Mapping[str, Outcome]) -> str:
    whole = [name for name, outcome in outcomes.items() if outcome.form == WHOLE]
    if len(whole) == len(outcomes):
        return "A whole run"
    if not whole:
        return "A short run: it shows that each row runs, and is no whole run"
    return f"Of a whole run: {', '.join(whole)}; the other rows are of a short one, which shows that each runs"


def _commits(outcomes: Mapping[str, Outcome]) -> str:
    """Of which the rows are; rows of older files do not say."""
    found = list(dict.fromkeys(outcome.commit for outcome in outcomes.values() if outcome.commit))
    if not found:
        return ""
    unknown = sum(not outcome.commit for outcome in outcomes.values())
    untold = f", {unknown} do not say of which" if unknown else ""
    return f" (of {'commit' if len(found) == 1 else 'commits'} {', '.join(found)}{untold})"


def _sums(outcomes: Mapping[str, Outcome]) -> Iterator[tuple[str, str, str]]:
    for what, name in (("acknowledged messages lost", "lost"), ("wrong bytes handed out", "wrong_bytes")):
        found = [getattr(outcome, name) for outcome in outcomes.values()]
        yield what, f"{sum(count or 0 for count in found):,}", "0"
    yield "tests and drills that failed", f"{sum(len(outcome.failed) for outcome in outcomes.values()):,}", "0"


def _row(row: Row, outcome: Outcome | None) -> str:
    if outcome is None:
        cells = ["-"] * 7 + ["**not run**: not part of this run, or its time was over"]
        return f"| {row.name} | {row.what} | {' | '.join(cells)} |"
    given_up = f" ({outcome.given_up:,})" if outcome.given_up else ""
    seeds = [str(seed) for seed in outcome.seeds]
    shown = ", ".join(seeds[:SEEDS_MAX]) + (f" and {len(seeds) - SEEDS_MAX} more" if len(seeds) > SEEDS_MAX else "")
    result = outcome.verdict if outcome.verdict == "passed" else f"**{outcome.verdict}**: see below"
    result += "" if outcome.form == WHOLE else " (short)"
    cells = [
        f"{outcome.injected:,} {row.counts}" if outcome.injected else "-",
        _count(outcome.acknowledged),
        _count(outcome.lost) + given_up,
        _count(outcome.doubled),
        _count(outcome.wrong_bytes),
        "-" if outcome.outage_s is None else f"{outcome.outage_s:.2f}",
        shown or "-",
        result,
    ]
    return f"| {row.name} | {row.what} | {' | '.join(cells)} |"


def _count(number: int | None) -> str:
    return "-" if number is None else f"{number:,}"


def _troubles(rows: Sequence[Row], outcomes: Mapping[str, Outcome]) -> Iterator[str]:
    """What failed and what could not run, by name."""
    told = [
        f"- {row.name}, {what}: {_plain(sentence)}"
        for row in rows
        if (outcome := outcomes.get(row.name)) is not None
        for what, sentences in (("failed", outcome.failed), ("not run", outcome.missing))
        for sentence in sentences
    ]
    if told:
        yield "\n## What failed or was not run\n"
        yield from told


def _plain(sentence: str) -> str:
    """Of a machine's own paths nothing, and nothing that is Markdown."""
    return "`" + " ".join(sentence.replace("`", "'").replace(f"{ROOT}/", "").split()) + "`"
