"""Names of properties and bits of SYSFLAG that a sender may not use: each refused by its rule, and nothing like it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kernels.put.test_stamp import Request, is_copied, one_group, sent
from towline.format.record import record
from towline.format.record.properties import RESERVED, TRANSIENT_PREFIX
from towline.format.record.rules import Rule
from towline.kernels.put.stamp import CHECK_CRC, FROM_CLIENT

CLIENT = CHECK_CRC | FROM_CLIENT
BEFORE = b"TAGS\x01TagA\x02traceparent\x01x\x02"
BEHIND = b"UNIQ_KEY\x01" + b"0" * 32 + b"\x02"


def request_of(properties: bytes, checks: int = CLIENT) -> Request:
    return one_group(sent(b"TopicA", properties=properties), checks=checks)


def rule_of(properties: bytes, checks: int = CLIENT) -> Rule:
    return request_of(properties, checks).run()[0]


@pytest.mark.parametrize(("name", "rule"), RESERVED.items())
@pytest.mark.parametrize("ended", [b"\x02", b"\x02" + BEHIND, b""])
def test_a_reserved_name_is_refused_wherever_it_stands(name: str, rule: Rule, ended: bytes) -> None:
    pair = name.encode() + b"\x01some value" + ended
    assert rule_of(pair) == rule
    request = request_of(BEFORE + pair)
    frame = b"".join(request.groups[0].records)
    assert request.run() == (rule, [100])
    assert request.result[:3].tolist() == [0, 0, frame.index(pair)]
    assert is_copied(request.log, frame), "a refused request is not stamped"
    assert rule_of(BEFORE + pair, CHECK_CRC) == Rule.OK, "a broker's own records are not judged by this"


@pytest.mark.parametrize("name", RESERVED)
def test_a_name_that_only_resembles_a_reserved_one_is_taken(name: str) -> None:
    for other in (name[:-1], name + "X", "X" + name, name.lower(), name[:-1] + "x"):
        pair = other.encode() + b"\x01v\x02"
        assert rule_of(BEFORE + pair + BEHIND) == (RESERVED.get(other) or Rule.OK), other
    assert rule_of(b"A\x01" + name.encode() + b"\x02" + BEHIND) == Rule.OK
    assert rule_of(b"A\x01b\x01" + name.encode() + b"\x01c\x02" + BEHIND) == Rule.OK, "it stands in a value"


def test_transient_names_are_refused_by_their_beginning() -> None:
    for name in (TRANSIENT_PREFIX, TRANSIENT_PREFIX + "anything"):
        assert rule_of(BEFORE + name.encode() + b"\x01v\x02") == Rule.PROPERTY_NEVER_STORED
    assert rule_of(TRANSIENT_PREFIX[:-1].encode() + b"\x01v\x02") == Rule.OK


@pytest.mark.parametrize(
    ("name", "own"), [("CLUSTER", "cluster-a"), ("MSG_REGION", "DefaultRegion"), ("TRACE_ON", "true")]
)
def test_what_this_broker_would_write_is_taken_and_nothing_else(name: str, own: str) -> None:
    for value, rule in (
        (own, Rule.OK),
        (own + "x", Rule.PROPERTY_OF_ANOTHER_BROKER),
        (own[:-1], Rule.PROPERTY_OF_ANOTHER_BROKER),
        ("", Rule.PROPERTY_OF_ANOTHER_BROKER),
        ("another", Rule.PROPERTY_OF_ANOTHER_BROKER),
    ):
        pair = f"{name}\x01{value}".encode()
        for properties in (pair, pair + b"\x02", BEFORE + pair + b"\x02" + BEHIND):
            assert rule_of(properties) == rule, properties


@given(st.text(st.sampled_from("ACDILMNPRST_EOKVx"), min_size=1, max_size=12), st.booleans())
def test_any_other_name_is_taken(name: str, last: bool) -> None:
    wanted = RESERVED.get(name, Rule.OK)
    pair = name.encode() + b"\x01v\x02"
    assert rule_of(BEHIND + pair if last else pair + BEHIND) == wanted


@pytest.mark.parametrize(
    ("sys_flag", "rule"),
    [
        (record.TRANSACTION_PREPARED, Rule.SYS_FLAG),
        (record.TRANSACTION_COMMIT, Rule.SYS_FLAG),
        (record.TRANSACTION_ROLLBACK, Rule.SYS_FLAG),
        (record.NEED_UNWRAP, Rule.SYS_FLAG),
        (record.INNER_BATCH, Rule.SYS_FLAG),
        (record.INNER_BATCH | record.NEED_UNWRAP | record.TRANSACTION_COMMIT, Rule.SYS_FLAG),
        (record.COMPRESSED | record.COMPRESSION_ZSTD | record.MULTI_TAGS, Rule.OK),
    ],
)
def test_bits_of_sysflag(sys_flag: int, rule: Rule) -> None:
    one = sent(b"TopicA", sys_flag=sys_flag)
    assert one_group(one, checks=CLIENT).run()[0] == rule
    assert one_group(one).run()[0] == Rule.OK
