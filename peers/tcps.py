"""Towline's own protocol at the remoting port, over plain TCP: the requests of `towlines`."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from . import towlines
from .plan import Answer, Setup, Work
from .remotings import RemotingNode

NAME: Final = "Towline over TCP"


class TcpNode(RemotingNode):
    """`address` is the remoting port, as the one of put and of serve."""

    def __init__(self, directory: Path, setup: Setup) -> None:
        super().__init__(directory, setup)
        self.address = f"tcp://{self.address} tcp://{self.address}"


def version() -> str:
    return towlines.version()


def start(directory: Path, setup: Setup) -> TcpNode:
    return TcpNode(directory, setup)


def client() -> list[str]:
    return [sys.executable, "-m", "peers.client", "towline-tcp"]


def run(address: str, work: Work, go: Callable[[], None]) -> Answer:
    """In a client process."""
    return towlines.run(address, work, go)


def listen(address: str, work: Work, go: Callable[[], None]) -> npt.NDArray[np.int64]:
    """In a client process."""
    return towlines.listen(address, work, go)
