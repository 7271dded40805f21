"""The last line of a run names what was skipped, and why."""

import gc
import subprocess
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import settings

from towline.link.context import Context, close_context, new_context

from .requirements import told
from .spreading import Spreading, sessions_first

settings.register_profile("towline", deadline=None)  # how long an example takes says how busy the machine is
settings.load_profile("towline")


def pytest_configure() -> None:
    """A process that nobody waited for is told by its command: Python names its pid alone, and tests later."""
    told: Any = subprocess.Popen.__del__

    def left(process: "subprocess.Popen[Any]", *more: Any) -> None:
        try:
            if getattr(process, "_child_created", False) and process.returncode is None:
                warnings.warn(f"nobody waited for {process.args}", ResourceWarning, stacklevel=1, source=process)
        finally:
            told(process, *more)

    subprocess.Popen.__del__ = left  # type: ignore[attr-defined]


@pytest.fixture
def context() -> Iterator[Context]:
    """Of ZeroMQ, for the sockets of one test."""
    made = new_context()
    yield made
    close_context(made)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    sessions_first(items)


def pytest_collection_finish() -> None:
    """What was imported and collected stays to the end: no collection looks at a million objects again."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(optionalhook=True)  # without pytest-xdist nobody calls it
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> Spreading:
    return Spreading(config, log)


def pytest_unconfigure(config: pytest.Config) -> None:
    terminal = config.pluginmanager.get_plugin("terminalreporter")
    if terminal is not None and not config.option.collectonly:
        terminal.write_line(told(_reasons(terminal.stats.get("skipped", []))))


def _reasons(reports: list[pytest.TestReport]) -> Iterator[str]:
    for report in reports:
        if isinstance(report.longrepr, tuple):
            yield str(report.longrepr[2])
        else:
            yield report.longreprtext
