"""What a key may do with which topic and group: patterns, files, and decisions."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from towline.errors import MalformedRecord
from towline.format.record.forms import SCHEDULE_TOPIC, delayed, half
from towline.format.record.properties import PAIR_END, encode
from towline.format.record.record import Record, decode
from towline.format.record.record import encode as encode_record
from towline.limits import RETRY_TOPIC_SIZE_MAX
from towline.link.keys import AuthorizedKeys, BadKeys, change_key, list_keys, make_node_keys, new_key
from towline.link.permissions import (
    HOLDER_MAX,
    PATTERNS_MAX,
    REAL_TOPICS_MAX,
    SEEN_MAX,
    Act,
    BadPattern,
    Limits,
    NotPermitted,
    Permit,
    check_pattern,
    fits,
    read_limits,
    read_roles,
    real_topics_of_each,
    seen_topics,
    topics_of,
)

NAMES = st.text("abcXY09_-|.%", min_size=1, max_size=12)


def permit(*roles: str, groups: tuple[str, ...] = ()) -> Permit:
    kinds, limits = read_roles(roles, groups)
    return Permit("app", kinds, limits)


# --- patterns


@given(NAMES, NAMES)
def test_a_whole_name_fits_itself_alone_and_a_beginning_all_that_begin_so(name: str, other: str) -> None:
    assert fits(name, name)
    assert fits(name, other) is (name == other)
    assert fits(name + "*", name + other)
    assert fits(name + "*", other) is other.startswith(name)


@given(NAMES, st.booleans())
def test_what_is_written_as_a_pattern_is_one(name: str, begins: bool) -> None:
    check_pattern(name + "*" * begins)


@pytest.mark.parametrize("pattern", ["", "a*b", "**", "a b", "a,b", "ü", "a\n", "/a", "x" * (RETRY_TOPIC_SIZE_MAX + 2)])
def test_what_is_none_is_refused(pattern: str) -> None:
    with pytest.raises(BadPattern):
        check_pattern(pattern)


@given(st.lists(NAMES, max_size=5), st.lists(NAMES, max_size=5))
def test_a_file_and_another_process_read_the_limits_that_were_said(topics: list[str], groups: list[str]) -> None:
    said = "consumer:" + ",".join(topics) if topics else "consumer"
    kinds, limits = read_roles([said], groups)
    assert read_limits(json.loads(json.dumps(limits.facts)), kinds) == limits
    again = Permit.read(json.loads(json.dumps(Permit("app", kinds, limits).facts)))
    for name in (*topics, "another"):
        assert again.may(Act.CONSUME, name) is Permit("app", kinds, limits).may(Act.CONSUME, name)


def test_the_longest_limits_fit_into_a_question_to_another_process() -> None:
    patterns = tuple(f"{number:02}".ljust(RETRY_TOPIC_SIZE_MAX, "x") + "*" for number in range(PATTERNS_MAX))
    longest = Permit("n" * 64, ("consumer",), Limits((("consumer", patterns),)).check(("consumer",)))
    assert len(json.dumps(longest.facts)) < HOLDER_MAX
    with pytest.raises(BadPattern, match=f"{PATTERNS_MAX} are allowed"):
        Limits((("consumer", (*patterns, "one-more")),)).check(("consumer",))


# --- decisions

CASES = {
    "a producer of all": (permit("producer"), {Act.PRODUCE: {"orders": True, "%RETRY%g": True, "RMQ_SYS_X": True}}),
    "a producer of some": (
        permit("producer:orders,orders-*,SELF_TEST_TOPIC"),
        {
            Act.PRODUCE: {
                "orders": True, "orders-eu": True, "orders_eu": False, "Orders": False, "bills": False, "": False,
                "%RETRY%orders": False, "%DLQ%g": False, "SELF_TEST_TOPIC": True, "SCHEDULE_TOPIC_XXXX": False,
            },
            Act.CONSUME: {"orders": False},
            Act.LOOK: {"orders": True, "bills": False},
            Act.JOIN: {"g": False},
        },
    ),
    "every name, which is neither a group's topic nor the broker's own": (
        permit("producer:*", "consumer:*", groups=("g",)),
        {
            Act.PRODUCE: {"orders": True, "%RETRY%g": True, "%RETRY%h": False, "RMQ_SYS_TRACE_TOPIC": False},
            Act.CONSUME: {"orders": True, "%DLQ%g": True, "%DLQ%h": False, "RMQ_SYS_TRANS_HALF_TOPIC": False},
        },
    ),
    "a consumer of some in a group": (
        permit("consumer:bills", groups=("billing-*", "audit")),
        {
            Act.CONSUME: {"bills": True, "orders": False, "%RETRY%audit": True, "%RETRY%billing-1": True,
                          "%DLQ%other": False},
            Act.PRODUCE: {"bills": False, "%RETRY%audit": True, "%DLQ%billing-1": True, "%RETRY%other": False},
            Act.JOIN: {"audit": True, "billing-1": True, "billing": False},
            Act.MANAGE: {"audit": False},
        },
    ),
    "a consumer of some in every group": (
        permit("consumer:bills"), {Act.JOIN: {"g": True}, Act.CONSUME: {"%RETRY%g": True, "orders": False}},
    ),
    "dead letters that are named": (
        permit("consumer:%DLQ%*", groups=("g",)),
        {Act.CONSUME: {"%DLQ%other": True, "%RETRY%other": False, "orders": False}},
    ),
    "an admin of some": (
        permit("admin:orders-*"),
        {
            **{act: {"orders-eu": True, "bills": False} for act in (Act.PRODUCE, Act.CONSUME, Act.ADMINISTER)},
            Act.MANAGE: {"g": False},
        },
    ),
    "an admin of some and of a group": (permit("admin:orders", groups=("g",)), {Act.MANAGE: {"g": True, "h": False}}),
    "an admin": (
        permit("admin", "consumer:bills", groups=("g",)),
        {act: {"orders": True, "%RETRY%h": True, "h": True} for act in Act},
    ),
    "the nodes' own key": (Permit("node", ("node",)), {act: {"orders": False} for act in Act}),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_key_reaches_what_its_roles_and_patterns_say(name: str) -> None:
    found, expected = CASES[name]
    for act, names in expected.items():
        assert {each: found.may(act, each) for each in names} == names, act
        assert {each: found.refusal(act, each) is None for each in names} == names, act


def test_a_refusal_names_key_topic_and_the_patterns_that_rule() -> None:
    with pytest.raises(NotPermitted) as refused:
        permit("producer:orders,orders-*").check(Act.PRODUCE, "bills")
    said = "the key 'app' may not produce to topic 'bills': its role producer is for orders, orders-*"
    assert refused.value.describe() == said
    with pytest.raises(NotPermitted, match="consume in group 'h': its groups are g"):
        permit("consumer", groups=("g",)).check(Act.JOIN, "h")
    with pytest.raises(NotPermitted, match="may not consume topic 'bills': its roles are producer"):
        permit("producer").check(Act.CONSUME, "bills")
    with pytest.raises(NotPermitted, match="an admin without topics, and its role admin is for orders"):
        permit("admin:orders").check_whole("ask node_status")


def test_names_that_are_asked_for_without_end_are_not_kept() -> None:
    found = permit("producer:orders")
    for number in range(20_000):
        assert not found.may(Act.PRODUCE, f"other-{number}")
    assert len(found._known) <= 4_096
    assert found.may(Act.PRODUCE, "orders")


def test_what_is_too_long_for_a_name_is_not_remembered_and_refused_to_who_is_limited() -> None:
    name, too_long = "o" * RETRY_TOPIC_SIZE_MAX, "o" * (RETRY_TOPIC_SIZE_MAX + 1)
    limited, consumer, chief = permit("producer:o*"), permit("consumer"), permit("admin", "consumer:bills")
    assert [limited.may(Act.PRODUCE, each) for each in (name, too_long)] == [True, False]
    with pytest.raises(NotPermitted, match="may not produce"):
        limited.check(Act.PRODUCE, too_long)
    assert consumer.may(Act.JOIN, too_long), "as before it had limits, nobody asks whether such a group can be"
    assert chief.may(Act.PRODUCE, too_long)
    for found in (limited, consumer, chief):
        for act in Act:
            found.may(act, too_long)
        assert all(len(each) <= RETRY_TOPIC_SIZE_MAX for _, each in found._known)


# --- records of forms


def record(topic: str, body: bytes = b"", *pairs: tuple[str, str]) -> bytes:
    return encode_record(Record(topic=topic.encode(), body=body, properties=encode(pairs)))


def test_the_topics_that_records_of_a_form_are_for_are_found_in_one_search() -> None:
    forms = [delayed("orders", 0, 1), half("bills", 2, "g"), delayed("%RETRY%g", 0, 3)]
    made = [record(form.topic, b"body", *form.pairs) for form in forms]
    data = b"".join(made)
    assert seen_topics(data) == set(real_topics_of_each(data)) == {"orders", "bills", "%RETRY%g"}
    assert [topics_of(decode(each)) for each in made] == [{"orders"}, {"bills"}, {"%RETRY%g"}]
    assert topics_of(decode(record("plain", b"x", ("REAL_TOPIC", "orders")))) == {"plain"}


def test_a_second_name_counts_too_and_a_body_only_in_the_first_look() -> None:
    form = delayed("orders", 0, 1)
    twice = record(form.topic, b"", *form.pairs, ("REAL_TOPIC", "bills"))
    assert seen_topics(twice) == set(real_topics_of_each(twice)) == {"orders", "bills"}
    inside = record(form.topic, record(form.topic, b"", *delayed("bills", 0, 1).pairs), *form.pairs)
    assert seen_topics(inside) == {"orders", "bills"}
    assert set(real_topics_of_each(inside)) == {"orders"}


def test_a_name_without_its_last_separator_is_read_to_the_record_s_end() -> None:
    pairs = encode([("REAL_TOPIC", "orders")]).removesuffix(PAIR_END.encode())
    one = encode_record(Record(topic=b"SCHEDULE_TOPIC_XXXX", body=b"", properties=pairs))
    assert set(real_topics_of_each(one + one)) == {"orders"}
    assert seen_topics(one + one) is None, "so that the second look is taken"


SWALLOWING = b"REAL_TOPIC\x01ab"


def unended(name: str, body: bytes = b"") -> bytes:
    """A delayed record whose last property, REAL_TOPIC, has no separator behind it."""
    properties = encode([("REAL_TOPIC", name)]).removesuffix(PAIR_END.encode())
    return encode_record(Record(topic=SCHEDULE_TOPIC.encode(), body=body, properties=properties))


HIDING = {
    "a body that ends inside a name": record(SCHEDULE_TOPIC, SWALLOWING, *delayed("secret", 0, 1).pairs),
    "a body that ends inside a retry topic's name": record(
        SCHEDULE_TOPIC, b"REAL_TOPIC\x01%RETRY%g", *delayed("secret", 0, 1).pairs
    ),
    "a property without an end before another record": unended("ab") + unended("secret"),
    "a name that is as long as one may be": record(
        SCHEDULE_TOPIC, SWALLOWING + b"b" * (RETRY_TOPIC_SIZE_MAX - 2) + b"REAL_TO", ("REAL_TOPIC", "secret")
    ),
    "more names than one look finds": record(
        SCHEDULE_TOPIC,
        b"".join(b"REAL_TOPIC\x01ab%d\x02" % number for number in range(SEEN_MAX + 1)),
        *delayed("secret", 0, 1).pairs,
    ),
}


@pytest.mark.parametrize("data", HIDING.values(), ids=HIDING)
def test_no_body_and_no_other_record_hides_the_topic_that_a_record_is_for(data: bytes) -> None:
    assert "secret" in set(real_topics_of_each(data))
    seen = seen_topics(data)
    assert seen is None or "secret" in seen


PIECES = st.sampled_from([b"REAL_TOPIC", b"\x01", b"\x02", b"ab", b"x" * 250, b"\x00", b"\xff", b"secret", b"%RETRY%"])


@given(st.lists(st.tuples(st.lists(PIECES, max_size=8), st.lists(PIECES, max_size=8)), min_size=1, max_size=4))
def test_whatever_records_hold_one_look_finds_all_topics_or_says_that_it_does_not(
    parts: list[tuple[list[bytes], list[bytes]]],
) -> None:
    data = b"".join(
        encode_record(Record(topic=SCHEDULE_TOPIC.encode(), body=b"".join(body), properties=b"".join(properties)))
        for body, properties in parts
    )
    seen = seen_topics(data)
    assert seen is None or set(real_topics_of_each(data)) <= seen


def test_records_of_more_topics_than_are_decided_for_one_put_are_refused() -> None:
    names = [("REAL_TOPIC", f"o{number:04}") for number in range(REAL_TOPICS_MAX + 1)]
    made = [record(SCHEDULE_TOPIC, b"", *names[at : at + 1_000]) for at in range(0, len(names), 1_000)]
    assert len(set(real_topics_of_each(b"".join(made[:4])))) == 4_000
    with pytest.raises(MalformedRecord, match=f"at most {REAL_TOPICS_MAX} topics"):
        list(real_topics_of_each(b"".join(made)))


# --- files


@pytest.fixture
def ring(tmp_path: Path) -> Path:
    make_node_keys(tmp_path / "ring")
    return tmp_path / "ring"


def test_a_file_of_before_has_no_limits_and_is_written_without(ring: Path) -> None:
    new_key(ring, "app", ["producer", "consumer"])
    found = json.loads((ring / "allowed" / "app.json").read_text())
    assert sorted(found) == ["name", "public", "roles"]
    access = AuthorizedKeys(ring).access("app")
    assert access is not None
    assert not AuthorizedKeys(ring).permit(access[0]).is_limited


def test_a_change_is_known_to_a_running_ring_and_keeps_the_secret(ring: Path) -> None:
    new_key(ring, "app", ["producer:orders"])
    running = AuthorizedKeys(ring)
    was = running.access("app")
    assert was is not None
    assert running.permit(was[0]) is running.permit(was[0]), "decided once"
    change_key(ring, "app", ["consumer:bills"], ["billing"])
    now = running.access("app")
    assert now is not None
    assert now[1] == was[1]
    assert now[0].may_greet_as == {"consumer", "producer"}, "it gives messages back"
    assert running.changed([was[0]]) == {was[0]: now[0]}
    assert (running.permit(was[0]).may(Act.PRODUCE, "orders"), running.permit(now[0]).may(Act.PRODUCE, "orders")) == (
        True,
        False,
    )
    assert [listed.key.limits.groups for listed in list_keys(ring)] == [("billing",)]


BAD = {
    "no list": {"topics": {"producer": "orders"}},
    "an empty one": {"topics": {"producer": []}},
    "no pattern": {"topics": {"producer": ["a*b"]}},
    "a role that it has not": {"topics": {"consumer": ["a"]}},
    "groups of a producer": {"groups": ["g"]},
    "another field": {"topic": {"producer": ["a"]}},
    "no object": ["orders"],
}


@pytest.mark.parametrize("limits", BAD.values(), ids=BAD)
def test_bad_limits_refuse_a_start_and_open_nothing_beside_a_running_node(
    ring: Path, limits: object, caplog: pytest.LogCaptureFixture
) -> None:
    new_key(ring, "app", ["producer"])
    running = AuthorizedKeys(ring)
    found = running.access("app")
    assert found is not None
    path = ring / "allowed" / "app.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"limits": limits}))
    assert running.access("app") is None
    assert running.changed([found[0]]) == {found[0]: None}
    assert any("a key file is ignored" in message and "app.json" in message for message in caplog.messages)
    with pytest.raises(BadKeys, match=r"app\.json"):
        AuthorizedKeys(ring)
