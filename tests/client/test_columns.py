import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from towline.client.columns import Columns
from towline.client.message import ReceivedMessage
from towline.errors import MalformedRecord
from towline.format.record.compression import Compressor
from towline.format.record.properties import encode as encode_properties
from towline.format.record.record import Host, Record, encode

IPV4 = Host(bytes([10, 0, 0, 9]), 10911)
IPV6 = Host(bytes(15) + b"\x01", 10911)

names = st.text(min_size=1, max_size=5).filter(lambda text: not set(text) & set("\x00\x01\x02"))
hosts = st.sampled_from([IPV4, IPV6])
records = st.builds(
    Record,
    topic=st.binary(min_size=1, max_size=200),
    body=st.binary(max_size=300),
    properties=st.dictionaries(names | st.sampled_from(["UNIQ_KEY", "TAGS"]), names, max_size=4).map(
        lambda pairs: encode_properties(pairs.items())
    ),
    queue_id=st.integers(0, 9),
    flag=st.integers(-(2**31), 2**31 - 1),
    queue_offset=st.integers(0, 2**62),
    physical_offset=st.integers(0, 2**62),
    born_timestamp=st.integers(0, 2**62),
    born_host=hosts,
    store_timestamp=st.integers(0, 2**62),
    store_host=hosts,
)


def columns_of(found: list[Record]) -> Columns:
    encoded = [encode(record) for record in found]
    sizes = np.array([len(record) for record in encoded], dtype=">u4").tobytes()
    return Columns(sizes, b"".join(encoded), queue_id=3)


class TestColumns:
    @given(st.lists(records, max_size=12))
    def test_columns_say_what_the_messages_say(self, found: list[Record]) -> None:
        columns = columns_of(found)
        messages = columns.messages()
        assert len(columns) == len(found)
        assert [message.record.body for message in messages] == columns.stored_bodies() == columns.bodies()
        assert columns.topics() == [record.topic for record in found]
        assert columns.properties() == [record.properties for record in found]
        for name in ("queue_offset", "physical_offset", "flag", "born_timestamp", "store_timestamp"):
            assert getattr(columns, name).tolist() == [getattr(record, name) for record in found], name
        assert columns.unique_keys() == [(message.unique_key or "").encode() for message in messages]
        assert columns.tags() == [(message.tags or "").encode() for message in messages]
        assert columns.damaged() == []

    def test_compressed_bodies_come_back_among_others(self) -> None:
        plain = [b"a" * 5_000, b"small", b"b" * 9_000]
        pairs = [
            Compressor(kind, above=100).compress(body) for kind, body in zip(("lz4", None, "zstd"), plain, strict=True)
        ]
        columns = columns_of([Record(topic=b"t", body=body, sys_flag=flag) for body, flag in pairs])
        assert columns.bodies() == plain
        assert columns.stored_bodies() == [body for body, _ in pairs]

    def test_selected_rows_are_columns_again(self) -> None:
        columns = columns_of([Record(topic=b"t", body=b"%d" % number) for number in range(5)])
        chosen = columns.select(np.array([True, False, False, True, False]))
        assert (chosen.bodies(), chosen.queue_id) == ([b"0", b"3"], 3)

    def test_damaged_bodies_are_named(self) -> None:
        encoded = [bytearray(encode(Record(topic=b"t", body=b"body"))) for _ in range(3)]
        encoded[1][88] ^= 1
        sizes = np.full(3, len(encoded[0]), dtype=">u4").tobytes()
        assert Columns(sizes, b"".join(encoded)).damaged() == [1]

    def test_arrow_gets_the_same_columns(self) -> None:
        pytest.importorskip("pyarrow")
        table = columns_of([Record(topic=b"t", body=b"x", queue_offset=7)]).to_arrow()
        assert table.to_pylist()[0]["queue_offset"] == 7
        assert table.to_pylist()[0]["body"] == b"x"


class TestDamage:
    @pytest.mark.parametrize(
        ("at", "value", "rule"),
        [
            (0, 0x7F, "GROUP_SIZE"),
            (4, 0x00, "MAGIC"),
            (84, 0x7F, "PARTS_DO_NOT_ADD_UP"),
            (84, 0xFF, "PARTS_DO_NOT_ADD_UP"),
            (92, 0xFF, "PARTS_DO_NOT_ADD_UP"),
            (94, 0xFF, "PARTS_DO_NOT_ADD_UP"),
        ],
        ids=["size", "magic", "body too long", "negative body", "topic length", "properties length"],
    )
    def test_lengths_that_do_not_fit_are_refused_with_the_record(self, at: int, value: int, rule: str) -> None:
        encoded = [bytearray(encode(Record(topic=b"t", body=b"body"))) for _ in range(3)]
        encoded[1][at] = value
        sizes = np.full(3, len(encoded[0]), dtype=">u4").tobytes()
        with pytest.raises(MalformedRecord, match=f"{rule} at byte {len(encoded[0])}: record 1"):
            Columns(sizes, b"".join(encoded))

    @given(st.binary(max_size=400), st.lists(st.integers(0, 2**32 - 1), max_size=4))
    def test_random_bytes_are_refused_by_name_or_read(self, data: bytes, sizes: list[int]) -> None:
        try:
            Columns(np.array(sizes, dtype=">u4").tobytes(), data)
        except MalformedRecord:
            return
        assert not data

    def test_a_damaged_message_is_refused_when_it_is_read(self) -> None:
        encoded = bytearray(encode(Record(topic=b"t", body=b"body")))
        message = ReceivedMessage(bytes(encoded))
        message.verify()
        encoded[88] ^= 1
        damaged = ReceivedMessage(bytes(encoded))
        assert damaged.body == b"cody"
        with pytest.raises(MalformedRecord, match="BODY_CRC"):
            damaged.verify()
        with pytest.raises(MalformedRecord):
            _ = ReceivedMessage(b"short").body
