"""A plugin of pytest: notes what a run collected, what came of each test, and whether it ended; picks tests by name.

Notes are lines of JSON, each written when it is known: what a killed run has noted stays. Only the process that a
person would start takes notes; workers of xdist report to it.
"""

import json
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import pytest

NAME: Final = "tests.gate.recording"
NOTES: Final = "--gate-notes"
ONLY: Final = "--gate-only"
SAID_LINES: Final = 12


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(NOTES, type=Path, help="the file that takes the notes")
    parser.addoption(ONLY, type=Path, help="a JSON list of node ids: nothing else runs")


def pytest_configure(config: pytest.Config) -> None:
    path = config.getoption(NOTES)
    if path is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Recorder(path, config))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    path = config.getoption(ONLY)
    if path is not None:
        wanted = set(json.loads(path.read_text()))
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in wanted])
        items[:] = [item for item in items if item.nodeid in wanted]


class Recorder:
    def __init__(self, path: Path, config: pytest.Config) -> None:
        self._path, self._config = path, config

    def _note(self, **facts: Any) -> None:
        with self._path.open("a") as file:
            file.write(json.dumps(facts) + "\n")

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._note(collected=[item.nodeid for item in session.items])

    @pytest.hookimpl(optionalhook=True)  # without pytest-xdist nobody calls it
    def pytest_xdist_node_collection_finished(self, ids: Iterable[str]) -> None:
        self._note(collected=list(ids))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._note(broken=report.nodeid or "the collection", said=last_lines(report.longreprtext))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        facts = {"test": report.nodeid, "phase": report.when, "outcome": report.outcome, "took": report.duration}
        if report.failed:
            facts |= {"said": last_lines(report.longreprtext), "at": time.time(), "load": os.getloadavg()[0]}
            self._tell(report)
        if report.skipped:
            facts["said"] = reason_of(report)
        self._note(**facts)

    def _tell(self, report: pytest.TestReport) -> None:
        """At once: pytest tells of failures at its end, which a run that is killed has none of."""
        terminal = self._config.pluginmanager.get_plugin("terminalreporter")
        if terminal is not None:
            terminal.write_line(f"\nfailed in {report.when}: {report.nodeid}")
            terminal.write_line(last_lines(report.longreprtext))

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        self._note(ended=True)


def reason_of(report: pytest.TestReport) -> str:
    """Why a test was skipped, or is known to fail."""
    if known := getattr(report, "wasxfail", ""):
        return f"known to fail: {known}"
    said = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longreprtext
    return str(said).removeprefix("Skipped: ")


def last_lines(text: str) -> str:
    """Where pytest says what failed and where."""
    return "\n".join(text.rstrip().splitlines()[-SAID_LINES:])
