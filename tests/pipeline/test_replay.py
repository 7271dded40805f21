"""Messages of a store or an archive come into a topic of a running node once, in their queues' order, come what may."""

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.pipeline.loop import Loop
from tests.processes.nodes import TestNode, ending, free_port
from tests.processes.waiting import await_
from tests.spark.stores import SEGMENT, MadeStore
from towline.client.admin import AdminClient
from towline.client.consumer import Consumer
from towline.client.message import ReceivedMessage
from towline.errors import InvalidEndpoint, NoAnswer
from towline.pipeline import replay as job
from towline.pipeline.archive import ArchiveOptions, archive
from towline.pipeline.copying import stem_of
from towline.pipeline.errors import IllegalOption
from towline.pipeline.replay import ReplayOptions, copy, from_either, result_of, source_of, source_of_archive
from towline.pipeline.restore import RestoreOptions
from towline.runtime.positions import Position
from towline.spark import idempotent_producer

WAIT_S = 60.0
WAIT_MS = 3_500  # a request's deadline, and what the node's own settings add to it
TOPIC = "Orders"
QUEUES = 4


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestNode]:
    made = TestNode(
        "master",
        tmp_path_factory.mktemp("replay") / "master",
        ha_listen_port=free_port(),
        default_topic_queue_nums=QUEUES,
        sync_flush_timeout=500,
        slave_timeout=500,
    )
    with ending(made):
        made.start()
        yield made
        made.stop()


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> MadeStore:
    """Some 900 messages of TOPIC in six queues, among others, over several segments."""
    made = MadeStore(tmp_path_factory.mktemp("replay") / "source")
    for number in range(900):
        body = b"body %d " % number * 40
        made.put(TOPIC, number % 6, body, tags=f"t{number % 3}", keys=f"k{number} all", uniq=f"U{number}", own="é")
        made.put("Others", 0, body)
    made.put(TOPIC, 0, b"bare")
    made.put(TOPIC, 0, b"retried", uniq="later", ORIGIN_MESSAGE_ID="first", RECONSUME_TIME="2")
    made.put(TOPIC, 0, b"was delayed", DELAY="3", TRAN_MSG="true")
    made.put(TOPIC, 0, b"half", sys_flag=4)
    return made.dispatch().safe()


def expected(source: MadeStore, **chosen: Any) -> list[dict[str, Any]]:
    rows = [row for row in source.rows if row["topic"] == TOPIC and not row["sysFlag"]]
    return [row for row in rows if all(row[name] == value for name, value in chosen.items())]


def options(node: TestNode, made: MadeStore, into: str, wait_ms: int = 0, **more: Any) -> ReplayOptions:
    """Without a wait: most tests kill nobody."""
    return ReplayOptions(store=str(made.root), topic=TOPIC, into=into, endpoint=node.endpoint, wait_ms=wait_ms, **more)


def replayed(asked: ReplayOptions) -> dict[str, Any]:
    lanes = copy(asked, from_either(asked, store=asked.store), source_of(asked.store), Loop(parallel=3))
    return dict(result_of(lanes, asked).summary)


def stored(node: TestNode, topic: str) -> list[ReceivedMessage]:
    await_(lambda: node.at(Position.DISPATCHED) == node.at(Position.APPENDED), WAIT_S, "everything is dispatched")
    found = []
    with Consumer(node.endpoint.replace("put", "serve"), topic, suspend_ms=0) as consumer:
        while not consumer.at_end:
            found += consumer.poll(1_000)
    return found


def is_whole(node: TestNode, topic: str, rows: list[dict[str, Any]]) -> None:
    """Every message once, with all its parts, in its queue's order."""
    found = stored(node, topic)
    assert Counter(message.body for message in found) == Counter(row["body"] for row in rows)
    assert len({message.unique_key for message in found}) == len(rows)
    by_body = {row["body"]: row for row in rows}
    for message in found:
        row = by_body[message.body]
        assert (message.tags, " ".join(message.keys), message.flag) == (row["tags"], row["keys"] or "", row["flag"])
        assert message.queue_id == row["queueId"] % QUEUES
        origin = row["properties"].get("ORIGIN_MESSAGE_ID", row["uniqKey"])
        assert message.properties.get("ORIGIN_MESSAGE_ID") == origin
        assert message.unique_key is not None
        assert message.unique_key.endswith(f"{row['commitLogOffset']:016X}")
        assert message.properties.get("own") == row["properties"].get("own")
    offsets: dict[int, int] = {}
    for message in sorted(found, key=lambda each: (each.queue_id, each.queue_offset)):
        row = by_body[message.body]
        assert row["commitLogOffset"] > offsets.get(row["queueId"], -1)
        offsets[row["queueId"]] = row["commitLogOffset"]


def test_a_topic_is_replayed_and_a_second_run_adds_nothing(node, source):
    rows = expected(source)
    assert replayed(options(node, source, "copy", tasks=3)) == {
        "read": len(rows),
        "sent": len(rows),
        "there": 0,
        "into": "copy",
    }
    is_whole(node, "copy", rows)
    again = replayed(options(node, source, "copy", tasks=2))
    assert (again["sent"], again["there"]) == (0, len(rows))
    is_whole(node, "copy", rows)


def test_a_range_and_tags_and_then_the_rest(node, source):
    since = source.rows[400]["storeTimestamp"]
    part = [row for row in expected(source, tags="t1") if row["storeTimestamp"] >= since]
    found = replayed(options(node, source, "ranged", tags="t1", since=since.isoformat()))
    assert (found["sent"], found["there"]) == (len(part), 0)
    is_whole(node, "ranged", part)
    found = replayed(options(node, source, "ranged"))
    assert (found["sent"], found["there"]) == (len(expected(source)) - len(part), len(part))


def test_what_was_replayed_is_not_restored_again(node, source, tmp_path):
    """The archive has the full segments; its messages have the unique keys that their store's have."""
    archive(ArchiveOptions(store=str(source.root), out=str(tmp_path / "archive")), Loop())
    asked = RestoreOptions(
        archive=str(tmp_path / "archive"), topic=TOPIC, into="both", endpoint=node.endpoint, source="s"
    )
    rows = [row for row in expected(source) if row["commitLogOffset"] < source.end - source.end % SEGMENT]
    lanes = copy(asked, from_either(asked, archive=asked.archive), source_of_archive(asked.archive), Loop(parallel=2))
    assert result_of(lanes, asked).summary["sent"] == len(rows)
    is_whole(node, "both", rows)
    found = replayed(options(node, source, "both", source="s"))
    assert (found["sent"], found["there"]) == (len(expected(source)) - len(rows), len(rows))


PROGRAM = """
import os, signal, sys
from towline.pipeline.progress import Progress
from towline.pipeline.replay import ReplayOptions, copy, from_either, source_of
from tests.pipeline.loop import Loop
from towline.spark.idempotent_producer import IdempotentProducer
store, endpoint, into, last = sys.argv[1:]
sends, send = 0, IdempotentProducer.send
def counted(self, *arguments):
    global sends
    sends += 1
    send(self, *arguments)
    if sends == int(last):
        os.kill(os.getpid(), signal.SIGKILL)
IdempotentProducer.send = counted
asked = ReplayOptions(store=store, topic="Orders", into=into, endpoint=endpoint, tasks=2, wait_ms=3_500)
copy(asked, from_either(asked, store=store), source_of(store), Loop())
"""


def replayed_by_another(node: TestNode, source: MadeStore, into: str, last: int) -> int:
    """Exit status of a process that kills itself after so many batches."""
    command = [sys.executable, "-c", PROGRAM, str(source.root), node.endpoint, into, str(last)]
    return subprocess.run(command, cwd=Path(__file__).parents[2], env=os.environ).returncode


def test_a_run_that_was_killed_with_requests_under_way_is_gone_on_with(node, source):
    """Killed twice, right after a batch was put on its way: nobody knows which of it is stored."""
    for last in (2, 1):
        assert replayed_by_another(node, source, "killed", last) == -signal.SIGKILL
    found = replayed(options(node, source, "killed", WAIT_MS))
    assert found["sent"] + found["there"] == len(expected(source))
    is_whole(node, "killed", expected(source))


@pytest.mark.slow
def test_runs_that_are_killed_all_the_time(node, source):
    ended = [replayed_by_another(node, source, "all-the-time", 1 + number % 7) for number in range(20)]
    assert set(ended) <= {-signal.SIGKILL, 0}
    assert -signal.SIGKILL in ended
    replayed(options(node, source, "all-the-time", WAIT_MS))
    is_whole(node, "all-the-time", expected(source))


def test_two_sources_do_not_share_keys(tmp_path, source):
    assert stem_of("a", TOPIC, "x") != stem_of("b", TOPIC, "x") != stem_of("b", TOPIC, "y")
    assert source_of(str(source.root)) == str(source.root.resolve()), "no identity: the path stands for it"
    assert len(stem_of("a", TOPIC, "x")) == 16


class Conf:
    """Of a session."""

    def __init__(self, **conf: str) -> None:
        self.conf = conf


def test_what_cannot_be_done_once_is_refused(node, source):
    with pytest.raises(IllegalOption, match="twice at once"):
        job.run(Conf(**{"spark.speculation": "true"}), options(node, source, "x"), Any)
    with pytest.raises(IllegalOption, match="is the topic that is read"):
        job.run(Conf(), options(node, source, TOPIC), Any)
    with AdminClient(node.endpoint.replace("put", "serve")) as admin:
        assert "x" not in [facts["topic"] for facts in admin.topics()]


def test_where_nobody_answers_a_copy_ends_by_name(source, monkeypatch):
    monkeypatch.setattr(idempotent_producer, "ANSWER_MS", 300)
    asked = ReplayOptions(
        store=str(source.root), topic=TOPIC, into="nowhere", endpoint=f"tcp://127.0.0.1:{free_port()}", wait_ms=0
    )
    with pytest.raises(NoAnswer, match="within 300 ms"):
        copy(asked, from_either(asked, store=asked.store), source_of(asked.store), Loop())
    with pytest.raises(InvalidEndpoint, match="no port"):
        replayed(replace(asked, endpoint="nonsense"))
