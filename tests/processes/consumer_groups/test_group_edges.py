"""Consumer groups at their edges, through a running node: strange questions and moments, and where a group begins."""

import json
import os
import signal
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import pytest

from tests.processes.grouping import Process, by_queue, explained_doubles
from tests.processes.nodes import TestNode
from tests.processes.waiting import await_
from towline.cli.main import run
from towline.client.admin import AdminClient
from towline.client.errors import AskRefused
from towline.client.group.consumer import GroupConsumer
from towline.client.group.errors import ConsumeDisabled, MemberTaken
from towline.client.group.message import GroupMessage
from towline.errors import TowlineError
from towline.format.wire.allocation import AVERAGE, CIRCLE

from .test_groups import DEADLINE_S, await_members, check_all_was_read, create, fill, members_of, node, serve_of, start

__all__ = ["node", "start"]  # the fixtures

QUEUES: Final = 6
COUNT: Final = 60


@pytest.fixture
def admin(node: TestNode) -> Iterator[AdminClient]:
    with AdminClient(serve_of(node)) as made:
        yield made


def test_a_group_begins_at_a_time(node: TestNode):
    create(node, "dated", 2)
    fill(node, "dated", 20, 2)
    with AdminClient(serve_of(node)) as admin:
        await_(lambda: set(admin.bounds("dated").values()) == {(0, 10)}, DEADLINE_S, "everything is dispatched")
    between = time.time_ns() // 10**6 + 2
    await_(lambda: time.time_ns() // 10**6 > between, DEADLINE_S, "time goes on")
    fill(node, "dated", 10, 2)
    for group, when in (("by_ms", between), ("by_date", datetime.fromtimestamp(between / 1000).astimezone())):
        found: list[GroupMessage] = []
        with GroupConsumer(serve_of(node), group, "dated", start=when) as consumer:
            await_(lambda of=consumer, to=found: to.extend(of.poll(100)) or len(to) >= 10, DEADLINE_S, "ten came")
            assert consumer.poll(200) == []
        assert sorted((each.queue_id, each.queue_offset) for each in found) == [
            (queue, offset) for queue in range(2) for offset in range(10, 15)
        ]
    with AdminClient(serve_of(node)) as admin:
        assert admin.group_offsets("by_ms", "dated") == {"dated": {0: 15, 1: 15}}


def test_by_circle_queues_are_dealt_out_and_all_is_read_once(node: TestNode):
    create(node, "dealt", QUEUES)
    fill(node, "dealt", COUNT, QUEUES)
    settings = {"start": "first", "strategy": CIRCLE, "commit_interval_ms": 100}
    first = GroupConsumer(serve_of(node), "circle", "dealt", member="a", **settings)
    with first, GroupConsumer(serve_of(node), "circle", "dealt", member="b", **settings) as second:
        seen: list[tuple[int, int]] = []

        def shared() -> bool:
            for each in (first, second):
                seen.extend((message.queue_id, message.queue_offset) for message in each.poll(20))
            mine, theirs = (
                {queue for topic, queue in each.assignment() if topic == "dealt"} for each in (first, second)
            )
            return (mine, theirs) == ({0, 2, 4}, {1, 3, 5}) and len(set(seen)) == COUNT

        await_(shared, DEADLINE_S, "the queues are dealt out, and everything is read")
    with AdminClient(serve_of(node)) as admin:
        assert admin.group_offsets("circle", "dealt")["dealt"] == dict.fromkeys(range(QUEUES), COUNT // QUEUES)


def test_a_group_that_was_just_deleted_is_unknown(node: TestNode, admin: AdminClient):
    create(node, "brief", 1)
    fill(node, "brief", 5, 1)
    with GroupConsumer(serve_of(node), "short", "brief", start="first") as consumer:
        await_(lambda: consumer.poll(100), DEADLINE_S, "messages come")
    admin.reset_offsets("short", "brief", "first")
    admin.delete_group("short")
    for ask in (admin.describe_group, admin.delete_group, lambda group: admin.group_offsets(group, "brief")):
        with pytest.raises(AskRefused) as error:
            ask("short")
        assert error.value.error == "UNKNOWN_GROUP"
    assert "short" not in [row["group"] for row in admin.groups()]


def test_a_group_is_set_back_to_a_time_and_shown_by_the_command(
    node: TestNode, admin: AdminClient, capsys: pytest.CaptureFixture[str]
):
    create(node, "history", 2)
    fill(node, "history", 20, 2)
    await_(lambda: set(admin.bounds("history").values()) == {(0, 10)}, DEADLINE_S, "everything is dispatched")
    between = time.time_ns() // 10**6 + 2
    await_(lambda: time.time_ns() // 10**6 > between, DEADLINE_S, "time goes on")
    fill(node, "history", 10, 2)
    await_(lambda: set(admin.bounds("history").values()) == {(0, 15)}, DEADLINE_S, "everything is dispatched")
    admin.ask("group_commit", group="past", member="", offsets={"history": {"0": 15, "1": 12}})

    def told(command: str, *words: str) -> Any:
        assert run(["group", command, *words, "--endpoint", serve_of(node), "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    assert [row["lag"] for row in told("list")["groups"] if row["group"] == "past"] == [3]
    when = datetime.fromtimestamp(between / 1000).isoformat()
    told("reset-offset", "past", "history", "--to", when)
    shown = told("describe", "past")
    assert [(row["offset"], row["lag"]) for row in shown["queues"]] == [(10, 5), (10, 5)]
    assert shown["lag"] == 10
    told("configure", "past", "--retry-max", "3", "--no-consume-broadcast-enable")
    settings = told("describe", "past")["settings"]
    assert (settings["retryMaxTimes"], settings["consumeBroadcastEnable"], settings["consumeEnable"]) == (
        3,
        False,
        True,
    )
    assert run(["group", "list", "--endpoint", serve_of(node)]) == 0
    assert "lag" in capsys.readouterr().out
    create(node, "%RETRY%past", 1)
    assert told("delete", "past") == {"group": "past", "topics": ["%RETRY%past"]}


def test_a_group_that_is_switched_off_stops_says_what_to_do_and_goes_on(node: TestNode, admin: AdminClient):
    create(node, "switched", 1)
    fill(node, "switched", 10, 1)
    found: list[int] = []
    with GroupConsumer(serve_of(node), "off", "switched", start="first") as consumer:

        def come(count: int) -> bool:
            found.extend(message.queue_offset for message in consumer.poll(100))
            return len(found) >= count

        await_(lambda: come(10), DEADLINE_S, "ten come")
        consumer.poll(0)  # those are finished
        admin.configure_group("off", consumeEnable=False)

        def refused() -> ConsumeDisabled | None:
            try:
                come(0)
            except ConsumeDisabled as error:
                return error
            return None

        error = await_(refused, DEADLINE_S, "it is told")
        assert "towline group configure" in str(error)
        fill(node, "switched", 10, 1)
        await_(lambda: admin.bounds("switched") == {0: (0, 20)}, DEADLINE_S, "everything is dispatched")
        assert await_(refused, DEADLINE_S, "it is told again")
        assert len(found) == 10
        admin.configure_group("off", consumeEnable=True)

        def rest() -> bool:
            return refused() is None and len(found) >= 20

        await_(rest, DEADLINE_S, "it goes on")
        assert found == list(range(20))


def test_members_that_read_differently_are_named(node: TestNode, admin: AdminClient):
    create(node, "mixed", 2)
    for name, expression in (("a", "*"), ("b", "red")):
        said = {"mixed": {"expression": expression, "type": "TAG"}}
        admin.ask("group_join", group="mix", member=name, instance=name, topics=said)
    shown = admin.describe_group("mix")
    assert {each["member"] for each in shown["warnings"]} == {"a", "b"}
    assert all("SUBSCRIPTION_DIFFERS" in each["warning"] for each in shown["warnings"])
    assert (shown["model"], shown["strategy"]) == ("clustering", AVERAGE)


def test_retries_go_to_as_many_queues_as_the_group_is_given(node: TestNode, admin: AdminClient):
    create(node, "wide", 1)
    fill(node, "wide", 60, 1)
    admin.configure_group("spread", retryQueueNums=3)
    with GroupConsumer(serve_of(node), "spread", "wide", start="first") as consumer:
        sent: list[bool] = []
        await_(
            lambda: (
                sent.extend(each.retry_later(1) for each in consumer.poll(100) if not each.reconsume_times)
                or len(sent) >= 60
            ),
            DEADLINE_S,
            "all are sent back",
        )
    await_(lambda: sum(end for _, end in admin.bounds("%RETRY%spread").values()) == 60, DEADLINE_S, "all came again")
    ends = admin.bounds("%RETRY%spread")
    assert len(ends) == 3
    assert all(end for _, end in ends.values()), ends


def test_what_is_not_there_is_refused_by_name(node: TestNode, admin: AdminClient):
    create(node, "small", 2)
    fill(node, "small", 10, 2)
    await_(lambda: set(admin.bounds("small").values()) == {(0, 5)}, DEADLINE_S, "everything is dispatched")
    topics = {"small": {"expression": "*", "type": "TAG"}}
    us = {"group": "edge", "member": "m", "instance": "i"}
    huge = {"small": {"0": 1 << 63}}
    for expected, op, facts in (
        ("UNKNOWN_GROUP", "group_describe", {"group": "nobody"}),
        ("UNKNOWN_GROUP", "group_reset", {"group": "nobody", "topic": "small", "to": "first"}),
        ("UnknownTopic", "group_join", us | {"member": "n", "topics": {"nowhere": topics["small"]}}),
        ("UnknownTopic", "group_reset", {"group": "edge", "topic": "nowhere", "to": "first"}),
        ("UnknownTopic", "group_offsets", {"group": "edge", "topics": ["nowhere"]}),
        ("UNKNOWN_QUEUE", "group_reset", {"group": "edge", "topic": "small", "to": {"offset": 1}, "queue": 2}),
        ("UNKNOWN_QUEUE", "group_lock", us | {"queues": [["small", 2]]}),
        ("ILLEGAL_QUESTION", "group_commit", us | {"offsets": huge}),
        ("ILLEGAL_QUESTION", "group_lock", us | {"queues": [["small", 0]], "claims": "all"}),
        ("UNKNOWN_MEMBER", "group_lock", us | {"member": "n", "queues": [["small", 0]]}),
        ("MEMBER_TAKEN", "group_watch", us | {"instance": "j", "generation": 1}),
        ("ILLEGAL_GROUP", "group_join", us | {"group": "a group", "topics": topics}),
    ):
        admin.ask("group_join", **us, topics=topics)  # each time: it may have expired
        with pytest.raises(TowlineError) as error:
            admin.ask(op, **facts)
        name = error.value.error if isinstance(error.value, AskRefused) else type(error.value).__name__
        assert name == expected, (op, error.value)
    admin.ask("group_join", **us, topics=topics)
    told = admin.ask("group_commit", **us, offsets={"small": {"0": 10**12, "7": 3}, "nowhere": {"0": 1}}).facts
    assert told == {"clamped": {"small": {"0": 5}}, "unknown": {"small": ["7"], "nowhere": ["0"]}}
    assert admin.set_offset("edge", "small", 1, 10**12) == 5
    assert admin.group_offsets("edge", "small") == {"small": {0: 5, 1: 5}}


def test_of_two_members_with_one_id_the_second_waits_for_the_first_to_go(node: TestNode):
    create(node, "single", 2)
    fill(node, "single", 10, 2)
    settings = {"start": "first", "member": "same", "timeout_ms": 1_500}
    with GroupConsumer(serve_of(node), "twins", "single", **settings) as one:
        await_(lambda: one.poll(100), DEADLINE_S, "the first reads")
        with GroupConsumer(serve_of(node), "twins", "single", **settings) as two:
            with pytest.raises(MemberTaken):
                two.poll(20_000)
            assert members_of(node, "twins") == ["same"]
            one.close()
            fill(node, "single", 10, 2)
            await_(lambda: reads(two), DEADLINE_S, "then the second reads")


def reads(consumer: GroupConsumer) -> bool:
    try:
        return bool(consumer.poll(100))
    except MemberTaken:  # as it was told before
        return False


@pytest.mark.parametrize("ordered", [False, True], ids=["in any order", "ordered"])
def test_a_member_that_vanishes_while_queues_are_handed_to_it(node: TestNode, start: Any, ordered: bool):
    topic = group = f"vanishing_{ordered}".lower()
    create(node, topic)
    fill(node, topic, 3_000, QUEUES)
    settings = {"ordered": ordered, "max_count": 20, "rest_ms": 1}
    a = start(group, topic, "a", **settings)
    await_(a.has_read, DEADLINE_S, "a reads")
    b = start(group, topic, "b", **settings)
    await_(lambda: "b" in members_of(node, group), DEADLINE_S, "b has joined")
    b.kill()
    await_members(node, group, "a")
    members = [a, b]
    await_(lambda: len(a.keys() | b.keys()) == 3_000, DEADLINE_S, "everything is read")
    a.stop()
    check_all_was_read(node, topic, group, members)
    assert not explained_doubles(members)["unexplained"]
    assert a.tenures()[-1].queue in by_queue(members)


def test_a_reset_while_a_member_is_frozen_outlives_serve(node: TestNode, start: Any, admin: AdminClient):
    create(node, "again", 2)
    fill(node, "again", COUNT, 2)
    reader: Process = start("redo", "again", "frozen")
    await_(lambda: reader.keys().total() == COUNT, DEADLINE_S, "everything is read")
    await_(lambda: admin.describe_group("redo")["lag"] == 0, DEADLINE_S, "and committed")
    with reader.frozen():
        admin.reset_offsets("redo", "again", "first")
        before = node.pids()
        os.kill(before["serve"], signal.SIGKILL)
        node.await_restarted("serve", before)
    await_(lambda: reader.keys().total() == 2 * COUNT, DEADLINE_S, "everything is read again")
    reader.stop()
    assert set(reader.keys().values()) == {2}


def test_half_an_offsets_file_of_a_broadcasting_member(
    node: TestNode, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    create(node, "shout", 1)
    path = tmp_path / "offsets.json"
    settings: dict[str, Any] = {"model": "broadcasting", "offsets_file": path, "start": "first"}
    for turn in range(2):
        fill(node, "shout", 10, 1)
        with GroupConsumer(serve_of(node), "b", "shout", **settings) as consumer:
            await_(lambda of=consumer: of.poll(100), DEADLINE_S, f"messages of turn {turn} come")
    path.write_bytes(path.read_bytes()[:20])
    found: list[GroupMessage] = []
    with GroupConsumer(serve_of(node), "b", "shout", **settings) as consumer:
        await_(
            lambda: found.extend(consumer.poll(100)) or len(found) >= 10, DEADLINE_S, "what came since the copy comes"
        )
    assert [each.queue_offset for each in found] == list(range(10, 20))
    assert "its copy from before" in caplog.text
