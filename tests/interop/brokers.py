"""A whole broker on a directory, asked over loopback as its clients ask it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from tests.processes.nodes import free_port

from .jvm import Jvm, Spec
from .towlines import REAL_SETTINGS

BROKER: Final = "towline.interop.BrokerCommands"
START_S: Final = 60.0


class RealBroker:
    """From `open` to `close`, or to the end of its process. It has no name server."""

    def __init__(self, jvm: Jvm, root: Path, queues: Sequence[tuple[str, int]], **config: object) -> None:
        """`queues` are those that `read` reads."""
        self.jvm, self.root = jvm, root
        self._config = config
        self._queues = sorted(queues)

    def open(self) -> None:
        config = {
            **REAL_SETTINGS,
            "storePathRootDir": str(self.root),
            "storePathCommitLog": str(self.root / "commitlog"),
            "haListenPort": free_port(),
            "listenPort": free_port(),
            "bindAddress": "127.0.0.1",
            "brokerIP1": "127.0.0.1",
            "brokerName": "interop",
            "cleanFileForciblyEnable": False,
            **self._config,
        }
        self.jvm.ask(op="open", config=config)

    def close(self) -> None:
        """A clean end."""
        self.jvm.ask(op="close")
        assert not (self.root / "abort").exists()

    def send(self, specs: Sequence[Spec]) -> None:
        """Each was acknowledged when this returns."""
        self.jvm.stream(specs)

    def read(self) -> list[dict[str, Any]]:
        return self.jvm.listed(self._queues, op="read")[1]

    def query(self, pairs: Sequence[tuple[str, str]]) -> list[list[int]]:
        return self.jvm.listed(pairs, op="query")[1]
