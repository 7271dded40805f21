"""A client process: starts it, sends it orders and reads its answers. Its code is `client.py`, or a Java program.

One JSON value a line. It reads {"address", "work"}, says "ready" when it is prepared, reads "go", works, and says
what it found: the fields of an Answer, or {"error"}. Then it may read another work; it ends with its input.
"""

import json
import os
import selectors
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Final

from towline.errors import BenchFailed
from towline.parent import die_with_parent
from towline.start import home

from .plan import Work

PREPARE_S: Final = 120.0
MORE_S: Final = 60.0  # beyond the seconds that a work is to take
SLOWEST_PER_S: Final = 25_000  # of works that have a number of messages
END_S: Final = 5.0


class Client:
    """Used as a context manager; at its end the process has gone."""

    def __init__(self, command: Sequence[str]) -> None:
        parent = os.getpid()
        self._name = " ".join(command[-1:])
        self._work: Work | None = None
        # A session of its own keeps the terminal's Ctrl-C for us; the process dies with us all the same.
        self._process = subprocess.Popen(
            command,
            cwd=home(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            preexec_fn=lambda: die_with_parent(parent),
        )
        self._heard = b""

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if error is not None:
            self._process.kill()
        self.end()

    def prepare(self, address: str, work: Work) -> None:
        """Tells it what comes next; it need not be ready yet."""
        self._work = work
        self._tell({"address": address, "work": work.to_json()})

    def await_ready(self) -> None:
        """Raises BenchFailed."""
        said = self._next(PREPARE_S)
        if said != "ready":
            raise BenchFailed(f"{self._name}: {said['error'] if isinstance(said, dict) else said}")

    def go(self) -> None:
        self._tell("go")

    def answer(self) -> dict[str, Any]:
        """Raises BenchFailed with what the client met."""
        assert self._work is not None
        found = self._next(self._work.seconds + self._work.count / SLOWEST_PER_S + MORE_S)
        if not isinstance(found, dict) or "error" in found:
            raise BenchFailed(f"{self._name}: {found['error'] if isinstance(found, dict) else found}")
        return found

    def end(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(BrokenPipeError):  # it has gone, with a line unread
            self._process.stdin.close()
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def _tell(self, value: object) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(value).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise BenchFailed(f"the client {self._name} ended with status {self._process.wait()}") from None

    def _next(self, within_s: float) -> Any:
        """The next line's value. Raises BenchFailed where none comes in time."""
        assert self._process.stdout is not None
        deadline = time.monotonic() + within_s
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._heard:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    raise BenchFailed(f"the client {self._name} says nothing within {within_s:.0f} s")
                data = os.read(self._process.stdout.fileno(), 1 << 16)
                if not data:
                    raise BenchFailed(f"the client {self._name} ended with status {self._process.wait()}")
                self._heard += data
        line, self._heard = self._heard.split(b"\n", 1)
        return json.loads(line)
