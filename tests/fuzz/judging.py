"""What became of an input: taken, refused by name, or a defect."""

import time
import traceback
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple

from .target import Broken, Target

ACCEPTED: Final = "accepted"
SLOW_S: Final = 1.0  # of CPU for one input
_QUICK_S: Final = 0.003  # what is quicker has not touched much memory
_KIB: Final = 1024
_STATUS: Final = Path("/proc/self/status")
_CLEAR_PEAK: Final = Path("/proc/self/clear_refs")


class Defect(NamedTuple):
    """`kind` is the same for inputs that fail the same way at the same line; `story` says how, for people."""

    kind: str
    story: str


class Verdict(NamedTuple):
    """`feature`: what kind of input it was, by what the decoder said of it."""

    outcome: str
    feature: object
    defect: Defect | None = None


def judge(target: Target, data: bytes) -> Verdict:
    """Runs the decoder once. What it raises beside its refusals is a defect, whatever it is."""
    try:
        feature = target.run(data)
    except target.refusals as refused:
        name = type(refused).__name__
        return Verdict(name, (name, _line(refused.__traceback__)))
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a library in Rust panics with one that is no Exception
        return _defect(error)
    return Verdict(ACCEPTED, feature)


def judge_within(target: Target, data: bytes) -> Verdict:
    """The same; an input that takes too long, or too much memory, is a defect too: also when it is run once more."""
    began = time.perf_counter()
    verdict = judge(target, data)
    if verdict.defect is not None or (took := time.perf_counter() - began) < _QUICK_S:
        return verdict
    before = _peak_from_here()
    seconds = _cpu_of(lambda: judge(target, data))
    grown = _kib("VmHWM") - before
    if grown > target.memory_mib * _KIB:
        return _broken("memory", f"it took {grown // _KIB} MiB; {target.memory_mib} are allowed")
    if took > SLOW_S and seconds > SLOW_S:  # others may have had the CPU
        return _broken("time", f"it took {seconds:.1f} s of CPU; {SLOW_S:.0f} are allowed")
    return verdict


def _cpu_of(call: Callable[[], object]) -> float:
    began = time.process_time()
    call()
    return time.process_time() - began


def _peak_from_here() -> int:
    """KiB that this process holds; its peak begins anew with them."""
    _CLEAR_PEAK.write_text("5")
    return _kib("VmRSS")


def _kib(name: str) -> int:
    """Not `ru_maxrss`: that begins with what the parent had."""
    lines = _STATUS.read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name))


def _line(trace: TracebackType | None) -> tuple[str, int]:
    """Where it was raised."""
    if trace is None:
        return "", 0
    while trace.tb_next is not None:
        trace = trace.tb_next
    return trace.tb_frame.f_code.co_filename, trace.tb_lineno


def _defect(error: BaseException) -> Verdict:
    name, (file, line) = type(error).__name__, _line(error.__traceback__)
    rule = f" {error}" if isinstance(error, Broken) else ""
    last = "".join(traceback.format_exception(error, limit=-6))
    return Verdict(name, None, Defect(f"{name}{rule} at {file.rpartition('/')[2]}:{line}", last))


def _broken(kind: str, story: str) -> Verdict:
    return Verdict(kind, None, Defect(kind, story))
