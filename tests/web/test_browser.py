"""A real browser clicks through every view of a live cluster of three nodes and 1,000 topics, and sees a failover.

TOWLINE_SCREENSHOT=docs/images/web.png makes the picture of docs/web.md anew.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from tests.processes.machines import Machines
from tests.processes.waiting import await_
from tests.web.serving import Served, served
from tests.web.test_reports import DRILL, PNG
from tests.web.thousand import Browser, browsing, need_browser, put, thousand_topics, topic
from towline.client.admin import AdminClient
from towline.node.peers.promotion import promote

pytestmark = [pytest.mark.alone, pytest.mark.timeout(600)]

MARKUP = b'{"who": "<img src=x onerror=alert(1)>"}'
PICTURE = "TOWLINE_SCREENSHOT"
PICTURE_MAX = 200_000


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    need_browser()
    with thousand_topics(tmp_path_factory.mktemp("thousand")) as made:
        put(made, MARKUP)
        yield made


@pytest.fixture(scope="module")
def page(cluster: Machines, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    reports = tmp_path_factory.mktemp("reports")
    (reports / "result.json").write_text(json.dumps(DRILL))
    (reports / "timeline.png").write_bytes(PNG)
    with served("-f", str(cluster.cluster.path), "--reports", str(reports)) as made:
        yield made


@pytest.fixture
def browser(page: Served, tmp_path: Path) -> Iterator[Browser]:
    with browsing(page.url, tmp_path) as made:
        yield made
        assert made.complaints() == []


def endpoint(cluster: Machines, number: int) -> str:
    return f"tcp://{cluster.group.node(number).address('remoting')}"


def test_the_picture_has_every_node_with_its_role_epoch_distance_and_processes(browser: Browser) -> None:
    browser.await_text("#pictures", "a-0 leads epoch")
    for label in ("a-0", "a-1", "a-2"):
        browser.await_text("#nodes", label)
    browser.await_text("#pictures svg", "0 B behind")
    assert "end" in browser.text("#pictures svg")
    browser.await_text("#nodes", "MiB")
    shown = browser.text("#nodes")
    for process in ("put", "flush", "send", "receive", "serve"):
        assert process in shown
    assert not browser.text("#alerts")


def test_a_thousand_topics_are_filtered_sorted_and_paged_by_keyboard_alone(browser: Browser) -> None:
    browser.driver.find_element(By.ID, "to-topics").send_keys(Keys.ENTER)
    browser.await_text("#topics-count", "1 to 100 of 1,000")
    assert len(browser.find("#topics tbody tr")) == 100
    browser.driver.find_element(By.ID, "topics-on").send_keys(Keys.ENTER)
    browser.await_text("#topics-count", "101 to 200 of 1,000")
    browser.driver.find_element(By.ID, "topics-by-0").send_keys(Keys.ENTER)
    browser.await_text("#topics tbody tr:first-child", topic(999))
    browser.driver.find_element(By.ID, "topics-filter").send_keys("topic-0042")
    browser.await_text("#topics-count", "1 to 1 of 1")
    browser.driver.find_element(By.CSS_SELECTOR, "#topics tbody a").send_keys(Keys.ENTER)
    browser.await_text("#topic", "Queues of topic-0042")
    assert "lowest offset" in browser.text("#topic th")


def test_a_search_shows_the_decoded_body_as_text_and_gives_it_out_as_a_file(browser: Browser, tmp_path: Path) -> None:
    browser.open("search")
    for field, text in (("value", "7"), ("topic", topic(7))):
        browser.driver.find_element(By.ID, field).send_keys(text)
    browser.driver.find_element(By.ID, "find").click()
    browser.await_text("#found", "1 found")
    assert "<img src=x onerror=alert(1)>" in browser.text("#found pre"), "text, and no picture"
    assert not browser.find("#found img")
    options = [each.text for each in browser.find("#form-0 option")]
    assert options == ["JSON", "text", "bytes"]
    browser.driver.find_element(By.ID, "form-0").send_keys("bytes")
    browser.await_text("#found pre", "000000  7b 22")
    browser.driver.find_element(By.CSS_SELECTOR, "a.download").click()
    await_(lambda: [each.read_bytes() for each in tmp_path.glob("*.bin")] == [MARKUP], 30.0, "the body is downloaded")
    browser.driver.find_element(By.ID, "topic").clear()
    browser.driver.find_element(By.ID, "topic").send_keys("none")
    browser.driver.find_element(By.ID, "find").click()
    browser.await_text("#found", "the topic 'none' does not exist here")


def test_groups_segments_refusals_and_reports_have_their_views(browser: Browser, cluster: Machines) -> None:
    with AdminClient(endpoint(cluster, 0)) as admin:
        admin.configure_group("billing", retryMaxTimes=3)
        admin.reset_offsets("billing", topic(1), "first")
    browser.open("groups")
    browser.await_text("#groups", "billing")
    browser.driver.find_element(By.LINK_TEXT, "billing").click()
    browser.await_text("#group", "Queues at a")
    browser.open("segments")
    browser.await_text("#maps", "a-2")
    browser.driver.find_element(By.CSS_SELECTOR, ".map button").click()
    browser.await_text("#maps", "00000000000000000000, being written, hot")
    browser.open("refusals")
    browser.await_text("#refusals", "Put has refused nothing")
    browser.open("reports")
    browser.await_text("#reports", "kill-master: 12,345 acknowledged, 0 lost")
    browser.driver.find_element(By.PARTIAL_LINK_TEXT, "kill-master").click()
    browser.await_text("#reports", "Download")


def test_on_a_narrow_screen_nothing_but_tables_is_wider_than_it(browser: Browser) -> None:
    browser.driver.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride", {"width": 360, "height": 700, "deviceScaleFactor": 1, "mobile": True}
    )
    for view, shown in (("cluster", "a-2"), ("topics", topic(0)), ("search", "Search"), ("segments", "a-2")):
        browser.open(view)
        browser.await_text("main", shown)
        assert browser.driver.execute_script("return document.documentElement.scrollWidth") <= 360, view


def test_a_dark_screen_has_a_dark_page(browser: Browser) -> None:
    colours = []
    for scheme in ("light", "dark"):
        features = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", features)
        colours.append(browser.driver.execute_script("return getComputedStyle(document.body).backgroundColor"))
    assert colours == ["rgb(246, 247, 249)", "rgb(20, 23, 29)"]


def test_a_failover_is_shown_while_the_page_is_open(browser: Browser, cluster: Machines) -> None:
    """The last one: it ends the first master."""
    browser.await_text("#pictures", "a-0 leads epoch")
    cluster.master().kill()
    browser.await_text("#alerts", "a-0 cannot be reached since")
    browser.await_text("#pictures", "nobody leads")
    browser.await_text("#nodes", "It cannot be reached since")
    promote(cluster.group.node(1).store)
    browser.await_text("#pictures", "a-1 leads epoch")
    happened = browser.await_text("#happened", "a-1 was slave and is master of epoch")
    assert "a-0 does not answer any more" in happened
    browser.await_text("#pictures svg", "0 B behind")
    put(cluster, MARKUP)
    if path := os.environ.get(PICTURE):
        browser.driver.execute_script("scrollTo(0, 0)")
        browser.driver.save_screenshot(path)
        assert Path(path).stat().st_size < PICTURE_MAX
    browser.open("topics")
    browser.await_text("#topics-count", "of 1,000")
