"""A bit flips in a body at rest: Spark and its jobs do not take it over, from files and through the node alike."""

from collections.abc import Iterator

import pytest

from tests.processes.damage.test_damaged_bodies import BAD, COUNT, body, damaged, ipc, read_up_to
from tests.processes.nodes import TestNode, ending
from towline.client.consumer import Consumer
from towline.pipeline import replay
from towline.pipeline.progress import Progress

TOPIC = "spark-damaged"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestNode]:
    """Of its own: what is damaged here no other test is to meet."""
    made = TestNode("master", tmp_path_factory.mktemp("damaged") / "master")
    with ending(made):
        made.start()
        yield made


@pytest.fixture(scope="module")
def place(node: TestNode) -> int:
    """Where the damaged message stands in the log."""
    return damaged(node, TOPIC)


@pytest.fixture(params=["path", "endpoint"])
def source(request, spark, node, place):
    """What reads the topic's bodies."""
    where = str(node.store.root) if request.param == "path" else ipc(node)

    def read(**options):
        made = spark.read.format("towline").options(**{request.param: where, "subscribe": TOPIC}, **options)
        return [bytes(row.body) for row in made.load().select("queueOffset", "body").orderBy("queueOffset").collect()]

    return read


def test_a_query_fails_naming_topic_queue_offset_and_byte(source, place):
    with pytest.raises(Exception, match=rf"message {BAD} of queue 0 of {TOPIC}") as met:
        source()
    assert str(place) in str(met.value)


def test_what_is_left_out_is_the_damaged_message_alone(source):
    rest = [body(TOPIC, number) for number in range(COUNT) if number != BAD]
    assert source(onCorruption="skip") == rest


def test_the_check_can_be_turned_off(source):
    found = source(checkCrcs="false")
    assert [number for number in range(COUNT) if found[number] != body(TOPIC, number)] == [BAD]


def test_a_replay_sends_no_damaged_message_on(spark, node, place):
    asked = {"store": str(node.store.root), "topic": TOPIC, "endpoint": node.endpoint, "wait_ms": 0}
    with pytest.raises(Exception, match=rf"message {BAD} of queue 0 of {TOPIC}"):
        replay.run(spark, replay.ReplayOptions(**asked, into="spark-replayed"), Progress())
    options = replay.ReplayOptions(**asked, into="spark-replayed-rest", on_corruption="skip")
    assert replay.run(spark, options, Progress()).summary["sent"] == COUNT - 1
    with Consumer(ipc(node), "spark-replayed-rest", suspend_ms=200) as consumer:
        sent = read_up_to(lambda: [message.body for message in consumer.poll(1_000)], COUNT - 1)
    assert sorted(sent) == [body(TOPIC, number) for number in range(COUNT) if number != BAD]
