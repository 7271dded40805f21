"""Records of the CommitLog."""

import hashlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from towline.errors import MalformedRecord
from towline.format.record import properties, record
from towline.format.record.record import Host, MessageEncoder, Record, decode, encode
from towline.format.record.rules import Rule

COMMON = Record(
    topic=b"TopicA",
    flag=7,
    queue_offset=5,
    physical_offset=4260,
    born_timestamp=1700000000000,
    born_host=Host(bytes([127, 0, 0, 1]), 12345),
    store_timestamp=1700000000123,
    store_host=Host(bytes([10, 0, 0, 1]), 10911),
    reconsume_times=3,
)
G1_PAIRS = [("KEYS", "k1 k2"), ("TAGS", "TagA"), ("UNIQ_KEY", "AC11000100002A9A0000000000000000")]
G1 = replace(COMMON, body=b"hello", properties=properties.encode(G1_PAIRS))
G2 = COMMON
G3 = replace(
    COMMON,
    body=b"x",
    sys_flag=0x30,
    born_host=Host(bytes(15) + b"\x01", 12345),
    store_host=Host(bytes.fromhex("fe80000000000000 0000000000000001"), 10911),
)
G4 = replace(COMMON, topic=b"%RETRY%" + b"g" * 130)
GOLDEN = {
    "G1": (
        G1,
        "000000a5daa320a73610a6860000000000000007000000000000000500000000000010a4"
        "000000000000018bcfe568007f000001000030390000018bcfe5687b0a00000100002a9f"
        "00000003000000000000000000000005 68656c6c6f 06 546f70696341 003f"
        "4b455953016b31206b3202 544147530154616741 02"
        "554e49515f4b455901 4143313130303031303030303241394130303030303030303030303030303030 02",
    ),
    "G2": (
        G2,
        "00000061daa320a7000000000000000000000007000000000000000500000000000010a4000000000000018bcfe568007f00000100003039"
        "0000018bcfe5687b0a00000100002a9f0000000300000000000000000000000006546f706963410000",
    ),
    "G3": (
        G3,
        "0000007adaa320a70cdc16830000000000000007000000000000000500000000000010a4000000300000018bcfe568000000000000000000"
        "0000000000000001000030390000018bcfe5687bfe80000000000000000000000000000100002a9f00000003000000000000000000000001"
        "7806546f706963410000",
    ),
}
golden = pytest.mark.parametrize(("content", "encoded"), GOLDEN.values(), ids=GOLDEN)

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
HOST = st.builds(Host, st.binary(min_size=4, max_size=4) | st.binary(min_size=16, max_size=16), INT32)
RECORD = st.builds(
    Record,
    topic=st.binary(min_size=1, max_size=255),
    body=st.binary(max_size=300),
    properties=st.binary(max_size=300),
    queue_id=INT32,
    flag=INT32,
    queue_offset=INT64,
    physical_offset=INT64,
    sys_flag=INT32,
    born_timestamp=INT64,
    born_host=HOST,
    store_timestamp=INT64,
    store_host=HOST,
    reconsume_times=INT32,
    prepared_transaction_offset=INT64,
)


def with_families(content: Record) -> Record:
    """The content with the address family bits that its hosts call for."""
    bits = (record.BORN_HOST_IPV6 if content.born_host.is_ipv6 else 0) | (
        record.STORE_HOST_IPV6 if content.store_host.is_ipv6 else 0
    )
    return replace(content, sys_flag=content.sys_flag & ~0x30 | bits)


class TestGolden:
    @golden
    def test_encodes_to_the_golden_bytes(self, content, encoded):
        assert encode(content).hex() == encoded.replace(" ", "")

    @golden
    def test_decodes_the_golden_bytes(self, content, encoded):
        assert decode(bytes.fromhex(encoded)) == content

    def test_sizes(self):
        assert [len(encode(content)) for content in (G1, G2, G3, G4)] == [165, 97, 122, 229]

    def test_without_the_trailing_separator_it_is_one_byte_shorter(self):
        encoded = encode(replace(G1, properties=G1.properties[:-1]))
        assert encoded[:4] == bytes.fromhex("000000a4")
        assert encoded[88 + 5 + 7 :][:2] == bytes.fromhex("003e")
        assert encoded[4 : 88 + 5 + 7] == encode(G1)[4 : 88 + 5 + 7]
        assert encoded[88 + 5 + 7 + 2 :] == encode(G1)[88 + 5 + 7 + 2 : -1]

    def test_a_topic_above_127_bytes_makes_a_v2_record(self):
        encoded = encode(G4)
        assert encoded[:8] == bytes.fromhex("000000e5 daa320ab")
        assert encoded[84:97] == bytes.fromhex("00000000 0089 25524554525925")
        assert encoded[-3:] == bytes.fromhex("67 0000")
        assert hashlib.sha256(encoded).hexdigest() == "32d9f9baac1c3e42cfca879bf992d0f34b88a5816737c330fee0fff2dbe3f06b"
        assert decode(encoded) == G4

    @pytest.mark.parametrize(
        ("body", "crc"), [(b"hello", 907060870), (b"123456789", 0x4BF43926), (b"", 0)], ids=["hello", "digits", "empty"]
    )
    def test_the_body_crc_is_crc_32_without_its_top_bit(self, body, crc):
        assert record.body_crc(body) == crc


class TestEncode:
    @given(RECORD)
    def test_a_record_reads_back_as_it_was_written(self, content):
        assert decode(encode(content)) == with_families(content)

    @given(RECORD)
    def test_the_size_is_known_before_encoding(self, content):
        sizes = len(content.body), len(content.topic), len(content.properties)
        assert record.record_size(*sizes, with_families(content).sys_flag) == len(encode(content))

    @pytest.mark.parametrize(
        ("topic_size", "magic"), [(1, record.MAGIC_V1), (127, record.MAGIC_V1), (128, record.MAGIC_V2)]
    )
    def test_the_version_follows_the_topics_length(self, topic_size, magic):
        assert encode(Record(topic=b"t" * topic_size))[4:8] == magic.to_bytes(4, "big")

    @pytest.mark.parametrize("topic", [b"", b"t" * 256], ids=["empty", "256 bytes"])
    def test_a_topic_outside_the_limits_is_refused(self, topic):
        with pytest.raises(MalformedRecord) as caught:
            encode(Record(topic=topic))
        assert caught.value.rule == "TOPIC_LENGTH"

    def test_properties_above_32767_bytes_are_refused(self):
        assert len(decode(encode(Record(topic=b"t", properties=b"p" * 32767))).properties) == 32767
        with pytest.raises(MalformedRecord) as caught:
            encode(Record(topic=b"t", properties=b"p" * 32768))
        assert caught.value.rule == "PROPERTIES_TOO_LARGE"

    def test_the_address_family_bits_come_from_the_hosts_and_not_from_the_caller(self):
        assert decode(encode(replace(COMMON, sys_flag=0x31))).sys_flag == 0x01


class TestDecode:
    def test_starts_where_it_is_told_and_ignores_what_follows(self):
        assert decode(b"before" + encode(G1) + b"after", 6) == G1

    @pytest.mark.parametrize("kind", [bytes, bytearray, memoryview], ids=lambda kind: kind.__name__)
    def test_reads_every_kind_of_buffer_and_copies_out_of_it(self, kind):
        content = decode(kind(encode(G1)))
        assert content == G1
        assert type(content.body) is type(content.topic) is type(content.properties) is bytes

    def test_a_damaged_body_is_noticed_unless_the_caller_looks_away(self):
        damaged = bytearray(encode(G1))
        damaged[88] ^= 1
        assert decode(damaged, check_crc=False).body == b"iello"
        with pytest.raises(MalformedRecord) as caught:
            decode(damaged)
        assert caught.value.rule == "BODY_CRC"

    @pytest.mark.parametrize(
        ("at", "patch", "rule"),
        [
            (0, "00000000", Rule.SIZE_TOO_SMALL),
            (0, "0000005b", Rule.SIZE_TOO_SMALL),
            (0, "ffffffff", Rule.SIZE_TOO_SMALL),
            (0, "000000a6", Rule.SIZE_PAST_END),
            (0, "7fffffff", Rule.SIZE_PAST_END),
            (0, "000000a4", Rule.PARTS_DO_NOT_ADD_UP),
            (4, "daa320a8", Rule.MAGIC),
            (4, "cbd43194", Rule.MAGIC),
            (84, "ffffffff", Rule.PARTS_DO_NOT_ADD_UP),
            (84, "7fffffff", Rule.PARTS_DO_NOT_ADD_UP),
            (84, "00000006", Rule.PARTS_DO_NOT_ADD_UP),
            (8, "00000000", Rule.BODY_CRC),
            (93, "00", Rule.TOPIC_LENGTH),
            (93, "80", Rule.TOPIC_LENGTH),
            (93, "7f", Rule.PARTS_DO_NOT_ADD_UP),
            (100, "003e", Rule.PARTS_DO_NOT_ADD_UP),
            (100, "ffff", Rule.PARTS_DO_NOT_ADD_UP),
        ],
    )
    def test_a_broken_rule_is_named_with_the_place_of_the_record(self, at, patch, rule):
        damaged = bytearray(encode(G1))
        damaged[at : at + len(patch) // 2] = bytes.fromhex(patch)
        with pytest.raises(MalformedRecord) as caught:
            decode(b"before" + damaged, 6)
        assert caught.value.args == (rule.name, rule.sentence, 6)

    def test_properties_above_the_limit_are_named_when_all_else_is_right(self):
        whole = bytearray(encode(replace(G2, properties=b"p" * 32_767)))
        whole[:4], whole[-32_769:-32_767] = (len(whole) + 1).to_bytes(4, "big"), (32_768).to_bytes(2, "big")
        with pytest.raises(MalformedRecord, match="PROPERTIES_TOO_LARGE"):
            decode(whole + b"p")

    @given(st.sampled_from([G1, G2, G3, G4]), st.data())
    def test_a_record_cut_short_is_refused(self, content, data):
        encoded = encode(content)
        kept = data.draw(st.integers(0, len(encoded) - 1))
        with pytest.raises(MalformedRecord) as caught:
            decode(encoded[:kept])
        assert caught.value.rule in ("ENDS_INSIDE", "SIZE_PAST_END")

    @given(st.sampled_from([G1, G2, G3, G4]), st.data())
    def test_one_changed_byte_is_refused_or_read_but_never_crashes(self, content, data):
        damaged = bytearray(encode(content))
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
        try:
            decoded = decode(damaged)
        except MalformedRecord:
            return
        assert encode(decoded) == damaged


class TestMessageEncoder:
    @given(RECORD, st.booleans())
    def test_makes_the_same_bytes_as_the_general_encoder_with_the_stamped_fields_zero(self, content, ipv6):
        content = replace(
            with_families(content),
            queue_offset=0,
            physical_offset=0,
            store_timestamp=0,
            store_host=Host(bytes(16 if ipv6 else 4), 0),
            reconsume_times=0,
            prepared_transaction_offset=0,
        )
        encoder = MessageEncoder(content.topic, content.born_host, store_host_ipv6=ipv6)
        made = encoder.encode(
            content.queue_id,
            content.body,
            content.properties,
            content.flag,
            content.sys_flag & ~0x30,
            content.born_timestamp,
        )
        assert made == encode(content)

    def test_refuses_a_topic_outside_the_limits_before_the_first_message(self):
        with pytest.raises(MalformedRecord):
            MessageEncoder(b"t" * 256)

    def test_refuses_properties_above_32767_bytes(self):
        with pytest.raises(MalformedRecord):
            MessageEncoder(b"t").encode(0, b"", b"p" * 32768)


class TestHost:
    def test_shows_an_address_as_people_write_it(self):
        assert str(COMMON.store_host) == "10.0.0.1:10911"
        assert str(G3.store_host) == "[fe80::1]:10911"

    def test_an_address_has_4_or_16_bytes(self):
        with pytest.raises(AssertionError):
            Host(b"12345", 1)


STAMPED = ("queue_offset", "physical_offset", "store_timestamp", "store_address", "store_port")


def test_stamped_fields_stand_where_the_spec_says_in_every_address_family():
    assert [record.LAYOUT.offset[name] for name in STAMPED] == [20, 28, 56, 64, 68]
    assert record.layout_of(0x10).offset["store_timestamp"] == 48 + 20
    assert [record.layout_of(bits).size for bits in (0, 0x10, 0x20, 0x30)] == [88, 100, 100, 112]
