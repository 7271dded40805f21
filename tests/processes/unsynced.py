"""What of a store's files no sync has made durable, as told by the system calls of a node that runs.

A journal commits names with any fsync, so a power cut of a real disk does not show that each was synced for its own
sake. Here a name is durable once a sync of its directory began after it was made, and written bytes once one of their
file did. What is written through a mapping, and what a name stood for before, is left to the disk.
"""

import contextlib
import os
import re
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from towline.runtime.positions import Duty

from .nodes import TestNode
from .tracing import traced

WRITERS: Final = (Duty.PUT, Duty.ALLOCATE, Duty.FLUSH, Duty.REPUT)  # of the store's names
SLOWLY: Final = ("-e", "inject=fsync:delay_enter=10000")  # who does not wait for a name's sync is ahead of it by far
CALLS: Final = (
    "mkdir,mkdirat,open,openat,link,linkat,rename,renameat,renameat2,unlink,unlinkat,rmdir,"
    "pwrite64,fsync,fdatasync,syncfs"
)
_BEGUN: Final = re.compile(r"(\d+) +(.*) <unfinished \.\.\.>$")
_RESUMED: Final = re.compile(r"(\d+) +<\.\.\. \w+ resumed>(.*)$")
_CALL: Final = re.compile(r"(\w+)\((.*?)\)? += (-?\d+)")
_NAME: Final = re.compile(r'"([^"]*)"')
_FILE: Final = re.compile(r"\d+<([^>]*)>")


class Unsynced:
    """Follows the lines of strace. `on_sync` is told of each file or directory whose sync came back."""

    def __init__(self, root: Path, on_sync: Callable[[Path], None]) -> None:
        self._root, self._on_sync = root, on_sync
        self._there = set(root.rglob("*"))
        self.names: dict[Path, int] = {}  # not durable: when each was made
        self._written: dict[Path, list[tuple[int, int, int]]] = {}  # when, and from where to where
        self._begun: dict[str, tuple[str, int]] = {}  # by thread: a call that has not come back, and when it began
        self._now = 0

    def follow(self, line: str) -> None:
        self._now += 1
        if begun := _BEGUN.match(line):
            self._begun[begun[1]] = begun[2], self._now
        elif resumed := _RESUMED.match(line):
            text, when = self._begun.pop(resumed[1], ("", 0))
            self._take(text + resumed[2], when)
        else:
            self._take(line.lstrip("0123456789 "), self._now)

    def end(self) -> None:
        """The power is cut: what was written or made and has not come back is there, what was synced is not."""
        for text, when in self._begun.values():
            if "sync" not in text.partition("(")[0]:
                self._take(f"{text}) = 0", when)

    def take_away(self, lost: Callable[[], bool] = lambda: True) -> list[Path]:
        """From the files of a node that was killed, each write and name for which `lost` says so; the names."""
        for path, writes in self._written.items():
            if path.exists():
                with path.open("r+b") as file:
                    for _, start, end in writes:
                        if lost():
                            os.pwrite(file.fileno(), bytes(end - start), start)
        gone = [path for path in self.names if path.exists() and lost()]
        for path in gone:
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        return gone

    def _take(self, text: str, began: int) -> None:
        call = _CALL.match(text)
        if call is None or int(call[3]) < 0:
            return  # it failed, or is no call
        name, arguments = call[1], call[2]
        names, files = ([Path(each) for each in found.findall(arguments)] for found in (_NAME, _FILE))
        match name:
            case "mkdir" | "mkdirat":
                self._made(names[-1])
            case "open" | "openat" if "O_CREAT" in arguments:
                self._made(names[-1])
            case "link" | "linkat":
                self._made(names[-1])
            case "rename" | "renameat" | "renameat2":
                self._gone(names[0])
                self._made(names[1])
            case "unlink" | "unlinkat" | "rmdir":
                self._gone(names[-1])
            case "pwrite64":
                size, at = (int(number) for number in arguments.rsplit(", ", 2)[1:])
                self._written.setdefault(files[0], []).append((self._now, at, at + size))
            case "fsync" | "fdatasync" | "syncfs":
                self._synced(files[0], began, everything=name == "syncfs")
                self._on_sync(files[0])

    def _made(self, path: Path) -> None:
        if path not in self._there and path.is_relative_to(self._root):
            self._there.add(path)
            self.names[path] = self._now

    def _gone(self, path: Path) -> None:
        self._there.discard(path)
        self.names.pop(path, None)
        self._written.pop(path, None)

    def _synced(self, path: Path, began: int, *, everything: bool) -> None:
        for name in [name for name, when in self.names.items() if when < began and (everything or name.parent == path)]:
            del self.names[name]
        for file in list(self._written) if everything else self._written.keys() & {path}:
            self._written[file] = [write for write in self._written[file] if write[0] > began]


@contextlib.contextmanager
def watched(node: TestNode, trace: Path, on_sync: Callable[[Path], None]) -> Iterator[Unsynced]:
    """Inside the block the calls of a running node's writers are followed; it is to be killed there."""
    unsynced = Unsynced(node.store.root, on_sync)
    os.mkfifo(trace)
    follower = threading.Thread(target=_follow, args=(trace, unsynced), daemon=True)
    follower.start()
    pids = [node.pids()[duty.label] for duty in WRITERS]
    with traced(["-y", "-s", "0", "-e", f"trace={CALLS}", *SLOWLY, "-o", str(trace)], pids):
        yield unsynced
    follower.join(60.0)
    assert not follower.is_alive(), "strace goes on"
    unsynced.end()
    trace.unlink()


def _follow(trace: Path, unsynced: Unsynced) -> None:
    with trace.open() as lines:
        for line in lines:
            unsynced.follow(line.rstrip("\n"))
