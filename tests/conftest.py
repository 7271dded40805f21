"""The last line of a run names what was skipped, and why."""

from collections.abc import Iterator

import pytest

from tests.requirements import told


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
