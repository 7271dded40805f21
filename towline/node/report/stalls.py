"""Processes of a node that stand still: which, for how long, in which call (H9).

Who has nothing to do beats too, several times a second. So a beat of more than STILL_MS is no rest: the process is in a
call that takes long, which its state names, or it was stopped, or it is gone.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import psutil

from towline.runtime.positions import State

STILL_MS: Final = 2_000
GONE: Final = "GONE"
_CALLS: Final = {
    State.STARTING.name: "it is starting",
    State.RUNNING.name: "in a turn of its work",
    State.SYNCING.name: "in a sync of the disk",
    State.KERNEL.name: "in an append or another long call",
    State.RECOVERING.name: "it recovers the store",
    State.STOPPING.name: "it is stopping",
    GONE: "it is gone, and not started again yet",
}
_STOPPED: Final = (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)


def standing_still(pieces: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Of the pieces of a status: duty, pid, state, still_ms (None of the zygote, which has no beat) and a sentence."""
    return [
        {"duty": piece["duty"], "pid": piece["pid"], "state": piece["state"], "still_ms": still_ms, "sentence": told}
        for piece in pieces
        for still_ms, told in [_still(piece)]
        if told
    ]


def _still(piece: Mapping[str, Any]) -> tuple[int | None, str]:
    """For how long, and what is said of it: nothing of one that moves, or has ended in order."""
    name = f"{piece['duty']} (process {piece['pid']})"
    stopped = piece["process"] in _STOPPED
    if "beat_age_ms" not in piece:
        ended = piece["process"] in (GONE, psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
        return None, f"{name} {_by_signal(piece)}" if stopped else f"{name} is gone" * ended
    still_ms = max(piece["beat_age_ms"], piece["turn_ms"])
    if piece["state"] == State.STOPPED.name or still_ms < STILL_MS:
        return still_ms, ""
    why = _by_signal(piece) if stopped else _CALLS[piece["state"]]
    return still_ms, f"{name} has done no turn for {still_ms / 1000:.1f} s: {why}"


def _by_signal(piece: Mapping[str, Any]) -> str:
    return f"it was stopped by a signal; `kill -CONT {piece['pid']}` lets it go on"
