"""A cluster of three nodes with 1,000 topics, each with a message, and a real browser beside it."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement

from tests.processes.machines import Machines, machines
from tests.processes.waiting import await_
from tests.requirements import need
from towline.client.message import Message
from towline.client.producer import Producer
from towline.format.files.topics import TopicConfig, TopicTable, topics_content
from towline.log.files.config_file import ConfigFile

TOPICS: Final = 1_000
SETTINGS: Final = 'broker_role = "SYNC_MASTER"\nmin_in_sync_replicas = 2\nshared_memory_puts = false\n'
PROGRAMS: Final = ("chromium", "chromedriver")
FLAGS: Final = ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--window-size=1280,1040")
SHOWN_S: Final = 60.0


def topic(number: int) -> str:
    return f"topic-{number:04d}"


@contextmanager
def thousand_topics(root: Path) -> Iterator[Machines]:
    """The topics stand in the first master's file before it starts: its slaves follow it."""
    table = TopicTable(topics={topic(n): TopicConfig(topic_name=topic(n)) for n in range(TOPICS)})
    config = root / "m0" / "store" / "config"
    config.mkdir(parents=True)
    ConfigFile(config / "topics.json").save(topics_content(table))
    memory = Path(tempfile.mkdtemp(prefix="tl-", dir="/dev/shm"))
    try:
        with machines(root, memory, slaves=2, settings=SETTINGS) as made:
            yield made
    finally:
        shutil.rmtree(memory)


def put(cluster: Machines, body: bytes) -> None:
    """A message into every topic, with the topic's number as its key."""
    with Producer(f"cluster:{cluster.cluster.path}", delivery_timeout_ms=40_000) as producer:
        sent = [producer.send_async(Message(topic(n), body, keys=[str(n)])) for n in range(TOPICS)]
        assert all(each.result(60.0).acknowledged for each in sent)


def need_browser() -> None:
    """Skips or fails the test where there is none."""
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    need({"chromium": f"{' and '.join(missing)} of Debian's chromium-driver is not installed"} if missing else {})


class Browser:
    """Chromium on the page. What is looked for is waited for, and looked for anew where the page made it anew."""

    def __init__(self, driver: Chrome, url: str) -> None:
        self.driver, self._url = driver, url
        driver.get(url)

    def open(self, view: str) -> None:
        """By a click on its link."""
        self.driver.find_element(By.ID, f"to-{view}").click()

    def find(self, selector: str) -> list[WebElement]:
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def text(self, selector: str) -> str:
        """Of everything that fits; "" of what goes just now."""
        try:
            return "\n".join(each.text for each in self.find(selector))
        except StaleElementReferenceException:
            return ""

    def await_text(self, selector: str, wanted: str) -> str:
        """Until that text is there; all of the text."""
        found = ""

        def shown() -> bool:
            nonlocal found
            found = self.text(selector)
            return wanted in found

        try:
            await_(shown, SHOWN_S, f"{wanted!r} in {selector}")
        except AssertionError as error:
            raise AssertionError(f"{error}; there is: {found[-2000:]}") from None
        return found

    def complaints(self) -> list[Any]:
        """What stands in the console, but for requests that were refused on purpose."""
        return [
            each
            for each in self.driver.get_log("browser")
            if "the server responded with a status" not in each["message"]
        ]


@contextmanager
def browsing(url: str, downloads: Path) -> Iterator[Browser]:
    """A browser of its own, without a window."""
    options = ChromeOptions()
    options.binary_location = str(shutil.which("chromium"))
    for flag in (*FLAGS, f"--user-data-dir={downloads / 'profile'}"):
        options.add_argument(flag)
    options.add_experimental_option("prefs", {"download.default_directory": str(downloads)})
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = Chrome(options=options, service=Service(shutil.which("chromedriver")))
    try:
        yield Browser(driver, url)
    finally:
        driver.quit()
