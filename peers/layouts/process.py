"""`python -m peers.layouts.process ORDER`: one step of a cell, in a process of its own; its figures are one JSON line.

A process of `put` that is to go on appends until it is killed; `after` is what follows the kill.
"""

import gc
import json
import os
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from towline.errors import BenchFailed, TowlineError

from .load import Load
from .putting import ONE_LOG, Put, layout_of
from .reading import PartitionReader, QueueReader
from .recovering import recover_one_log, recover_partitions, walk_partitions

READ_QUEUES: Final = 8  # at most, spread over all
_DROP_ALL: Final = Path("/proc/sys/vm/drop_caches")
_READ: Final = "read_bytes: "

Figures = dict[str, float]


def put(order: dict[str, Any]) -> None:
    """Makes the store and puts into it."""
    directory, load = Path(order["directory"]), Load(**order["load"])
    process = Put(layout_of(order["layout"], directory / "store", load), load, order["flush"])
    found = process.burst(order["count"], order["seconds"])
    rate = order["rate"]
    if rate:
        found |= {f"steady_{name}": value for name, value in process.steady(rate, order["steady_s"]).items()}
    _say(found | {"stored": process.messages})
    if rate:
        process.go_on(rate, directory / "acknowledged")


def after(order: dict[str, Any]) -> None:
    """Recovery and reads, with what the kill left in the page cache, then without. Raises BenchFailed."""
    directory, load = Path(order["directory"]), Load(**order["load"])
    acknowledged = int.from_bytes((directory / "acknowledged").read_bytes(), "little")
    store, one_log = directory / "store", order["layout"] == ONE_LOG
    found: Figures = {"acknowledged": acknowledged}
    for name, cold in (("", False), ("_cold", True)):
        if cold:
            drop(store, everything=order["drop_caches"])
        found |= recovered(store, load, name, acknowledged, one_log=one_log)
        if not one_log and not cold:
            found["walk_s"], _ = _timed(lambda: walk_partitions(store))
        if cold:
            drop(store, everything=order["drop_caches"])
        found |= _read(store, load, name, one_log=one_log, cold=cold)
    _say(found)


def drop(root: Path, *, everything: bool) -> None:
    """What is below it leaves the page cache; with `everything` all that the machine has there, names and inodes too.

    Raises OSError where this process may not empty it.
    """
    gc.collect()  # pages that are still mapped stay where they are, and so do those that are not written yet
    for path in root.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)
    if everything:
        _DROP_ALL.write_text("3")


def recovered(store: Path, load: Load, name: str, acknowledged: int, *, one_log: bool) -> Figures:
    """By the layout's own recovery. Raises BenchFailed where a message that was acknowledged is not there."""
    began = time.perf_counter()
    if one_log:
        first_s, messages = recover_one_log(store, load.segment)
    else:
        messages = recover_partitions(store)
        first_s = time.perf_counter() - began
    whole_s = time.perf_counter() - began
    if messages < acknowledged:
        raise BenchFailed(f"{acknowledged} messages were acknowledged, {messages} are there after the kill")
    return {f"recover{name}_s": first_s, f"whole{name}_s": whole_s, "recovered": messages}


def _read(store: Path, load: Load, name: str, *, one_log: bool, cold: bool) -> Figures:
    """Of some queues, each from its beginning to its end."""
    reader = QueueReader(store, load, cold=cold) if one_log else PartitionReader(store)
    queues = range(0, load.queues, -(-load.queues // READ_QUEUES))
    if not cold:
        reader.read(queues[0])  # kernels and pages of code are there
    before = _read_bytes()
    seconds, messages = _timed(lambda: sum(reader.read(queue) for queue in queues))
    reader.close()
    found = {f"read{name}_per_s": messages / seconds, f"read{name}_mb_s": messages * load.body / seconds / 1e6}
    if cold:
        found["read_cold_times"] = (_read_bytes() - before) / (messages * load.body)
    return found


def _timed(work: Callable[[], int]) -> tuple[float, int]:
    began = time.perf_counter()
    found = work()
    return time.perf_counter() - began, found


def _read_bytes() -> int:
    """That this process had the disk read."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return next(int(line.removeprefix(_READ)) for line in lines if line.startswith(_READ))


def _say(value: object) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


def main() -> None:
    order = json.loads(sys.argv[1])
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    try:
        (put if order["step"] == "put" else after)(order)
    except (TowlineError, OSError) as error:
        _say({"error": f"{type(error).__name__}: {error}"})


if __name__ == "__main__":
    main()
