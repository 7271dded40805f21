"""The thread that writes config files, so that the main thread never waits for a sync."""

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from towline.errors import StoreNotWritable, TowlineError

from .config_file import ConfigFile

Job = tuple[int, ConfigFile, Callable[[], dict[str, Any]]]


def _ignore() -> None:
    return


class Saver:
    """Saves in the order of `submit`. Everything but the thread's own loop is called by one thread at a time.

    `ended` is called by the thread after each job; by then `finished` shows it.
    """

    def __init__(self, name: str, ended: Callable[[], object] = _ignore) -> None:
        self._name, self._ended = name, ended
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._done: SimpleQueue[tuple[int, TowlineError | None]] = SimpleQueue()
        self._last = 0
        self._thread: threading.Thread | None = None

    def submit(self, file: ConfigFile, content: Callable[[], dict[str, Any]]) -> int:
        """Queues a save; its number. `content` is called by the thread: what it returns must not change any more."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        self._last += 1
        self._jobs.put((self._last, file, content))
        return self._last

    def finished(self) -> list[tuple[int, TowlineError | None]]:
        """Jobs that ended since the last call, each with what went wrong."""
        found = []
        while not self._done.empty():
            found.append(self._done.get())
        return found

    def close(self) -> None:
        """Waits for what was submitted."""
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            number, file, content = job
            self._done.put((number, _save(file, content)))
            self._ended()


def _save(file: ConfigFile, content: Callable[[], dict[str, Any]]) -> TowlineError | None:
    try:
        file.save(content())
    except TowlineError as error:
        return error
    except Exception as error:  # of a rename, or of a content; the thread has to go on, others are saved by it
        reason = error.strerror if isinstance(error, OSError) else None
        return StoreNotWritable(str(file.path), reason or str(error) or repr(error))
    return None
