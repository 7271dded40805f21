"""Nodes are asked while a browser looks, once for all of them, and not otherwise; each is told what has changed."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.web.asked import Listening, MadeUp, passing, status
from towline.web import hub as module
from towline.web.errors import TooManyBrowsers
from towline.web.hub import QUEUED_MAX, Hub

FAST_S = 0.02


@pytest.fixture(autouse=True)
def _no_lingering(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LINGER_S", 0.0)


def played(story: Callable[[Hub, MadeUp], Awaitable[None]], source: MadeUp | None = None) -> MadeUp:
    """The source, after a story with a hub that asks it."""
    made = source or MadeUp()

    async def play() -> None:
        hub = Hub(made, interval_s=FAST_S, list_interval_s=FAST_S)
        await story(hub, made)
        await hub.end()

    asyncio.run(play())
    return made


async def rested(hub: Hub) -> None:
    async with asyncio.timeout(10):
        while hub.runs:
            await passing(FAST_S)


def test_nothing_is_asked_before_a_browser_comes() -> None:
    async def story(hub: Hub, source: MadeUp) -> None:
        await passing(5 * FAST_S)

    assert not played(story).asked


def test_a_browser_is_told_the_state_and_then_what_has_changed() -> None:
    async def story(hub: Hub, source: MadeUp) -> None:
        browser = Listening(hub)
        first = await browser.hear(lambda event, said: event == "nodes" and bool(said["nodes"]))
        assert first["nodes"]["tcp://one"]["head"]["role"] == "master"
        source.answers["tcp://one"] = status(lag={"flush": 1})
        second = await browser.hear(lambda event, said: event == "nodes" and bool(said["nodes"]))
        assert second["nodes"] == {"tcp://one": {"lag": {"flush": 1}}}

    played(story)


def test_two_browsers_cost_the_nodes_no_more_than_one() -> None:
    async def story(hub: Hub, source: MadeUp) -> None:
        browsers = [Listening(hub), Listening(hub)]
        for browser in browsers:
            await browser.hear(lambda event, said: event == "nodes")
        before = source.asked["tcp://one"]
        rounds = 10
        for _ in range(rounds):
            for browser in browsers:
                await browser.hear(lambda event, said: event == "nodes")
        assert source.asked["tcp://one"] - before <= rounds + 2

    played(story)


def test_when_the_last_browser_has_gone_the_connections_are_closed_and_nobody_is_asked() -> None:
    async def story(hub: Hub, source: MadeUp) -> None:
        browsers = [Listening(hub), Listening(hub)]
        for browser in browsers:
            await browser.hear(lambda event, said: event == "nodes")
        hub.leave(browsers[0].subscription)
        await browsers[1].hear(lambda event, said: event == "nodes")
        assert hub.runs
        hub.leave(browsers[1].subscription)
        await rested(hub)
        assert source.closed == 1
        asked = source.asked.copy()
        await passing(5 * FAST_S)
        assert source.asked == asked
        again = Listening(hub)
        await again.hear(lambda event, said: event == "nodes" and bool(said["nodes"]))

    assert played(story).closed == 2


def test_a_browser_that_comes_while_the_collector_ends_is_told_all_the_same() -> None:
    async def story(hub: Hub, source: MadeUp) -> None:
        first = Listening(hub)
        await first.hear(lambda event, said: event == "nodes")
        hub.leave(first.subscription)
        hub._rest()  # what its lingering ends with
        second = Listening(hub)
        assert hub.runs
        await second.hear(lambda event, said: event == "nodes" and bool(said["nodes"]))

    played(story)


def test_a_list_is_asked_for_only_while_somebody_looks_at_it() -> None:
    async def story(hub: Hub, source: MadeUp) -> None:
        browser = Listening(hub)
        for _ in range(3):
            await browser.hear(lambda event, said: event == "nodes")
        assert not source.asked["topics"]
        other = Listening(hub, "topics")
        assert (await other.hear(lambda event, said: event == "topics"))["all"] == [["a/t", 1]]
        source.rows["topics"] = [["a/t", 1], ["a/u", 2]]
        assert await other.hear(lambda event, said: event == "topics") == {"rows": [["a/u", 2]], "why": []}
        source.rows["topics"] = [["a/u", 2]]
        assert await other.hear(lambda event, said: event == "topics") == {"gone": ["a/t"], "why": []}
        assert not source.asked["groups"]
        assert "topics" not in {event for event, _ in browser.heard}

    played(story, MadeUp(rows={"topics": [["a/t", 1]]}))


def test_a_node_that_comes_to_be_known_is_told_in_every_view_and_is_no_row_of_the_list_of_groups() -> None:
    async def story(hub: Hub, source: MadeUp) -> None:
        browsers = [Listening(hub), Listening(hub, "groups")]
        for browser in browsers:
            await browser.hear(lambda event, said: event == "names" and len(said["groups"]) == 1)
        await browsers[1].hear(lambda event, said: event == "groups")
        source.answers["tcp://two"] = status(broker_id=1)
        for browser in browsers:
            await browser.hear(lambda event, said: event == "names" and len(said["groups"]) == 2)
        lists = [said for event, said in browsers[1].heard if event == "groups"]
        assert lists == [{"all": [["a/g", 1]], "why": []}]

    played(story, MadeUp(rows={"groups": [["a/g", 1]]}))


def test_a_node_that_falls_silent_and_the_failover_are_told_as_they_happen() -> None:
    async def story(hub: Hub, source: MadeUp) -> None:
        browser = Listening(hub)
        await browser.hear(lambda event, said: len(said.get("nodes", ())) == 2)
        source.answers["tcp://one"] = None
        said = await browser.hear(lambda event, said: bool(said.get("happened")))
        assert said["happened"][0][1] == "a-0 does not answer any more: nobody listens there"
        assert not said["nodes"]["tcp://one"]["reach"]["answers"]
        source.answers["tcp://two"] = status(broker_id=1, epoch=513)
        said = await browser.hear(lambda event, said: bool(said.get("happened")))
        assert said["happened"][0][1] == "a-1 was slave and is master of epoch 513"
        late = Listening(hub)
        state = await late.hear(lambda event, said: event == "state")
        assert len(state["happened"]) == 2
        assert state["nodes"]["tcp://one"]["head"]["role"] == "master", "what it said last"

    played(story, MadeUp({"tcp://one": status(), "tcp://two": status(role="slave", broker_id=1)}))


def without(*members: str) -> dict[str, Any]:
    """A status of a node of another version, which lacks them; the last one of what the others lead to."""
    made = status()
    inner = made
    for name in members[:-1]:
        inner = inner[name]
    del inner[members[-1]]
    return made


@pytest.mark.parametrize(
    ("odd", "why"),
    [
        (without("lag"), "KeyError: 'lag'"),
        (without("positions", "epoch"), "KeyError: 'epoch'"),
        (status(positions=None), "TypeError"),
        (status(epoch="new"), "ValueError"),
        (KeyError("statistics"), "KeyError: 'statistics'"),
    ],
)
def test_a_node_of_another_version_is_told_with_what_is_odd_and_the_others_are_told_as_ever(
    odd: dict[str, Any] | Exception, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(hub: Hub, source: MadeUp) -> None:
        browser = Listening(hub, "topics")
        said = await browser.hear(lambda event, said: len(said.get("nodes", ())) == 2)
        assert said["nodes"]["tcp://one"]["head"]["role"] == "master"
        reach = said["nodes"]["tcp://odd"]["reach"]
        assert not reach["answers"]
        assert why in reach["why"]
        await browser.hear(lambda event, said: event == "topics")
        asked = source.asked["tcp://odd"]
        while source.asked["tcp://odd"] < asked + 3:
            assert "tcp://odd" not in (await browser.hear(lambda event, said: event == "nodes"))["nodes"]
        source.answers["tcp://odd"] = status(broker_id=1)
        said = await browser.hear(lambda event, said: "tcp://odd" in said.get("nodes", ()))
        assert said["nodes"]["tcp://odd"]["reach"]["answers"]

    played(story, MadeUp({"tcp://one": status(), "tcp://odd": odd}, {"topics": [["a/t", 1]]}))
    said = [record for record in caplog.records if record.name == module.__name__]
    assert len(said) == 1, "once, and not at every look"


def test_where_nobody_can_say_which_nodes_there_are_the_reason_is_told() -> None:
    class Unsaid(MadeUp):
        def names(self) -> dict[str, str]:
            raise UnicodeDecodeError("utf-8", b"\xff", 0, 1, "no text")

    async def story(hub: Hub, source: MadeUp) -> None:
        said = await Listening(hub).hear(lambda event, said: event == "names")
        assert "UnicodeDecodeError" in said["trouble"]

    played(story, Unsaid())


def test_a_browser_that_does_not_read_is_told_everything_anew_and_keeps_no_more() -> None:
    async def story(hub: Hub, source: MadeUp) -> None:
        slow = Listening(hub, "topics").subscription
        quick = Listening(hub)
        for _ in range(2 * QUEUED_MAX):
            await quick.hear(lambda event, said: event == "nodes")
        assert slow.queue.qsize() <= QUEUED_MAX + 2
        first = slow.queue.get_nowait()
        assert first is not None
        assert first.startswith(b"event: state")

    played(story, MadeUp(rows={"topics": [["a/t", 1]]}))


def test_more_browsers_than_there_may_be_are_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BROWSERS_MAX", 1)

    async def story(hub: Hub, source: MadeUp) -> None:
        Listening(hub)
        with pytest.raises(TooManyBrowsers, match="1 browsers look already"):
            hub.subscribe(())

    played(story)


def test_the_end_of_the_server_ends_every_stream() -> None:
    async def story(hub: Hub, source: MadeUp) -> None:
        browser = Listening(hub)
        await browser.hear(lambda event, said: event == "nodes")
        await hub.end()
        left = [browser.subscription.queue.get_nowait() for _ in range(browser.subscription.queue.qsize())]
        assert left[-1] is None
        assert hub.subscribe(()).queue.get_nowait() is None

    played(story)
