"""What a person asks a real node through the page: topics, groups, messages and their bodies."""

import base64
from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient

from tests.processes.nodes import TestNode, ending, free_port
from tests.processes.waiting import await_
from tests.web.asked import MadeUp
from towline.client.admin import AdminClient
from towline.client.consumer import Consumer
from towline.client.message import Message, ReceivedMessage
from towline.client.producer import Producer
from towline.runtime.positions import Position
from towline.web.app import Parts, app_of
from towline.web.hub import Hub
from towline.web.questions import Questions, ways_of
from towline.web.reports import Reports

SCRIPT = b'<script>alert("x")</script>'
TOPIC = "orders"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestNode]:
    made = TestNode("master", tmp_path_factory.mktemp("node"), listen_port=free_port())
    with ending(made):
        made.start()
        with Producer(where(made)) as producer:
            producer.send(Message(TOPIC, SCRIPT, tags="<b>", keys=["<i>", "42"]))
            producer.send(Message(TOPIC, bytes(range(256)) * 1_000, keys=["large"]))
        await_(lambda: made.at(Position.INDEXED) == made.at(Position.APPENDED), 20.0, "all is in the index")
        yield made


def where(node: TestNode) -> str:
    return str(node.facts["endpoints"]["remoting"][0])


@pytest.fixture
def page(node: TestNode) -> TestClient:
    parts = Parts(Hub(MadeUp()), Questions(ways_of(where(node))), Reports(None))
    return TestClient(app_of(parts), base_url="http://127.0.0.1")


@pytest.fixture(scope="module")
def stored(node: TestNode) -> list[ReceivedMessage]:
    with Consumer(where(node), TOPIC, start="first") as consumer:
        found: list[ReceivedMessage] = []
        while len(found) < 2:
            found += consumer.poll(1_000)
    return sorted(found, key=lambda message: message.physical_offset)


def test_the_queues_of_a_topic(page: TestClient, stored: list[ReceivedMessage]) -> None:
    [group] = page.get("/api/topic", params={"topic": TOPIC}).json()["groups"]
    assert sum(high - low for _, low, high in group["queues"]) == 2


def test_a_message_is_found_by_each_of_five_means(page: TestClient, stored: list[ReceivedMessage]) -> None:
    first = stored[0]
    assert first.unique_key is not None
    means = {
        "key": "42",
        "unique_key": first.unique_key,
        "id": first.message_id,
        "offset": str(first.physical_offset),
        "time": str(first.store_timestamp),
    }
    for by, value in means.items():
        said = page.get("/api/messages", params={"by": by, "value": value, "topic": TOPIC}).json()
        assert said["messages"][0]["message_id"] == first.message_id, by


def test_a_body_comes_as_base64_so_that_no_markup_of_it_stands_in_the_answer(page: TestClient) -> None:
    answer = page.get("/api/messages", params={"by": "key", "value": "<i>", "topic": TOPIC})
    assert answer.headers["content-type"] == "application/json"
    assert b"<script>" not in answer.content
    [message] = answer.json()["messages"]
    assert base64.b64decode(message["body"]) == SCRIPT
    assert (message["tags"], message["keys"]) == ("<b>", ["<i>", "42"])


def test_of_a_large_body_the_beginning_is_shown_and_all_of_it_downloaded(page: TestClient) -> None:
    [message] = page.get("/api/messages", params={"by": "key", "value": "large", "topic": TOPIC}).json()["messages"]
    assert message["body_size"] == 256_000
    assert len(base64.b64decode(message["body"])) < message["body_size"]
    answer = page.get("/api/body", params={"id": message["message_id"]})
    assert answer.content == bytes(range(256)) * 1_000
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-disposition"].startswith("attachment; filename=")
    assert answer.headers["cache-control"] == "no-store"


def test_a_group_is_described_with_its_queues_and_lag(
    page: TestClient, node: TestNode, stored: list[ReceivedMessage]
) -> None:
    with AdminClient(where(node)) as admin:
        admin.configure_group("billing", retryMaxTimes=3)
        admin.reset_offsets("billing", TOPIC, "first")
    [facts] = page.get("/api/group", params={"group": "billing"}).json()["nodes"]
    assert facts["lag"] == 2


@pytest.mark.parametrize(
    ("path", "given", "status", "error"),
    [
        ("topic", {"topic": "none"}, 404, "UnknownTopic"),
        ("topic", {}, 400, "BadQuestion"),
        ("messages", {"by": "key", "value": "1"}, 400, "BadQuestion"),
        ("messages", {"by": "guess", "value": "1"}, 400, "BadQuestion"),
        ("messages", {"by": "offset", "value": "x"}, 400, "BadQuestion"),
        ("messages", {"by": "time", "value": "noon", "topic": TOPIC}, 400, "BadQuestion"),
        ("messages", {"by": "key", "value": "1", "topic": "none"}, 404, "UnknownTopic"),
        ("messages", {"by": "offset", "value": "999999999"}, 409, "NotInLog"),
        ("messages", {"by": "id", "value": "zz"}, 409, "IllegalMessageId"),
        ("body", {"id": "zz"}, 409, "IllegalMessageId"),
        ("none", {}, 404, "NoSuchPage"),
    ],
)
def test_what_cannot_be_answered_is_refused_by_name_with_what_to_do(
    page: TestClient, path: str, given: dict[str, str], status: int, error: str
) -> None:
    answer = page.get(f"/api/{path}", params=given)
    said = answer.json()
    assert (answer.status_code, said["error"]) == (status, error)
    assert said["sentence"]
    assert said["remedy"]


@pytest.mark.parametrize("part", ["value", "begin", "end"])
def test_a_time_that_is_none_since_1970_is_refused_by_name(part: str) -> None:
    at = "0001-01-01"
    parts = Parts(Hub(MadeUp()), Questions(dict), Reports(None))
    given = {"by": "time", "value": "2026-01-31T12:00", "topic": TOPIC} | {part: at}
    answer = TestClient(app_of(parts), base_url="http://127.0.0.1").get("/api/messages", params=given)
    assert (answer.status_code, answer.json()["error"]) == (400, "BadQuestion")
    assert at in answer.json()["sentence"]


def test_a_node_that_is_not_there_is_told_within_seconds() -> None:
    parts = Parts(Hub(MadeUp()), Questions(ways_of("tcp://127.0.0.1:1")), Reports(None))
    with TestClient(app_of(parts), base_url="http://127.0.0.1") as client:
        answer = client.get("/api/topic", params={"topic": TOPIC})
    assert (answer.status_code, answer.json()["error"]) == (504, "NoAnswer")
    assert "nobody listens there" in answer.json()["sentence"]
