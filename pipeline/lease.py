"""Who may write below a prefix of an object store, where nothing can be locked.

A run puts an object of its own and renews it; another run that finds it renewed within STALE_S, by the store's clock,
does not begin. Whoever could not renew for half of that publishes nothing more, so two never do. It needs a store that
lists what was put before (S3 since December 2020, GCS, Azure and HDFS do).
"""

import json
import os
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Final, Self

from towline.clock import boot_id, boottime_s
from towline.errors import TowlineError

from .errors import LocationTaken
from .objects import Prefix

STALE_S: Final = 120.0
RENEW_S: Final = 20.0


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose lease it is. `machine`: of which boot, and which processes it sees; `began`: ticks since the boot."""

    host: str
    machine: str
    pid: int
    began: int

    @classmethod
    def of(cls, content: bytes) -> Self:
        """Nobody known where it says nothing of that."""
        try:
            return cls(**json.loads(content))
        except (ValueError, TypeError):
            return cls("a host that it does not say", "", 0, 0)

    def is_dead(self) -> bool:
        """For certain: its process is looked for on this machine."""
        if not self.machine or self.machine != _machine():
            return False
        return _began(self.pid) != self.began


def _began(pid: int) -> int:
    """When a process of this machine began; 0 where there is none. Field 22 of proc_pid_stat(5); 2 may hold spaces."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[19])
    except (FileNotFoundError, ProcessLookupError):
        return 0


def _machine() -> str:
    """An empty text where that cannot be told."""
    try:
        return f"{boot_id()} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


class Lease:
    NAME: Final = ".lease-"

    def __init__(self, prefix: Prefix) -> None:
        """Raises LocationTaken, LocationFailed."""
        self._prefix, self._name = prefix, f"{self.NAME}{uuid.uuid4().hex}"
        self._owner = Owner(os.uname().nodename, _machine(), os.getpid(), _began(os.getpid()))
        self._ended, self._lost = threading.Event(), False
        self._renewed_s = boottime_s()
        self._renew()
        try:
            self._look_at_others()
        except BaseException:
            prefix.remove(self._name)
            raise
        self._thread = threading.Thread(target=self._go_on, name="lease", daemon=True)
        self._thread.start()

    @classmethod
    @contextmanager
    def held(cls, prefix: Prefix) -> Iterator["Lease"]:
        lease = cls(prefix)
        try:
            yield lease
        finally:
            lease._ended.set()
            lease._thread.join()
            prefix.remove(lease._name)

    def stands(self) -> bool:
        """Whether nobody else can have taken it: it was renewed lately, and is there."""
        return not self._lost and not self._is_late() and self._prefix.is_there(self._name)

    def _is_late(self) -> bool:
        return boottime_s() - self._renewed_s >= STALE_S / 2

    def _renew(self) -> None:
        """What comes too late counts no more, though it is written: another run may have removed the object before."""
        at_s = boottime_s()  # before the store saw it
        self._prefix.write(self._name, json.dumps(asdict(self._owner)).encode())
        self._lost = self._lost or self._is_late()
        self._renewed_s = at_s

    def _go_on(self) -> None:
        while not self._ended.wait(RENEW_S):
            try:
                if not self._prefix.is_there(self._name):
                    return  # another run took it for dead
                self._renew()
            except TowlineError:
                continue  # `stands` says so in the end

    def _look_at_others(self) -> None:
        """Removes those whose owner has gone."""
        found = {
            name: facts.mtime for name, facts in self._prefix.infos("", recursive=False) if name.startswith(self.NAME)
        }
        now = found.pop(self._name, None)
        for name, renewed in found.items():
            content = self._prefix.read(name)
            if content is None:
                continue
            owner = Owner.of(content)
            if not (_is_stale(renewed, now) or owner.is_dead()):
                raise LocationTaken(self._prefix.text, owner.host, owner.pid, int(STALE_S))
            self._prefix.remove(name)


def _is_stale(renewed: datetime | None, now: datetime | None) -> bool:
    """A store that does not say when keeps it for ever."""
    return renewed is not None and now is not None and (now - renewed).total_seconds() > STALE_S
