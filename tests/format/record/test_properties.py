"""Properties of a message as bytes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.format.record.hash_map import java_hash_map_order
from towline.errors import IllegalProperty
from towline.format.record import properties
from towline.format.record.properties import decode, encode

INSERTED = [
    "TAGS",
    "KEYS",
    "UNIQ_KEY",
    "WAIT",
    "CLUSTER",
    "MSG_REGION",
    "TRACE_ON",
    "DELAY",
    "REAL_TOPIC",
    "REAL_QID",
]
WORD = st.text(st.characters(codec="utf-8", exclude_characters="\x00\x01\x02"), min_size=1).filter(
    lambda text: not text.startswith(properties.TRANSIENT_PREFIX)
)


class TestEncode:
    def test_each_pair_ends_with_its_separator_the_last_one_too(self):
        assert encode([("KEYS", "k1 k2"), ("TAGS", "TagA")]) == b"KEYS\x01k1 k2\x02TAGS\x01TagA\x02"

    def test_no_pairs_are_no_bytes(self):
        assert encode([]) == b""

    def test_a_pair_without_a_value_is_left_out(self):
        assert encode([("KEYS", None), ("TAGS", "TagA")]) == b"TAGS\x01TagA\x02"

    def test_transient_names_are_never_stored(self):
        assert encode([("__RMQ.TRANSIENT.x", "1"), ("TAGS", "TagA")]) == b"TAGS\x01TagA\x02"

    def test_a_value_may_speak_of_transient_names(self):
        assert encode([("TAGS", "__RMQ.TRANSIENT.")]) == b"TAGS\x01__RMQ.TRANSIENT.\x02"

    @pytest.mark.parametrize(
        ("name", "value", "said"),
        [
            ("a\x01b", "v", "its name holds the byte 0x01"),
            ("a\x02b", "v", "its name holds the byte 0x02"),
            ("a\x00b", "v", "its name holds the byte 0x00"),
            ("a", "v\x01", "its value holds the byte 0x01"),
            ("a", "\x02", "its value holds the byte 0x02"),
            ("a", "v\x00", "its value holds the byte 0x00"),
            ("", "v", "its name is empty"),
            ("a", "", "its value is empty"),
            ("a", "\ud800", "its value is not valid Unicode"),
        ],
        ids=repr,
    )
    @pytest.mark.parametrize("others", [[], [("TAGS", "TagA")]], ids=["alone", "after a sound one"])
    def test_what_could_not_be_read_back_is_refused_by_name(self, others, name, value, said):
        with pytest.raises(IllegalProperty) as caught:
            encode([*others, (name, value), ("Z", "z")])
        assert caught.value.args == (name, said)


class TestDecode:
    def test_the_golden_text_with_broken_items(self):
        assert decode(b"A\x01\x02B\x01x\x02C\x02\x01y\x02DD\x01z\x02E\x01a\x01b") == {
            "B": "x",
            "DD": "z",
            "E": "a\x01b",
        }

    def test_both_forms_of_the_end_read_the_same(self):
        assert decode(b"KEYS\x01k\x02TAGS\x01t") == decode(b"KEYS\x01k\x02TAGS\x01t\x02") == {"KEYS": "k", "TAGS": "t"}

    def test_the_last_of_equal_names_wins(self):
        assert decode(b"A\x01first\x02A\x01second\x02") == {"A": "second"}

    @given(st.binary(max_size=60))
    def test_no_bytes_make_it_fail(self, encoded):
        assert all(name and value for name, value in decode(encoded).items())


@given(st.dictionaries(WORD, WORD))
def test_properties_read_back_as_they_were_written(pairs):
    assert decode(encode(pairs.items())) == pairs


class TestJavaHashMapOrder:
    @pytest.mark.parametrize(
        ("capacity", "order"),
        [
            (128, "MSG_REGION UNIQ_KEY CLUSTER DELAY TAGS KEYS WAIT TRACE_ON REAL_TOPIC REAL_QID"),
            (16, "REAL_TOPIC TRACE_ON KEYS MSG_REGION UNIQ_KEY CLUSTER WAIT DELAY TAGS REAL_QID"),
        ],
        ids=["RocketMQ 5", "RocketMQ 4"],
    )
    def test_the_golden_orders(self, capacity, order):
        pairs = [(name, "v") for name in INSERTED]
        assert [name for name, _ in java_hash_map_order(pairs, capacity)] == order.split()

    def test_a_map_above_three_quarters_is_ordered_as_one_of_twice_the_capacity(self):
        pairs = [(f"name-{number}", "v") for number in range(13)]
        assert java_hash_map_order(pairs, 16) == java_hash_map_order(pairs, 32)
        assert java_hash_map_order(pairs[:12], 16) != java_hash_map_order(pairs[:12], 32)

    def test_a_repeated_name_keeps_its_place_and_takes_the_last_value(self):
        assert java_hash_map_order([("A", "1"), ("A", "2")], 16) == [("A", "2")]
