"""What the page costs: it follows 1,000 topics with less than 5% of a core, and nothing when nobody looks."""

import os
from pathlib import Path
from threading import Event, Thread

import psutil
import pytest

from tests.processes.waiting import await_
from tests.web.serving import served
from tests.web.thousand import browsing, need_browser, put, thousand_topics
from towline.node.report.running import node_facts

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

MEASURED_S = 60.0
QUIET_S = 20.0
LIMIT = 5.0  # percent of a core


def shares(processes: list[psutil.Process], seconds: float) -> list[float]:
    """Percent of a core that each uses."""
    before = [sum(process.cpu_times()[:2]) for process in processes]
    Event().wait(seconds)
    return [100 * (sum(each.cpu_times()[:2]) - was) / seconds for each, was in zip(processes, before, strict=True)]


def test_one_browser_costs_less_than_a_twentieth_of_a_core_and_none_costs_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    need_browser()
    (tmp_path / "cluster").mkdir()
    with thousand_topics(tmp_path / "cluster") as cluster, served("-f", str(cluster.cluster.path)) as page:
        put(cluster, b"first")
        web = psutil.Process(page.process.pid)
        nodes = [psutil.Process(pid) for machine in cluster.each.values() for pid in pids(machine.node.store)]
        alone = sum(shares(nodes, QUIET_S))
        over = Event()

        def load() -> None:
            while not over.is_set():
                put(cluster, b"x" * 100)
                over.wait(1.0)

        with browsing(page.url, tmp_path) as browser:
            browser.open("topics")
            browser.await_text("#topics-count", "of 1,000")
            quiet = shares([web, *nodes], MEASURED_S)
            loading = Thread(target=load)
            loading.start()
            try:
                [busy] = shares([web], MEASURED_S)
            finally:
                over.set()
                loading.join()
        await_(lambda: not web.net_connections() or not established(web), 30.0, "the page has closed its connections")
        switches = sum(web.num_ctx_switches())
        [idle] = shares([web], QUIET_S)
        woken = sum(web.num_ctx_switches()) - switches
    with capsys.disabled():
        print(
            f"\n1,000 topics, one browser: towline web {quiet[0]:.2f}% of a core, {busy:.2f}% while each topic gets a "
            f"message a second; three idle nodes {alone:.1f}% before, {sum(quiet[1:]):.1f}% while they are asked; no "
            f"browser: {idle:.2f}%, {woken} context switches in {QUIET_S:.0f} s; load {os.getloadavg()[0]:.1f}"
        )
    assert quiet[0] < LIMIT
    assert busy < LIMIT
    assert idle == 0
    assert woken == 0


def established(process: psutil.Process) -> bool:
    return any(each.status == psutil.CONN_ESTABLISHED for each in process.net_connections())


def pids(store: Path) -> list[int]:
    facts = node_facts(store)
    return [facts["pid"], facts["zygote"], *facts["processes"].values()]
