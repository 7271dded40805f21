"""The first step of the `towline` command: a check that the process folders beside `towline` are its own.

The folders have common names (`flush`, `ha`, `cli`). In a checkout and in site-packages alike they are siblings of
`towline`; another package of such a name found earlier on the path would be started in their place.
"""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import towline
from towline.errors import ShadowedPackage

PROCESSES: Final = (
    "master",
    "slave",
    "allocate",
    "flush",
    "reput",
    "serve",
    "ha",
    "remoting",
    "cli",
    "loadtest",
    "pipeline",
)
BY_SIGNAL: Final = 128  # plus its number: the exit status of a command that a signal has ended


def home() -> Path:
    """The directory that holds `towline` and the process folders: a checkout or site-packages."""
    assert towline.__file__ is not None
    return Path(towline.__file__).resolve().parents[1]


def check_siblings() -> None:
    """Raises ShadowedPackage with both paths."""
    for name in PROCESSES:
        spec = find_spec(name)
        found = Path(spec.origin).resolve().parents[1] if spec and spec.origin else None
        if found != home():
            raise ShadowedPackage(name, str(found or "nowhere"), str(home()))


@contextmanager
def loading() -> Iterator[None]:
    """While modules are imported, Ctrl-C ends the process at once: there is nothing to clean up yet.

    A KeyboardInterrupt would now and then be raised where Python can only print it and go on.
    """
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield  # somebody has something to clean up, or ignores it
        return
    signal.signal(signal.SIGINT, _end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _end(number: int, frame: object) -> None:
    os._exit(BY_SIGNAL + number)


def main() -> None:
    """SIGTERM ends a command with a status of its own until somebody has something to clean up, and handles it."""
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _end)
    try:
        with loading():
            check_siblings()
            command = import_module("cli.main")
        command.main()
    except ShadowedPackage as error:
        sys.exit(f"towline: {error}")
    except KeyboardInterrupt:  # Ctrl-C while the command was still loading
        sys.exit(BY_SIGNAL + signal.SIGINT)
