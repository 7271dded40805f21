"""The checks of `towline doctor`. Nothing is changed but a file of a few MiB, which is removed again."""

import ctypes
import os
import platform
import resource
import shutil
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from towline.limits import GIB, MIB
from towline.node.process.worker import holder_of
from towline.runtime.settings import read_settings

from .output import FAILED, add_row, show, sized, table

FILES: Final = 65_536  # as the units of `towline cluster units` have it
MAPS: Final = 65_530  # the system's default: a segment, a queue file and an index file are one each
SYNCS: Final = 32
WRITTEN: Final = 64 * MIB
NEEDED: Final = 4 * GIB  # three segments of 1 GiB are made ahead of the writer, and index files
FAST_US: Final = 20.0  # no disk is asked and answers in less
SLOW_US: Final = 20_000.0
_TIME_ERROR: Final = 5  # of adjtimex: the clock is not synchronized
_PORTS: Final = (
    "listen_port",
    "fast_listen_port",
    "name_server_port",
    "ha_listen_port",
)


class State(StrEnum):
    OK = "ok"
    WARN = "warning"
    WRONG = "wrong"


@dataclass(frozen=True, slots=True)
class Check:
    """What was looked at and found. `remedy` is "" where nothing is to be done."""

    name: str
    state: State
    found: str
    remedy: str = ""


def examine(store: Path, as_json: bool) -> int:
    """Shows every check; the exit status."""
    checks = checks_of(store)

    def render(console: Console) -> None:
        made = table("", "what", "found", "what to do")
        for check in checks:
            add_row(made, "" if check.state is State.OK else check.state, check.name, check.found, check.remedy)
        console.print(made)

    show({"checks": [asdict(check) for check in checks]}, as_json, render)
    return FAILED if any(check.state is State.WRONG for check in checks) else 0


def checks_of(store: Path) -> list[Check]:
    return [*looks_at(store), *_speed(_place_of(store)), *_ports()]


def looks_at(store: Path) -> list[Check]:
    """Those that write nothing and take no port: a node that runs, or a disk that is nearly full, is not burdened."""
    return [*_machine(), *_limits(), *_memory(), _room(_place_of(store)), _clock(), _java()]


def has_room(store: Path) -> bool:
    """Whether the disk has what a node reserves."""
    return shutil.disk_usage(_place_of(store)).free >= NEEDED


def _place_of(store: Path) -> Path:
    """The store, or the nearest directory above it that is there."""
    return next(each for each in (store.resolve(), *store.resolve().parents) if each.is_dir())


def _machine() -> Iterator[Check]:
    system = f"{platform.system()} {platform.release()} on {platform.machine()}"
    fits = sys.platform == "linux" and platform.machine() == "x86_64"
    yield Check("system", State.OK if fits else State.WRONG, system, "" if fits else "run nodes on Linux on x86-64")
    cpus = len(os.sched_getaffinity(0))
    few = cpus < 2
    remedy = "give it two: processes that wait for each other take turns on one" if few else ""
    yield Check("CPUs", State.WARN if few else State.OK, str(cpus), remedy)


def _limits() -> Iterator[Check]:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    few = hard != resource.RLIM_INFINITY and hard < FILES
    remedy = (
        f"set LimitNOFILE={FILES} in the unit, or `* hard nofile {FILES}` in /etc/security/limits.conf" if few else ""
    )
    found = "unlimited" if hard == resource.RLIM_INFINITY else f"{hard:,}"
    yield Check("open files (ulimit -Hn)", State.WARN if few else State.OK, found, remedy)
    maps = _number(Path("/proc/sys/vm/max_map_count"))
    if maps is not None:
        few = maps < MAPS
        remedy = "sysctl -w vm.max_map_count=262144, and the same in /etc/sysctl.d" if few else ""
        yield Check("maps of a process", State.WARN if few else State.OK, f"{maps:,}", remedy)


def _memory() -> Iterator[Check]:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    few = total < 2 * GIB
    remedy = "2 GiB and more keep what is read soon after it was written in memory" if few else ""
    yield Check("memory", State.WARN if few else State.OK, sized(total), remedy)
    shared = shutil.disk_usage("/dev/shm").free if Path("/dev/shm").is_dir() else 0
    little = shared < 64 * MIB
    remedy = "make /dev/shm larger (of a container: --shm-size=1g): positions and rings lie there" if little else ""
    yield Check("shared memory", State.WRONG if little else State.OK, f"{sized(shared)} free", remedy)
    pages = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    if pages.exists():
        chosen = pages.read_text().partition("[")[2].partition("]")[0]
        never = chosen == "never"
        remedy = f"echo madvise > {pages}: large pages under the log save page faults" if never else ""
        yield Check("large pages", State.WARN if never else State.OK, chosen, remedy)
    swappiness = _number(Path("/proc/sys/vm/swappiness"))
    if swappiness is not None:
        much = swappiness > 60
        remedy = "sysctl -w vm.swappiness=10: the log's pages are worth more than unused memory" if much else ""
        yield Check("swappiness", State.WARN if much else State.OK, str(swappiness), remedy)


def _room(where: Path) -> Check:
    free = shutil.disk_usage(where).free
    little = free < NEEDED
    remedy = (
        "a node with settings as they are reserves 4 GiB: free some, or set mapped_file_size_commit_log"
        if little
        else ""
    )
    return Check(f"disk of {where}", State.WARN if little else State.OK, f"{sized(free)} free", remedy)


def _speed(where: Path) -> Iterator[Check]:
    try:
        speed, sync_us = _measure(where)
    except OSError as error:
        remedy = "name a directory that this user may write to by --store"
        yield Check("speed of the disk", State.WRONG, error.strerror or str(error), remedy)
        return
    yield Check("speed of the disk", State.OK, f"{sized(speed)} a second, written and synced")
    state, remedy = State.OK, ""
    if sync_us < FAST_US:
        state = State.WARN
        remedy = "no disk answers so soon: a sync keeps nothing here (tmpfs, or a machine that passes syncs by)"
    elif sync_us > SLOW_US:
        state, remedy = State.WARN, "SYNC_FLUSH waits so long for each group of puts: use a faster disk"
    yield Check("one sync of 1 KiB", state, f"{sync_us:,.0f} us", remedy)


def _measure(where: Path) -> tuple[float, float]:
    """Bytes a second of one long write, and us of a sync in the middle of many. Raises OSError."""
    with tempfile.TemporaryFile(dir=where, buffering=0) as file:
        block = os.urandom(MIB)
        began = time.perf_counter()
        for _ in range(WRITTEN // MIB):
            file.write(block)
        os.fdatasync(file.fileno())
        speed = WRITTEN / (time.perf_counter() - began)
        took = []
        for _ in range(SYNCS):
            began = time.perf_counter()
            file.write(block[:1024])
            os.fdatasync(file.fileno())
            took.append(time.perf_counter() - began)
        return speed, statistics.median(took) * 1e6


def _clock() -> Check:
    """By what adjtimex says; a container may not ask."""
    library = ctypes.CDLL(None, use_errno=True)
    state = library.adjtimex(ctypes.create_string_buffer(512))
    if state == _TIME_ERROR:
        remedy = "run chrony or systemd-timesyncd: delays, retention and leases go by the clock"
        return Check("clock", State.WARN, "not synchronized", remedy)
    return Check("clock", State.OK, "synchronized" if state >= 0 else "cannot be asked")


def _ports() -> Iterator[Check]:
    """The ports of a node with settings as they are."""
    settings: Any = read_settings(None, {}, os.environ)
    for key in _PORTS:
        port = getattr(settings, key)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((settings.listen_host, port))
                yield Check(f"{key} {port}", State.OK, "free")
            except OSError as error:
                holder = holder_of(port) or error.strerror or str(error)
                remedy = "another node, or a broker, may have it: set another one for a second node"
                yield Check(f"{key} {port}", State.WARN, f"taken: {holder}", remedy)


def _java() -> Check:
    found = shutil.which("java")
    remedy = "install Java 17 where Spark is to run; a node does without it"
    return Check("Java, for Spark", State.OK, found or "none", "" if found else remedy)


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None
