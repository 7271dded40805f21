"""Handles Ctrl-C for commands that have processes and directories to clean up.

The first SIGINT, SIGTERM or SIGHUP raises KeyboardInterrupt, but never between the start of something and the note that
it has to be ended: there it waits. Once raised, further ones are ignored, so that cleaning up is not broken off.
After it the command ends with the status that a shell gives to that signal.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any, Final

from towline.start import BY_SIGNAL

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """Used as a context manager by the main thread; at its end the handlers of before are back."""

    def __init__(self) -> None:
        self._held = False
        self._pending = False
        self._raised = False
        self._came = 0  # the first signal
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "Interrupts":
        self._before = {number: signal.signal(number, self._note) for number in _SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if isinstance(error, KeyboardInterrupt) and self._came not in (0, signal.SIGINT):
            raise SystemExit(BY_SIGNAL + self._came) from None

    @contextmanager
    def held(self) -> Iterator[None]:
        """Inside, nothing is raised; what came meanwhile is raised at the end."""
        self._held = True
        try:
            yield
        finally:
            self._held = False
        if self._pending:
            self._raise()

    def ignore(self) -> None:
        """From here on only cleaning up is left."""
        self._raised = True

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._came = self._came or number
        if self._held:
            self._pending = True
        else:
            self._raise()

    def _raise(self) -> None:
        if not self._raised:
            self._raised = True
            raise KeyboardInterrupt
