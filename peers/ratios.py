"""Medians of the rounds, and the ratio of ours to the best of the peers, round by round."""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any, Final

from .plan import QUANTILES
from .systems import OURS

PERCENTILES: Final = {"p50_us": 0.5, "p99_us": 0.99, "p99_9_us": 0.999, "p99_99_us": 0.9999}
HIGHER: Final = ("per_s",)  # the better; of all others lower is
LOWER: Final = ("p50_us", "p99_us", "p99_9_us", "cpu_us", "first_ack_s", "memory_mb", "disk_per_byte")

Round = Mapping[str, Any]


def summary(found: Mapping[str, Sequence[Round | None]]) -> dict[str, dict[str, Any]]:
    """By system: the median of each figure over its rounds (None: it failed in that one, or there was none), and for
    ours `<figure>_of_best`.

    Such a ratio is taken in each round that all did, against the peer that was best in it, and is the median of those.
    """
    rounds = {
        system: [None if one is None else _with_percentiles(one) for one in each]
        for system, each in found.items()
        if any(each)
    }
    result = {system: _medians([one for one in each if one is not None]) for system, each in rounds.items()}
    for system in set(rounds).intersection(OURS):
        ours, *peers = _together([rounds[system], *(each for other, each in rounds.items() if other not in OURS)])
        for figure in (*HIGHER, *LOWER):
            ratio = _of_best(figure, ours, peers)
            if ratio is not None:
                result[system][f"{figure}_of_best"] = ratio
    return result


def _together(rounds: Sequence[Sequence[Round | None]]) -> list[list[Round]]:
    """Of each of them the rounds that all of them did."""
    whole = [each for each in zip(*rounds, strict=True) if None not in each]
    return [[one for one in each if one is not None] for each in zip(*whole, strict=True)] or [[] for _ in rounds]


def _with_percentiles(one: Round) -> dict[str, Any]:
    quantiles = one.get("quantiles_us") or []
    at = {name: quantiles[QUANTILES.index(share)] for name, share in PERCENTILES.items()} if quantiles else {}
    return {**one, **at}


def _of_best(figure: str, ours: Sequence[Round], peers: Sequence[Sequence[Round]]) -> float | None:
    """None where we or all peers lack the figure."""
    having = [each for each in peers if all(figure in one for one in each)]
    if not ours or not having or not all(figure in one for one in ours):
        return None
    best = max if figure in HIGHER else min
    bests = [best(one[figure] for one in together) for together in zip(*having, strict=True)]
    if not all(bests):
        return None
    return float(median(one[figure] / bar for one, bar in zip(ours, bests, strict=True)))


def _medians(rounds: Sequence[Round]) -> dict[str, Any]:
    """Of every number; of lists place by place, the curve over time is that of the last round."""
    made: dict[str, Any] = {"rounds": [one["per_s"] for one in rounds]}
    for name in rounds[0]:
        values = [one[name] for one in rounds if name in one]
        if name == "by_time":
            made[name] = values[-1]
        elif isinstance(values[0], dict):
            made[name] = {key: median(value.get(key, 0.0) for value in values) for key in values[0]}
        elif isinstance(values[0], list | tuple):
            made[name] = [median(each) for each in zip(*values, strict=True)]
        else:
            made[name] = median(values)
    return made
