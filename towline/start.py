"""The first step of the `towline` command, which loads nothing before Ctrl-C is taken care of."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Final

import towline
from towline.errors import MissingPackage

_OF_THE_COMMAND: Final = ("typer", "rich")  # packages of the extra
BY_SIGNAL: Final = 128  # plus its number: the exit status of a command that a signal has ended


def home() -> Path:
    """The directory that holds `towline`: a checkout or site-packages."""
    assert towline.__file__ is not None
    return Path(towline.__file__).resolve().parents[1]


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
            command = import_module("towline.cli.main")
        command.main()
    except ModuleNotFoundError as error:
        if error.name not in _OF_THE_COMMAND:
            raise
        sys.exit(f"towline: {MissingPackage(error.name, 'cli').describe()}")
    except KeyboardInterrupt:  # Ctrl-C while the command was still loading
        sys.exit(BY_SIGNAL + signal.SIGINT)
