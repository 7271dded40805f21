"""The systems that are compared, by the name that the command knows."""

import sys
from pathlib import Path
from typing import Final, Protocol, cast

from . import java_peer, kafka, nats, redis, remotings, rings, rocketmq, tcps, towlines
from .plan import JAVA as BY_JAVA
from .plan import PYTHON, Setup, Work


class Server(Protocol):
    """A running server, and all that it wrote below its directory."""

    @property
    def address(self) -> str:
        """What its clients get."""

    def pids(self) -> list[int]:
        """All its processes."""

    def front_pids(self) -> list[int]:
        """Those that hold the connections of clients."""

    def await_segments(self) -> None:
        """Until it has made what it makes ahead of what is put."""

    def await_dispatched(self) -> None:
        """Until it has done what it owes for all that was put: nothing, for those who owe nothing."""

    def disk_bytes(self) -> int:
        """What it stored takes on the disk; files that are made ahead count as far as they are written."""

    def kill(self) -> None:
        """SIGKILL to all its processes; returns when they have gone."""

    def again(self) -> None:
        """Starts it on what it stored, at the same address; returns before it listens."""

    def end(self) -> None:
        """Ends it and removes all it wrote."""


class System(Protocol):
    """`client` is the command of a client process; see `client.py` for what is said to it."""

    NAME: str

    def version(self) -> str:
        """Raises Missing where it is not installed."""

    def start(self, directory: Path, setup: Setup) -> Server:
        """Raises Missing where it has no such setup."""

    def client(self) -> list[str]: ...


OURS: Final = ("towline", "towline-ring", "towline-tcp", "towline-remoting")  # the others are the peers
PYTHONS: Final = ("towline", "kafka", "nats", "redis")  # with a client for Python code
JAVA: Final = ("rocketmq", "kafka")  # servers and clients that have to be warm
SYSTEMS: Final = cast(
    dict[str, System],
    {
        "towline": towlines,
        "towline-ring": rings,
        "towline-tcp": tcps,
        "towline-remoting": remotings,
        "rocketmq": rocketmq,
        "kafka": kafka,
        "nats": nats,
        "redis": redis,
    },
)


def client_of(system: str, work: Work) -> list[str]:
    """The command of a client process for this work."""
    if work.kind in PYTHON:
        return [sys.executable, "-m", "peers.client", f"{system}-python"]
    if work.kind in BY_JAVA:
        return java_peer.client(rocketmq.SYSTEM)
    return SYSTEMS[system].client()
