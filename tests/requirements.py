"""What a test needs beside the package. Where it is missing the test is skipped, unless TOWLINE_REQUIRE names it."""

import os
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from enum import Enum, auto
from typing import Final

import pytest

VARIABLE: Final = "TOWLINE_REQUIRE"  # names, separated by commas


class Verdict(Enum):
    RUN = auto()
    SKIP = auto()
    FAIL = auto()


def judge(required: Collection[str], missing: Collection[str]) -> Verdict:
    """`required` are the names that may not be missing here, `missing` those that a test lacks."""
    if not missing:
        return Verdict.RUN
    return Verdict.FAIL if set(required) & set(missing) else Verdict.SKIP


def names_in(variable: str) -> list[str]:
    """The names in the value of TOWLINE_REQUIRE."""
    return [name for part in variable.split(",") if (name := part.strip())]


def need(missing: Mapping[str, str]) -> None:
    """Skips or fails the test that lacks something: names to reasons. Returns when there is none."""
    reason = "; ".join(missing.values())
    match judge(names_in(os.environ.get(VARIABLE, "")), missing):
        case Verdict.SKIP:
            pytest.skip(reason)
        case Verdict.FAIL:
            pytest.fail(f"{reason}, and {VARIABLE} asks for it", pytrace=False)


def told(reasons: Iterable[str]) -> str:
    """The line that names every reason for a skip with its number of tests, the most frequent first."""
    counted = Counter(reason.removeprefix("Skipped: ") for reason in reasons)
    parts = [f"{count} ({reason})" for reason, count in sorted(counted.items(), key=lambda each: (-each[1], each[0]))]
    return f"skipped: {', '.join(parts) or 'nothing'}"
