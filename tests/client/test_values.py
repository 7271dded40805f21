"""Keys as everybody has them, values that become bodies, and bodies that become values."""

from collections.abc import Callable
from typing import Any

import pytest

from towline.client.consumer import Consumer
from towline.client.errors import UnreadableValue, UnserializableValue
from towline.client.message import Message
from towline.client.producer import Producer
from towline.client.values import prepared
from towline.errors import IllegalProperty
from towline.format.java_hash import string_hash
from towline.format.record.properties import KEYS, SHARDING_KEY, decode

from .standin import Standin

WAIT_MS = 10_000


def read(consumer: Consumer, count: int) -> list[Any]:
    found: list[Any] = []
    while len(found) < count:
        found += consumer.poll(WAIT_MS)
    return found


class TestKeys:
    @pytest.mark.parametrize(("key", "text"), [("order-17", "order-17"), (17, "17"), ("é".encode(), "é")], ids=str)
    def test_messages_of_equal_key_go_to_one_queue_in_their_order(self, node: Standin, key: Any, text: str) -> None:
        with Producer(node.endpoint) as producer:
            futures = [producer.send_async(Message("t", b"%d" % number, key=key)) for number in range(50)]
            results = [future.result(WAIT_MS / 1000) for future in futures]
        assert {result.queue_id for result in results} == {abs(string_hash(text)) % 4}
        assert [result.queue_offset for result in results] == list(range(50))

    def test_a_key_is_stored_as_the_sharding_key_and_is_not_looked_up(self, node: Standin) -> None:
        with Producer(node.endpoint) as producer, Consumer(node.endpoint, "one") as consumer:
            producer.send(Message("one", b"", key="customer 7", keys=["order-1", "order-2"]))
            producer.send(Message("one", b"", sharding_key="customer 7"))
            found = read(consumer, 2)
        stored = decode(node.stored("one")[0].properties)
        assert (stored[SHARDING_KEY], stored[KEYS]) == ("customer 7", "order-1 order-2")
        assert {(message.key, message.sharding_key) for message in found} == {("customer 7", "customer 7")}
        assert found[0].keys == ("order-1", "order-2")

    @pytest.mark.parametrize(
        ("fields", "why"),
        [
            ({"key": "a", "sharding_key": "a"}, "they are the same, give one of them"),
            ({"key": 1.5}, "it is a float; str, int and bytes of UTF-8 are keys"),
            ({"key": True}, "it is a bool"),
            ({"key": b"\xff"}, "no UTF-8"),
        ],
        ids=["two of them", "a float", "a bool", "no text"],
    )
    def test_what_is_no_key_is_refused_and_nothing_is_sent(
        self, node: Standin, fields: dict[str, Any], why: str
    ) -> None:
        with Producer(node.endpoint) as producer, pytest.raises(IllegalProperty, match=why):
            producer.send_async(Message("t", b"", **fields))
        assert node.puts == []


class TestSerializers:
    def test_json_is_made_of_values_and_values_of_json(self, node: Standin) -> None:
        values = [{"id": 1, "name": "é"}, [1, 2.5, None], "text", None]
        with (
            Producer(node.endpoint, value_serializer="json") as producer,
            Consumer(node.endpoint, "one", value_deserializer="json") as consumer,
        ):
            producer.send(Message("one", values[0]))
            producer.send_async(Message("one", values[1])).result(WAIT_MS / 1000)
            producer.send_batch(Message("one", value) for value in values[2:])
            found = read(consumer, 4)
        assert node.stored("one")[0].body == '{"id":1,"name":"é"}'.encode()
        assert [message.value for message in found] == values
        assert found[0].value is found[0].value, "it is made once"

    @pytest.mark.parametrize(
        "body", [b"bytes", bytearray(b"bytes"), memoryview(b"bytes")], ids=["bytes", "bytearray", "memoryview"]
    )
    def test_a_message_that_has_nothing_to_be_made_of_is_not_copied(self, body: Any) -> None:
        message = Message("t", body)
        assert prepared(message, None) is message

    def test_any_function_serves(self, node: Standin) -> None:
        with (
            Producer(node.endpoint, value_serializer=str.encode) as producer,
            Consumer(node.endpoint, "one", value_deserializer=bytes.decode) as consumer,
        ):
            producer.send(Message("one", "text"))
            assert [(message.body, message.value) for message in read(consumer, 1)] == [(b"text", "text")]

    def test_without_one_the_value_is_the_body(self, node: Standin) -> None:
        with Producer(node.endpoint) as producer, Consumer(node.endpoint, "one") as consumer:
            producer.send(Message("one", b"bytes"))
            assert [message.value for message in read(consumer, 1)] == [b"bytes"]

    @pytest.mark.parametrize(
        ("serializer", "value", "why"),
        [
            ("json", object(), "value_serializer raised TypeError"),
            (str, 17, "it is a str, not bytes, and the value_serializer made that"),
            (None, {"id": 1}, "it is a dict, not bytes, and the producer has no value_serializer"),
            (None, "text", "it is a str, not bytes"),
            (None, 5, "it is a int, not bytes"),
        ],
        ids=["it raises", "it returns no bytes", "there is none", "text", "a number"],
    )
    @pytest.mark.parametrize("knows", [False, True], ids=["new topic", "known topic"])
    @pytest.mark.parametrize("call", [Producer.send, Producer.send_async])
    def test_a_value_that_becomes_no_body_is_refused_at_the_call_and_nothing_is_sent(
        self,
        node: Standin,
        serializer: Any,
        value: object,
        why: str,
        call: Callable[[Producer, Message], object],
        knows: bool,
    ) -> None:
        with Producer(node.endpoint, value_serializer=serializer) as producer:
            if knows:
                producer.route("t")
            with pytest.raises(UnserializableValue, match=why):
                call(producer, Message("t", value))
            producer.flush(WAIT_MS)
        assert node.puts == []

    def test_what_is_no_serializer_is_refused(self, node: Standin) -> None:
        with pytest.raises(ValueError, match="value_serializer is 'avro'; 'json' and functions are allowed"):
            Producer(node.endpoint, value_serializer="avro")  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="value_deserializer is 7"):
            Consumer(node.endpoint, "t", value_deserializer=7)  # type: ignore[arg-type]

    def test_a_value_that_cannot_be_made_names_its_message_and_reading_goes_on_behind_it(self, node: Standin) -> None:
        with (
            Producer(node.endpoint) as producer,
            Consumer(node.endpoint, "one", value_deserializer="json") as consumer,
        ):
            producer.send_batch(Message("one", body) for body in (b"1", b"{", b"3"))
            first, bad, last = read(consumer, 3)
            for _ in range(2):
                with pytest.raises(UnreadableValue, match="message 1 of queue 0 of one has no value") as raised:
                    _ = bad.value
            assert type(raised.value.__cause__).__name__ == "JSONDecodeError"
            assert (first.value, bad.body, last.value) == (1, b"{", 3)
            assert consumer.position() == {0: 3}
