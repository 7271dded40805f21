"""What a service manager such as systemd is told of a node: that it serves, what it does, that it lives, that it ends.

Datagrams of lines KEY=VALUE go to the socket that NOTIFY_SOCKET names, as sd_notify(3) has them; without it nothing is
said.
"""

import os
import socket
import time
from collections.abc import MutableMapping
from contextlib import suppress
from typing import Final

NOTIFY_SOCKET, WATCHDOG_USEC, WATCHDOG_PID = "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"
VARIABLES: Final = (NOTIFY_SOCKET, WATCHDOG_USEC, WATCHDOG_PID)
SEND_MAX_S: Final = 1.0  # one whose socket is full does not hold up the node
_SIGNS: Final = 4  # of life, in the time after which the manager acts


class ServiceManager:
    """The one that has started this process, if any."""

    def __init__(self, environment: MutableMapping[str, str]) -> None:
        """Takes what is meant for this process out of its environment: no child of it speaks for the node."""
        name, usec, pid = (environment.pop(variable, "") for variable in VARIABLES)
        self._address = "\0" + name[1:] if name.startswith("@") else name
        watched = bool(name) and usec.isdecimal() and pid in ("", str(os.getpid()))
        self.watchdog_s = int(usec) / 1e6 if watched else 0.0  # it acts when it hears nothing for so long; 0: never
        self._due, self._status = 0.0, ""

    @property
    def pause_s(self) -> float | None:
        """The pause between two signs of life; None where nobody waits for one."""
        return self.watchdog_s / _SIGNS or None

    def ready(self, status: str) -> None:
        """The node serves: the manager waits for signs of life from now on."""
        self._tell("READY=1", f"STATUS={_line(status)}")

    def status(self, text: str) -> None:
        """What the node does, for a person who asks the manager; said where it is not what was said last."""
        if text != self._status:
            self._status = text
            self._tell(f"STATUS={_line(text)}")

    def stopping(self) -> None:
        self._tell("STOPPING=1", "STATUS=stops")

    def alive(self) -> None:
        """A sign of life, if one is due."""
        now = time.monotonic()
        if self.pause_s is not None and now >= self._due:
            self._due = now + self.pause_s
            self._tell("WATCHDOG=1")

    def _tell(self, *lines: str) -> None:
        """A manager that does not listen changes nothing for the node."""
        if not self._address:
            return
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
            sender.settimeout(SEND_MAX_S)
            sender.sendto("\n".join(lines).encode(), self._address)


def _line(text: str) -> str:
    return " ".join(text.split())
