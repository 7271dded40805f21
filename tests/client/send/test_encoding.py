"""Messages into records: room for a property CRC, and names that are not the sender's."""

import pytest

from towline.client.link.keys import KeySource
from towline.client.message import Message, ReceivedMessage
from towline.client.send.bodies import Bodies
from towline.client.send.encoding import TopicEncoder
from towline.errors import IllegalProperty, MalformedRecord
from towline.format.record import property_crc
from towline.format.record.compression import Compressor
from towline.format.record.properties import NEVER_STORED, RESERVED, TRANSIENT_PREFIX
from towline.format.record.properties import decode as decode_properties
from towline.format.record.record import Host, decode
from towline.format.record.rules import Rule
from towline.limits import MESSAGE_BODY_MAX, PROPERTIES_SIZE_MAX

HOST = Host(bytes([127, 0, 0, 1]), 0)


def encoder(*, append_property_crc: bool = False, store_host_ipv6: bool = False) -> TopicEncoder:
    return TopicEncoder(
        "t",
        HOST,
        KeySource(HOST.address),
        Compressor("zlib", 4096),
        store_host_ipv6=store_host_ipv6,
        body_size_max=MESSAGE_BODY_MAX,
        append_property_crc=append_property_crc,
    )


def properties_of(record: bytes) -> dict[str, str]:
    return decode_properties(decode(record, check_crc=False).properties)


@pytest.mark.parametrize(
    "message",
    [
        Message("t", b""),
        Message("t", b"x" * 9000, tags="red", keys=("k1", "k2")),
        Message("t", b"x", properties={"own": "v"}, sharding_key="s"),
    ],
    ids=["plain", "large", "own"],
)
@pytest.mark.parametrize("ipv6", [False, True])
def test_room_is_left_behind_the_last_property_and_counted(message: Message, ipv6: bool) -> None:
    record, key = encoder(append_property_crc=True, store_host_ipv6=ipv6).encode(message, 3)
    plain, _ = encoder(store_host_ipv6=ipv6).encode(message, 3)
    assert record.endswith(property_crc.PLACEHOLDER)
    assert len(record) == len(plain) + property_crc.SIZE == int.from_bytes(record[:4], "big")
    found = ReceivedMessage(property_crc.filled(record))
    found.verify()
    assert (found.unique_key, found.queue_id) == (key, 3)
    assert found.properties.keys() == properties_of(plain).keys()


def test_bodies_get_the_same_room() -> None:
    bodies = [b"a", b"", b"c" * 9000]
    joined, _ = encoder(append_property_crc=True).encode_bodies(Bodies.of(bodies), 2, tags="0" * 40)
    joined = bytes(joined)
    at, found = 0, []
    while at < len(joined):
        size = int.from_bytes(joined[at : at + 4], "big")
        assert joined[at : at + size].endswith(property_crc.PLACEHOLDER)
        found.append(ReceivedMessage(property_crc.filled(joined[at : at + size])))
        at += size
    for message in found:
        message.verify()
    assert [message.body for message in found] == bodies
    assert {message.tags for message in found} == {"0" * 40}
    assert len({message.unique_key for message in found}) == 3


@pytest.mark.parametrize("properties", [None, {"own": "v"}], ids=["plain", "own"])
def test_each_message_has_a_unique_key_of_its_own(properties: dict[str, str] | None) -> None:
    same = encoder()
    found = [same.encode(Message("t", b"x", properties=properties), 0) for _ in range(3)]
    assert len({key for _, key in found}) == 3
    assert [properties_of(record)["UNIQ_KEY"] for record, _ in found] == [key for _, key in found]


def test_the_longest_properties_leave_room_too() -> None:
    def sent(size: int, room: bool) -> bytes:
        return encoder(append_property_crc=room).encode(Message("t", b"", properties={"p": "x" * size}), 0)[0]

    rest = len("UNIQ_KEY") + 32 + len("p") + 4
    assert len(sent(PROPERTIES_SIZE_MAX - rest, room=False)) > PROPERTIES_SIZE_MAX
    assert len(sent(PROPERTIES_SIZE_MAX - rest - property_crc.SIZE, room=True)) > PROPERTIES_SIZE_MAX
    with pytest.raises(MalformedRecord, match="PROPERTIES_TOO_LARGE"):
        sent(PROPERTIES_SIZE_MAX - rest - property_crc.SIZE + 1, room=True)


@pytest.mark.parametrize(("name", "rule"), RESERVED.items())
def test_a_reserved_name_is_refused_left_out_or_the_nodes_to_judge(name: str, rule: Rule) -> None:
    message = Message("t", b"", properties={"own": "v", name: "1"})
    if rule is Rule.PROPERTY_OF_ANOTHER_BROKER:
        assert properties_of(encoder().encode(message, 0)[0])[name] == "1"
    elif name in NEVER_STORED:
        found = properties_of(encoder().encode(message, 0)[0])
        assert (name in found, found["own"]) == (False, "v")
        assert message.properties == {"own": "v", name: "1"}, "the sender's own dictionary is not touched"
    else:
        with pytest.raises(IllegalProperty, match=name):
            encoder().encode(message, 0)


def test_a_transient_name_is_left_out() -> None:
    message = Message("t", b"", properties={TRANSIENT_PREFIX + "x": "1", "own": "v"})
    assert properties_of(encoder().encode(message, 0)[0]).keys() == {"own", "UNIQ_KEY"}


def test_a_unique_key_is_always_there() -> None:
    for message in (Message("t", b""), Message("t", b"", tags="a"), Message("t", b"", properties={"own": "v"})):
        record, key = encoder().encode(message, 0)
        assert properties_of(record)["UNIQ_KEY"] == key
        assert len(key) == 32
