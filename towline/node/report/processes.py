"""The processes of a node: what each does, what it has used, and which of them stand still."""

import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import psutil

from towline.node.process.context import Node
from towline.runtime.positions import Counter, Duty, State

from .times import ms_since

_NS_PER_MS: Final = 1_000_000
STILL_MS: Final = 2_000  # an idle process beats several times a second: an older beat is a long call, or a stop (H9)
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


def processes_of(node: Node, facts: dict[str, Any], *, memory: bool = True) -> list[dict[str, Any]]:
    """The supervisor, its zygote, then every duty that ever ran in this start; also those started by hand.

    Without `memory` it takes a millisecond or two: the memory of each is 0 then.
    """
    kept = facts["processes"].keys()  # what the supervisor restarts; others end in order when they are done
    serves = node.positions.duty(Duty.SUPERVISE).state is State.RUNNING
    found = [_process(node, Duty.SUPERVISE, facts["pid"], kept=True, memory=memory)]
    found.append({"duty": "zygote", "pid": facts["zygote"], "state": "RUNNING"} | _use(node, facts["zygote"], memory))
    for duty in Duty:
        line = node.positions.duty(duty)
        if duty in (Duty.RECOVER, Duty.AGREE) and serves:
            continue  # they have ended in order, as at every start
        if duty is not Duty.SUPERVISE and line.state is not State.ABSENT:
            found.append(_process(node, duty, line.pid, kept=duty.label in kept, memory=memory))
    return found


def _process(node: Node, duty: Duty, pid: int, *, kept: bool, memory: bool) -> dict[str, Any]:
    line = node.positions.duty(duty)
    use = _use(node, pid, memory)
    gone = use["process"] == GONE and (kept or line.state is not State.STOPPED)
    return {
        "duty": duty.label,
        "pid": pid,
        "state": GONE if gone else line.state.name,
        "beat_age_ms": max(0, time.monotonic_ns() - line.beat_ns) // _NS_PER_MS,
        "sleeping": line.sleeping,
        "turn_ms": ms_since(line.turn_began_ns),
        "counters": {counter.name.lower(): line.counter(counter) for counter in Counter},
        "lost": line.lost,
    } | use


def _use(node: Node, pid: int, memory: bool) -> dict[str, Any]:
    pss, uss = memory_of(pid, (node.store.root, node.runtime.root)) if memory else (0, 0)
    try:
        process = psutil.Process(pid)
        with process.oneshot():
            times, status = process.cpu_times(), process.status()
    except psutil.Error:
        return {"pss": pss, "uss": uss, "cpu_s": 0.0, "process": GONE}
    return {"pss": pss, "uss": uss, "cpu_s": round(times.user + times.system, 3), "process": status}


def memory_of(pid: int, excluded: Iterable[Path]) -> tuple[int, int]:
    """(PSS, USS) in bytes of the anonymous and library pages of a process; (0, 0) when it has gone.

    Mappings of files below the `excluded` directories are left out: pages of the store are the kernel's cache, and
    positions are shared.
    """
    prefixes = tuple(f"{directory}/" for directory in excluded)
    try:
        mappings = psutil.Process(pid).memory_maps(grouped=False)
    except psutil.Error:
        return 0, 0
    counted = [mapping for mapping in mappings if not mapping.path.startswith(prefixes)]
    return sum(m.pss for m in counted), sum(m.private_clean + m.private_dirty for m in counted)


def standing_still(processes: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Processes that stand still: duty, pid, state, still_ms (None for the zygote, which has no beat), a sentence."""
    return [
        {
            "duty": process["duty"],
            "pid": process["pid"],
            "state": process["state"],
            "still_ms": still_ms,
            "sentence": sentence,
        }
        for process in processes
        for still_ms, sentence in [_still(process)]
        if sentence
    ]


def _still(process: Mapping[str, Any]) -> tuple[int | None, str]:
    """For how long it has stood still, and a sentence; "" for a process that works or has ended in order."""
    name = f"{process['duty']} (process {process['pid']})"
    stopped = process["process"] in _STOPPED
    if "beat_age_ms" not in process:
        ended = process["process"] in (GONE, psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
        return None, f"{name} {_by_signal(process)}" if stopped else f"{name} is gone" * ended
    still_ms = max(process["beat_age_ms"], process["turn_ms"])
    if process["state"] == State.STOPPED.name or still_ms < STILL_MS:
        return still_ms, ""
    why = _by_signal(process) if stopped else _CALLS[process["state"]]
    return still_ms, f"{name} has done no turn for {still_ms / 1000:.1f} s: {why}"


def _by_signal(process: Mapping[str, Any]) -> str:
    return f"it was stopped by a signal; `kill -CONT {process['pid']}` lets it go on"
