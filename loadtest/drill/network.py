"""Links between the nodes of a drill: every direction has an address of its own, 127.1.FROM.TO.

A cut then hits exactly one way, whichever of its ports is meant. In a network namespace of the drill's own, packets to
and from that address are dropped by iptables, without a word to either side; elsewhere a proxy of ours sits on it.
"""

import ctypes
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from towline.link.free_port import free_port as free_port

from .errors import DrillImpossible
from .proxy import Proxy, Way

LOOPBACK: Final = "127.0.0.1"
ETCD: Final = 100  # places beside the nodes, which have their ids
CLIENTS: Final = 200
NEW_NETWORK: Final = 0x40000000  # CLONE_NEWNET
_IPTABLES: Final = ("iptables-legacy", "iptables")


def address(source: int, target: int) -> str:
    return f"127.1.{source}.{target}"


class Network:
    """Nothing between the nodes: they cannot be parted."""

    listen = LOOPBACK
    kind = "loopback"
    parts = True  # a cut parts nodes

    def at(self, source: int, target: int) -> str:
        """The host under which `source` reaches `target`."""
        return LOOPBACK

    def open(self, ports: dict[int, Sequence[int]], sources: Sequence[int]) -> None:
        """Before any node starts: place -> its ports, and who may ask."""

    def cut(self, ways: Sequence[tuple[int, int]], *, half: bool = False) -> None:
        """(from, to) pairs go dead in both directions; `half`: requests arrive and answers do not.

        Where the network is a slow one, they become slow instead.
        """
        raise DrillImpossible("partition", "the nodes of this cluster are joined by plain loopback addresses")

    def heal(self) -> None:
        """Every way is open again."""

    def close(self) -> None:
        """Nobody uses it any more."""


class Filtered(Network):
    """A network namespace of this thread and all that it starts; entered with `namespace`."""

    listen = "0.0.0.0"
    kind = "network namespace, iptables"

    def __init__(self) -> None:
        self._command = next(name for name in _IPTABLES if shutil.which(name))

    def at(self, source: int, target: int) -> str:
        return address(source, target)

    def cut(self, ways: Sequence[tuple[int, int]], *, half: bool = False) -> None:
        for source, target in ways:
            self._drop("-s", address(source, target))
            if not half:
                self._drop("-d", address(source, target))

    def _drop(self, side: str, host: str) -> None:
        _run(self._command, "-w", "-A", "INPUT", side, host, "-j", "DROP")

    def heal(self) -> None:
        _run(self._command, "-w", "-F", "INPUT")


class Proxied(Network):
    """Ways through a proxy in a thread of ours, which may also be slow."""

    kind = "proxy"

    def __init__(self, delay_s: float = 0.0) -> None:
        self._delay_s = delay_s
        self.parts = not delay_s
        self._ways: dict[tuple[int, int], list[Way]] = {}
        self._proxy: Proxy | None = None

    def at(self, source: int, target: int) -> str:
        return address(source, target)

    def open(self, ports: dict[int, Sequence[int]], sources: Sequence[int]) -> None:
        for source in sources:
            for target, listening in ports.items():
                here = address(source, target)
                self._ways[source, target] = [Way((here, port), (LOOPBACK, port)) for port in listening]
        self._proxy = Proxy([way for ways in self._ways.values() for way in ways])
        self._proxy.start()

    def cut(self, ways: Sequence[tuple[int, int]], *, half: bool = False) -> None:
        for pair in ways:
            for way in self._ways.get(pair, ()):
                if self._delay_s:
                    way.delay_s = self._delay_s
                else:
                    way.forth, way.back = half, False

    def heal(self) -> None:
        for ways in self._ways.values():
            for way in ways:
                way.forth, way.back, way.delay_s = True, True, 0.0

    def close(self) -> None:
        if self._proxy is not None:
            self._proxy.stop()
            self._proxy = None


def why_no_namespace() -> str:
    """What is missing for a network namespace; "" for nothing."""
    if os.geteuid() != 0:
        return "it needs root"
    if not any(map(shutil.which, _IPTABLES)):
        return "there is no iptables (Debian: iptables)"
    if shutil.which("ip") is None:
        return "there is no ip (Debian: iproute2)"
    probe = ["unshare", "--net", next(name for name in _IPTABLES if shutil.which(name)), "-w", "-L", "-n"]
    try:
        done = subprocess.run(probe, capture_output=True, text=True, check=False)
    except OSError as error:
        return str(error)
    return "" if done.returncode == 0 else done.stderr.strip() or "this kernel has no network namespaces"


@contextmanager
def namespace() -> Iterator[Filtered]:
    """A network of its own that can be cut. Raises DrillImpossible."""
    with own_network():
        yield Filtered()


@contextmanager
def own_network() -> Iterator[None]:
    """This thread, and every process and thread that it starts inside, have a network of their own, loopback alone.

    Raises DrillImpossible.
    """
    library = ctypes.CDLL(None, use_errno=True)
    before = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        if library.unshare(NEW_NETWORK):
            raise DrillImpossible("partition", os.strerror(ctypes.get_errno()))
        try:
            _run("ip", "link", "set", "lo", "up")
            yield
        finally:
            if library.setns(before, NEW_NETWORK):
                raise OSError(ctypes.get_errno(), "the network of before cannot be entered again")
    finally:
        os.close(before)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise DrillImpossible("partition", f"{' '.join(command)}: {done.stderr.strip()}")
