"""Real clients in Go (rocketmq-client-go 2.1.2) and Node (ali-ons 3.12.0): one program against this node and a real
broker says the same, and what it stored is the same.

With ali-ons neither a real broker nor this one makes a topic on the fly, since the client gives up where there is no
route: its topics are made before. It has no batches, one-way messages or transactions, no selector but by a sharding
key, no locks for ordered consumers and no pull consumer.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from peers import rocketmq
from tests.processes.waiting import await_

from .conftest import RemotingNode
from .java_clients import start_broker
from .other_clients import Program, go_program, make_topic, node_program, warm
from .stores import Stored, stored

WAIT_S: Final = 60.0
PROGRAMS: Final = {"go": go_program, "node": node_program}
# What comes to the topic of producers behind the others.
LATE: Final = {"go": {b"delayed", b"timed", b"commit", b"unknown"}, "node": {b"delayed", b"timed"}}


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[rocketmq.RocketmqNode]:
    yield from start_broker(tmp_path_factory.mktemp("real"))


@pytest.fixture(scope="module", params=PROGRAMS)
def language(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def program(language: str, request: pytest.FixtureRequest) -> Program:
    return PROGRAMS[language](request.config.cache.mkdir("remoting"))


@pytest.fixture
def transcripts(
    program: Program, language: str, node: RemotingNode, real: rocketmq.RocketmqNode
) -> Callable[[str, str], list[list[str]]]:
    """What a program says to this node and to a real broker."""

    def run(what: str, topic: str) -> list[list[str]]:
        addresses = [f"127.0.0.1:{node.port}", real.address]
        for address in addresses:
            warm(address)
            if language == "node":
                make_topic(address, topic)
        return program.run_at_both(what, addresses, topic)

    return run


def complete(store: Path, topic: str, wanted: set[bytes]) -> Stored:
    """What is stored of a topic, once these bodies are among it."""
    await_(lambda: wanted <= stored(store, topic).keys(), WAIT_S, f"{wanted} in {topic}")
    return stored(store, topic)


def dead_letters(store: Path, topic: str) -> Stored:
    """Of the group that fails, without what a real broker leaves of its way there: DELAY 0, WAIT false."""
    found = complete(store, f"%DLQ%later-{topic}", {b"m4"})
    return {
        body: (flag, sys_flag, {name: value for name, value in pairs.items() if name not in ("DELAY", "WAIT")})
        for body, (flag, sys_flag, pairs) in found.items()
    }


def test_producers_find_no_difference_to_a_real_broker(
    transcripts: Callable[[str, str], list[list[str]]], language: str, node: RemotingNode, real: rocketmq.RocketmqNode
) -> None:
    topic = f"producers-{language}"
    ours, theirs = transcripts("produce", topic)
    assert ours == theirs
    late = LATE[language]
    assert complete(node.store.root, topic, late) == complete(real.store, topic, late)


def test_consumers_find_no_difference_to_a_real_broker(
    transcripts: Callable[[str, str], list[list[str]]], language: str, node: RemotingNode, real: rocketmq.RocketmqNode
) -> None:
    topic = f"consumers-{language}"
    ours, theirs = transcripts("consume", topic)
    assert not [line for line in ours if "false" in line]
    assert ours == theirs
    assert dead_letters(node.store.root, topic) == dead_letters(real.store, topic)
