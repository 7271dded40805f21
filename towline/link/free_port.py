"""A TCP port for a server of a test, a demo or a benchmark."""

import random
import socket
from pathlib import Path
from typing import Final

_RANGE: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOWEST: Final = 10_000
_TRIES: Final = 1_000
_CHANCE: Final = random.SystemRandom()  # not of a seed that others have too


def free_port(host: str = "127.0.0.1") -> int:
    """A port of this host that nobody listens on now.

    It lies below those that the system gives to whoever connects: a client that tries again and again to reach a server
    that is away is given the server's own port in the end, is connected to itself, and nobody can listen there.
    """
    highest = int(_RANGE.read_text().split()[0]) if _RANGE.exists() else 32_768
    for _ in range(_TRIES):
        with socket.socket() as probe:
            try:
                probe.bind((host, _CHANCE.randrange(_LOWEST, highest) if highest > _LOWEST else 0))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise OSError(f"no port below {highest} is free on {host}")
