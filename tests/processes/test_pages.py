"""The blocks of Python in README and the pages about clients: each runs against a node, as it stands there."""

import io
import logging
import re
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from tests.processes.nodes import TestNode, ending, free_port
from tests.processes.waiting import await_
from tests.repo.trees import ROOT
from towline.client.group.consumer import GroupConsumer
from towline.client.message import Message
from towline.client.producer import Producer

ADDRESSES = (
    "tcp://node0:10911,tcp://node1:10911",
    "tcp://node0:10911",
    "tcp://node:10911",
    "tcp://127.0.0.1:10911",
)
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
WAIT_S = 60.0


class Page:
    """A page whose blocks know the same names, and another node than the page's."""

    def __init__(self, path: Path, address: str) -> None:
        self._path = path
        text = path.read_text(encoding="utf-8")
        self._blocks = [(text.count("\n", 0, each.start()) + 1, each[1]) for each in BLOCK.finditer(text)]
        self._address = address
        self.names: dict[str, Any] = {"__name__": "__docs__"}

    def __len__(self) -> int:
        return len(self._blocks)

    def run(self, number: int) -> str:
        """What a block prints."""
        line, code = self._blocks[number]
        for said in ADDRESSES:
            code = code.replace(f'"{said}"', f'"{self._address}"')
        printed = io.StringIO()
        with redirect_stdout(printed):
            exec(compile("\n" * line + code, str(self._path), "exec"), self.names)
        return printed.getvalue()


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestNode]:
    store = tmp_path_factory.mktemp("pages") / "store"
    made = TestNode("master", store, timer_max_delay_sec=7_200, listen_port=free_port(), enable_property_filter=True)
    with ending(made):
        made.start()
        yield made
        assert made.stop()


@pytest.fixture
def page(node: TestNode) -> Callable[[str], Page]:
    [address] = node.facts["endpoints"]["remoting"]
    return lambda name: Page(ROOT / name, address)


def test_readme_sends_and_reads(page: Callable[[str], Page]) -> None:
    readme = page("README.md")
    assert readme.run(0).split()[2] == "b'hello'"
    assert len(readme) == 2  # the last is Spark's, of the store that README makes: tests/pages


def test_the_page_of_the_client_sends_filters_and_reads_columns(page: Callable[[str], Page]) -> None:
    client = page("docs/client.md")
    assert client.run(0) == "PUT_OK\n"
    assert client.run(1).splitlines() == ["prices b'7'", "1 [0]"]
    assert len(client) == 2


def test_the_page_of_asyncio_sends_reads_shares_and_asks(page: Callable[[str], Page]) -> None:
    asyncio_page = page("docs/asyncio.md")
    said = asyncio_page.run(0).splitlines()
    assert said[0] == "1000"
    assert all(re.fullmatch(r"b'(one|\d+)'", line) for line in said[1:3])
    assert said[3] == "['visits']"
    assert len(asyncio_page) == 1


def test_the_page_of_messages_sends_a_value_by_its_key_and_reads_it(page: Callable[[str], Page]) -> None:
    messages = page("docs/messages.md")
    said = messages.run(0).splitlines()
    assert sorted(said[:2]) == ["True", "stored: 0"]
    assert said[2] == "17 4.5"
    assert messages.run(1) == "", "an idempotent producer says nothing where all goes well"
    assert messages.run(2).startswith("b'"), "a message with its trace"
    assert len(messages) == 3


def test_the_page_of_delays_sends_later_and_takes_back(page: Callable[[str], Page]) -> None:
    delays = page("docs/delays.md")
    delays.run(0)
    assert delays.names["sent"].acknowledged
    assert len(delays) == 1


def test_the_page_of_groups_handles_messages_and_passes_over_damage(
    node: TestNode, page: Callable[[str], Page]
) -> None:
    with Producer(node.endpoint) as producer:
        assert producer.send(Message("orders", b"payment", tags="paid")).acknowledged

    groups = page("docs/groups.md")
    assert groups.run(0) == "b'payment'\n"
    with Producer(node.endpoint) as producer:  # for the next one: the first is done
        assert producer.send(Message("orders", b"refund", tags="refunded")).acknowledged
    with GroupConsumer(node.facts["endpoints"]["serve"][0], "of-the-page", "orders", start="first") as consumer:
        groups.names |= {"consumer": consumer, "log": logging.getLogger("page")}
        await_(lambda: groups.run(1) or groups.names["messages"], WAIT_S, "a message")
    assert len(groups) == 2


def test_the_page_of_transactions_commits_and_replies(page: Callable[[str], Page]) -> None:
    transactions = page("docs/transactions.md")
    transactions.run(0)
    result = transactions.names["result"]
    assert result.ended is not None
    assert transactions.names["booked"] == {result.transaction.unique_key: b"..."}
    transactions.run(1)
    assert transactions.names["answer"].body == b"0.93"
    assert len(transactions) == 2
