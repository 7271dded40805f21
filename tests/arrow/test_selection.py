"""Which records a selection keeps, against a predicate on the plain decoder's rows."""

import pickle
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from towline.arrow.columns import COLUMNS
from towline.arrow.decode import batches
from towline.arrow.selection import EVERY_OFFSET, Selection
from towline.filter.errors import BadExpression
from towline.format.files.topics import SYSTEM_TOPICS

from .logs import BASE, array, message, rows, segment
from .reference import rows_of

HALF = "RMQ_SYS_TRANS_HALF_TOPIC"
TOPICS = [*sorted(SYSTEM_TOPICS), HALF, "RMQ_SYS_TRANS_OP_HALF_TOPIC", "rmq_sys_wheel_timer", "%RETRY%g", "%DLQ%g"]
TOPICS += ["orders", "orders-2", "Orders", "payments", "RMQ_SYSTEM"]
TAGS = ["", "red", "blue", "rot", "grün"]
LOG = segment(
    message(
        number,
        topic=TOPICS[number % len(TOPICS)].encode(),
        sys_flag=(0, 4, 8, 12, 0, 0, 0)[number % 7],
        queue_id=number % 3,
        properties="".join(
            f"{name}\x01{value}\x02"
            for name, value in [
                ("TAGS", TAGS[number // 7 % len(TAGS)]),
                ("KEYS", ["", "k1", "k2 k1", "k3  k4", f"n{number}"][number // 11 % 5]),
                ("UNIQ_KEY", f"U{number:04}" if number % 4 else ""),
            ]
            if value
        ).encode(),
    )
    for number in range(420)
)
EXPECTED = rows_of(LOG, BASE)


def is_system(topic: str) -> bool:
    return topic in SYSTEM_TOPICS or topic.startswith(("RMQ_SYS_", "rmq_sys_"))


def is_half(row: dict[str, Any]) -> bool:
    return row["topic"] == HALF or row["sysFlag"] & 12 in (4, 12)


def shown(row: dict[str, Any]) -> bool:
    return not is_system(row["topic"]) and not is_half(row)


def kept(selection: Selection, **how: Any) -> list[dict[str, Any]]:
    return rows(batches(array(LOG), BASE, 0, len(LOG), COLUMNS, selection, broker_name="broker-a", **how))


MIDDLE = EXPECTED[200]["commitLogOffset"]
AT = EXPECTED[100]["storeTimestamp"] // 1000
CASES: dict[str, tuple[Selection, Callable[[dict[str, Any]], Any]]] = {
    "the default": (Selection(), shown),
    "system": (Selection(system=True), lambda row: not is_half(row)),
    "halves": (Selection(halves=True), lambda row: row["topic"] == HALF or not is_system(row["topic"])),
    "everything": (Selection(system=True, halves=True), lambda row: True),
    "topics": (
        Selection(topics=frozenset({"orders", "%RETRY%g", "none"})),
        lambda row: shown(row) and row["topic"] in ("orders", "%RETRY%g"),
    ),
    "a system topic by name": (
        Selection(topics=frozenset({"SCHEDULE_TOPIC_XXXX"})),
        lambda row: row["topic"] == "SCHEDULE_TOPIC_XXXX" and not is_half(row),
    ),
    "the half topic by name": (Selection(topics=frozenset({HALF})), lambda row: False),
    "halves by name": (Selection(topics=frozenset({HALF}), halves=True), lambda row: row["topic"] == HALF),
    "a pattern": (
        Selection(topic_pattern="orders.*|RMQ_.*"),
        lambda row: shown(row) and (row["topic"].startswith("orders") or row["topic"] == "RMQ_SYSTEM"),
    ),
    "a pattern is for the whole name": (
        Selection(topic_pattern="orders"),
        lambda row: shown(row) and row["topic"] == "orders",
    ),
    "queues": (
        Selection(queues={("orders", 1): (0, 200), ("payments", 2): EVERY_OFFSET, ("none", 0): EVERY_OFFSET}),
        lambda row: (
            shown(row)
            and (
                (row["topic"] == "orders" and row["queueId"] == 1 and row["queueOffset"] < 200)
                or (row["topic"] == "payments" and row["queueId"] == 2)
            )
        ),
    ),
    "queues and topics": (
        Selection(queues={("orders", 1): (100, 200), ("payments", 2): EVERY_OFFSET}, topics=frozenset({"orders"})),
        lambda row: shown(row) and row["topic"] == "orders" and row["queueId"] == 1 and 100 <= row["queueOffset"] < 200,
    ),
    "queue ids": (Selection(queue_ids=frozenset({0, 2})), lambda row: shown(row) and row["queueId"] != 1),
    "from an offset": (Selection(start_offset=MIDDLE), lambda row: shown(row) and row["commitLogOffset"] >= MIDDLE),
    "to an offset": (Selection(end_offset=MIDDLE), lambda row: shown(row) and row["commitLogOffset"] < MIDDLE),
    "times": (
        Selection(start_ms=AT, end_ms=AT + 50),
        lambda row: shown(row) and AT * 1000 <= row["storeTimestamp"] < (AT + 50) * 1000,
    ),
    "a tag": (Selection(tags="red"), lambda row: shown(row) and row["tags"] == "red"),
    "tags": (Selection(tags=" red||grün "), lambda row: shown(row) and row["tags"] in ("red", "grün")),
    "all tags": (Selection(tags="*"), shown),
    "no tag at all": (Selection(tags=" || "), lambda row: False),
    "keys": (
        Selection(keys=frozenset({"k1", "k4"})),
        lambda row: shown(row) and {"k1", "k4"} & set((row["keys"] or "").split(" ")),
    ),
    "unique keys": (
        Selection(uniq_keys=frozenset({"U0013", "U0014", "U0016"})),
        lambda row: shown(row) and row["uniqKey"] in ("U0013", "U0014", "U0016"),
    ),
    "all at once": (
        Selection(
            topics=frozenset({"orders", "payments"}), tags="red || blue", keys=frozenset({"k1"}), end_ms=AT + 250
        ),
        lambda row: (
            shown(row)
            and row["topic"] in ("orders", "payments")
            and row["tags"] in ("red", "blue")
            and "k1" in (row["keys"] or "").split(" ")
            and row["storeTimestamp"] < (AT + 250) * 1000
        ),
    ),
}


@pytest.mark.parametrize(("selection", "wanted"), CASES.values(), ids=CASES)
def test_what_is_kept(selection: Selection, wanted: Callable[[dict[str, Any]], Any]) -> None:
    expected = [row for row in EXPECTED if wanted(row)]
    assert kept(selection) == expected
    assert kept(selection, rows=16) == expected
    assert kept(pickle.loads(pickle.dumps(selection))) == expected


def test_the_cases_keep_and_leave_something() -> None:
    """But for those that say that nothing is kept."""
    nothing = {name for name, (_, wanted) in CASES.items() if not any(map(wanted, EXPECTED))}
    assert nothing == {"the half topic by name", "no tag at all"}


@settings(max_examples=40, deadline=None)
@given(
    st.frozensets(st.sampled_from(TOPICS)) | st.none(),
    st.sampled_from(["*", "red", "red || blue"]),
    st.booleans(),
    st.booleans(),
    st.integers(1, 50),
)
def test_any_combination(topics: frozenset[str] | None, tags: str, system: bool, halves: bool, in_a_batch: int) -> None:
    def wanted(row: dict[str, Any]) -> bool:
        named = topics is None or row["topic"] in topics
        tagged = tags == "*" or row["tags"] in tags.split(" || ")
        visible = system or topics is not None or row["topic"] == HALF or not is_system(row["topic"])
        return named and tagged and visible and (halves or not is_half(row))

    selection = Selection(topics=topics, tags=tags, system=system, halves=halves)
    made = list(batches(array(LOG), BASE, 0, len(LOG), COLUMNS, selection, broker_name="broker-a", rows=in_a_batch))
    assert rows(made) == [row for row in EXPECTED if wanted(row)]
    assert all(0 < batch.num_rows <= in_a_batch for batch in made)


def test_few_of_many_come_in_few_batches() -> None:
    selection = Selection(tags="red")
    made = list(batches(array(LOG), BASE, 0, len(LOG), ["topic"], selection, rows=30))
    count = sum(map(shown, (row for row in EXPECTED if row["tags"] == "red")))
    assert sum(batch.num_rows for batch in made) == count
    assert len(made) <= count // 15 + 1


def test_a_selection_that_is_none_is_refused_when_it_is_made() -> None:
    with pytest.raises(BadExpression):
        Selection(tags="||")
    with pytest.raises(re.error):
        Selection(topic_pattern="(")


@pytest.mark.parametrize("topic", TOPICS)
def test_whether_a_topic_may_be_wanted(topic: str) -> None:
    assert Selection().wants_topic(topic) == (not is_system(topic))
    assert Selection(system=True, halves=True).wants_topic(topic)
    assert not Selection(topics=frozenset({"other"})).wants_topic(topic)
