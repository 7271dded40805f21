"""The files of a master's groups, and the thread that writes them: a sync of the disk must not stop anybody's pull."""

import logging
import threading
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final, TypeVar

from towline.errors import MalformedFile, StoreNotWritable, TowlineError
from towline.log.config_file import ConfigFile, read_config

OFFSETS: Final = "consumerOffset.json"
GROUPS: Final = "subscriptionGroup.json"
FILTERS: Final = "consumerFilter.json"

Content = TypeVar("Content")
Job = tuple[int, ConfigFile, Callable[[], dict[str, Any]]]


def load(file: ConfigFile, read: Callable[[dict[str, Any], str], Content], log: logging.Logger) -> Content | None:
    """What the file holds, else its generation before, which is logged; None if there is neither.

    Raises MalformedFile when something is there and none of it can be read.
    """
    problem = None
    for path in (file.path, file.backup):
        try:
            found = _read(path, read)
        except MalformedFile as error:
            problem = problem or error
            continue
        if found is not None:
            if path is file.backup:
                log.warning("%s is used: %s", path, problem.describe() if problem else f"there is no {file.path.name}")
            return found
    if problem is not None:
        raise problem
    return None


def _read(path: Path, read: Callable[[dict[str, Any], str], Content]) -> Content | None:
    """None for a file that is missing or empty. Raises MalformedFile."""
    content = read_config(path)
    if content is not None:
        return read(content, str(path))
    if path.exists() and path.stat().st_size:
        raise MalformedFile(str(path), "it is torn or damaged")
    return None


class Saver:
    """Saves in the order of `submit`. Everything but the thread's own loop is called by one thread."""

    def __init__(self) -> None:
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._done: SimpleQueue[tuple[int, TowlineError | None]] = SimpleQueue()
        self._last = 0
        self._thread: threading.Thread | None = None

    def submit(self, file: ConfigFile, content: Callable[[], dict[str, Any]]) -> int:
        """The number of the job. `content` is called by the thread: it gives what nobody changes any more."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="groups", daemon=True)
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
            try:
                file.save(content())
            except TowlineError as error:
                self._done.put((number, error))
            except Exception as error:  # of a rename, or of a content; the thread has to go on, others are saved by it
                reason = error.strerror if isinstance(error, OSError) else None
                self._done.put((number, StoreNotWritable(str(file.path), reason or str(error) or repr(error))))
            else:
                self._done.put((number, None))
