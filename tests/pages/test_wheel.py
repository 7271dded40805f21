"""README and the other pages, word by word, where only the wheel is installed.

What is left out is said here: commands for a checkout (`make`), and below what needs minutes or other systems.
"""

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.pages.environment import Environment, skip_unreachable
from tests.pages.reading import INSTALLS, Installed, cleared, read, typed
from tests.processes.nodes import processes_of
from tests.repo.trees import ROOT
from tests.requirements import need
from tests.spark.pages import PAGE, README, STORES, Block, blocks, blocks_of_readme
from towline.pipeline.session import java_missing

pytestmark = pytest.mark.timeout(600)

FIRST_MESSAGE_S: Final = 60.0  # from `pip install` to the first message read, where nothing else runs
PRESSURE: Final = Path("/proc/pressure/cpu")
STORE: Final = "/tmp/m"
OF_A_NODE: Final = (
    "asyncio",
    "delays",
    "groups",
    "messages",
    "transactions",
    "rocketmq",
)  # pages whose blocks ask README's node
OTHERS: Final = ("", "bash", "java", "json", "toml")  # synopses, other languages, files
# Pages with blocks of code that are not typed here, and why.
ELSEWHERE: Final = {
    "client.md": "its text is that of docstrings, not output; tests/processes/test_pages.py runs its two blocks",
    "web.md": "it serves until Ctrl-C, beside a browser: tests/web runs the command",
    "metrics.md": "it shows hundreds of lines, by curl; tests/metrics asks the same of nodes",
    "benchmarks.md": "`towline bench peers` is for a checkout",
    "operations.md": "its load test takes minutes; tests/loadtest runs it. The rest is typed",
    "spark-cluster.md": "tests/drivers runs it, with a cluster, an object store and a server of Spark Connect",
    "kafka-exchange.md": "needs log directories of Kafka; tests/kafka/exchange/test_page.py makes them and types it",
    "rocketmq-client.md": "needs a broker of RocketMQ; tests/interop runs it",
}


class Clock:
    """Seconds since it was made, and how many of them something on this machine was ready and had no CPU."""

    def __init__(self) -> None:
        self._began, self._waited_before = time.monotonic(), self._waited()
        self._stopped: tuple[float, float] | None = None

    def stop(self) -> None:
        self._stopped = self.took_s, self.waited_s

    @property
    def took_s(self) -> float:
        return self._stopped[0] if self._stopped else time.monotonic() - self._began

    @property
    def waited_s(self) -> float:
        return self._stopped[1] if self._stopped else self._waited() - self._waited_before

    @staticmethod
    def _waited() -> float:
        """As the kernel counts it; 0 where it does not."""
        if not PRESSURE.exists():
            return 0.0
        return int(PRESSURE.read_text().split("total=")[1].split()[0]) / 1e6


class Wheel:
    """The environment, and the clock of what README types first."""

    def __init__(self, home: Path) -> None:
        self.environment = Environment(home)
        self.installing = Clock()

    def place(self, directory: Path) -> Installed:
        (directory / "dist").symlink_to(self.environment.dist)
        return Installed(directory, self.environment.programs, self.environment.variables)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Wheel:
    """README's first block is typed."""
    made = Wheel(tmp_path_factory.mktemp("wheel"))
    first = blocks_of_readme()[0]
    assert first.code.startswith(INSTALLS)
    with cleared(tmp_path_factory.mktemp("first")) as directory:
        made.installing = Clock()
        _type(made.place(directory), README, [first])
        made.installing.stop()
    return made


@pytest.fixture
def place(wheel: Wheel, tmp_path: Path) -> Iterator[Installed]:
    with cleared(tmp_path):
        made = wheel.place(tmp_path)
        yield made
        made.close()


def _type(place: Installed, page: Path, found: list[Block]) -> None:
    """Skips where pip reaches no index."""
    try:
        read(place, page, found, STORES.get(page, STORE))
    except AssertionError as error:
        if str(error).startswith(INSTALLS):
            skip_unreachable(str(error))
        raise


def _page(name: str) -> Path:
    return ROOT / "docs" / f"{name}.md"


def _found(page: Path) -> list[Block]:
    return blocks(page.read_text(encoding="utf-8"), others=OTHERS)


def test_the_first_message_is_stored_and_read_within_a_minute_of_pip_install_and_the_rest_of_readme_runs(
    wheel: Wheel, place: Installed, capsys: pytest.CaptureFixture[str]
) -> None:
    _, *rest = blocks_of_readme()
    first = next(number for number, block in enumerate(rest) if "towline get " in block.code)
    clock = Clock()
    for block in rest[: first + 1]:
        typed(place, README, block, STORE)
    took, waited = wheel.installing.took_s + clock.took_s, wheel.installing.waited_s + clock.waited_s
    with capsys.disabled():
        print(
            f"\nfirst message read {took:.0f} s after `pip install`, which took {wheel.installing.took_s:.0f} s;",
            end=" ",
        )
        print(f"for {waited:.0f} s of them others had a CPU that was wanted")
    assert took - waited < FIRST_MESSAGE_S
    need({} if (problem := java_missing()) is None else {"java": problem})
    _type(place, README, rest[first + 1 :])
    assert not processes_of(place.directory), "README stops what it starts"


def test_the_page_of_the_first_five_minutes_runs(place: Installed) -> None:
    page = _page("start")
    _type(place, page, _found(page))
    assert not processes_of(place.directory)


@pytest.mark.parametrize("name", OF_A_NODE)
def test_a_page_runs_with_the_node_that_readme_starts(name: str, place: Installed) -> None:
    place.shell(f"towline master start --store {place.directory}/store --set mapped_file_size_commit_log=16777216")
    place.shell("towline put orders hello --endpoint tcp://127.0.0.1:" + place.ports["10911"])
    _type(place, _page(name), _found(_page(name)))


def test_the_page_about_tests_runs(place: Installed) -> None:
    page = _page("testing")
    found = _found(page)
    _type(place, page, found)
    [code] = (block.code for block in found if block.kind == "python")
    (place.directory / "conftest.py").write_text('pytest_plugins = ["towline.pytest_plugin"]\n')
    (place.directory / "test_it.py").write_text(code)
    assert "1 passed" in place.shell("pytest -q")


def test_the_page_about_proofs_runs(place: Installed) -> None:
    _type(place, _page("proofs"), _found(_page("proofs")))


def test_a_cluster_of_the_page_about_operations_runs(place: Installed) -> None:
    page = _page("operations")
    cluster, load = (block for block in _found(page) if block.kind == "sh")
    assert load.code.startswith("towline loadtest ")
    _type(place, page, [cluster])
    assert not processes_of(place.directory)


@pytest.mark.slow  # `tests/session/test_docs.py` types it in the checkout
def test_the_page_about_spark_runs_and_prints_what_it_says(place: Installed) -> None:
    need({} if (problem := java_missing()) is None else {"java": problem})
    _type(place, PAGE, _found(PAGE))


def test_every_page_with_code_is_typed_or_named_with_a_reason() -> None:
    typed_here = {PAGE.name, "start.md", "testing.md", "proofs.md", *(f"{name}.md" for name in OF_A_NODE)}
    code = re.compile(r"^```(python|sh)$", re.MULTILINE)
    with_code = {page.name for page in (ROOT / "docs").glob("*.md") if code.search(page.read_text(encoding="utf-8"))}
    assert with_code == typed_here | ELSEWHERE.keys()
