"""What is shown of a status, and what of it counts as news."""

import pytest

from tests.web.asked import status
from towline.client.looks import Look
from towline.web.changes import Documents, Table
from towline.web.shown import MEMORY_STEP, happened, sections_of

NODE = "tcp://one"


def test_a_row_is_told_when_it_is_new_or_other_and_its_key_when_it_has_gone() -> None:
    table = Table()
    assert table.change([["a", 1], ["b", 1]]) == {"rows": [["a", 1], ["b", 1]]}
    assert table.change([["a", 1], ["b", 2]]) == {"rows": [["b", 2]]}
    assert table.change([["a", 1]]) == {"gone": ["b"]}
    assert table.change([["a", 1]]) == {}
    assert table.state() == {"all": [["a", 1]]}


def test_a_section_that_is_not_given_stays_as_it_was() -> None:
    documents = Documents()
    documents.change(NODE, {"head": 1, "rates": 1})
    assert documents.change(NODE, {"head": 2}) == {"head": 2}
    assert documents[NODE] == {"head": 2, "rates": 1}


def test_a_node_that_does_not_answer_is_told_with_the_time_of_its_first_silence() -> None:
    first = sections_of(Look(NODE, status()), {}, 1_000)
    silent = sections_of(Look(NODE, None, "why"), first, 2_000)
    still = sections_of(Look(NODE, None, "why"), first | silent, 3_000)
    assert silent == still == {"reach": {"answers": False, "since_ms": 2_000, "why": "why"}}
    assert sections_of(Look(NODE, status()), silent, 4_000)["reach"]["since_ms"] == 4_000


def test_what_moves_with_the_clock_alone_is_no_news() -> None:
    cause = {"cause": "DISK_FULL", "count": 3, "remedy": "make room"}
    refused = [{"total": 3, "causes": [cause | {"last_ms_ago": ago}]} for ago in (500, 1_500)]
    before = sections_of(Look(NODE, status(refused=refused[0], pss=MEMORY_STEP)), {}, 10_000)
    after = sections_of(Look(NODE, status(refused=refused[1], pss=MEMORY_STEP + 1)), before, 11_000)
    assert before == after
    assert before["refused"]["causes"][0]["last_ms"] == 9_500


def test_a_brief_answer_leaves_the_memory_as_it_was_told() -> None:
    brief = status()
    del brief["pss"], brief["disk"]
    brief["processes"] = [
        {"duty": "put", "pid": 2, "state": "RUNNING"},
        {"duty": "serve", "pid": 3, "state": "RUNNING"},
    ]
    before = sections_of(Look(NODE, status()), {}, 1_000)
    after = sections_of(Look(NODE, brief, cpu={2: 12.34}), before, 2_000)
    assert after["processes"] == [["put", 2, "RUNNING", 12.3, 5 << 20], ["serve", 3, "RUNNING", None, None]]
    assert "memory" not in after


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"role": "slave"}, "a-0 was master and is slave of epoch 256"),
        ({"epoch": 512}, "a-0 is master of epoch 512 now, after 256"),
        ({"generation": 8}, "a-0 was started anew"),
        (
            {"ready": False, "not_ready": [{"sentence": "a sync of the log failed", "remedy": ""}]},
            "a-0 is not ready: a sync of the log failed",
        ),
        ({}, ""),
    ],
    ids=["role", "epoch", "start", "not ready", "nothing"],
)
def test_what_happens_to_a_node_is_a_sentence(changed: dict[str, object], said: str) -> None:
    before = sections_of(Look(NODE, status()), {}, 1_000)
    after = sections_of(Look(NODE, status(**changed)), before, 2_000)
    assert happened(NODE, before, after) == ([said] if said else [])
    assert happened(NODE, {}, after) == [], "nobody looked before"


def test_what_is_wrong_comes_with_its_remedy() -> None:
    stopped = {"segment": "/var/a/commitlog/0", "byte": 5, "remedy": "repair it"}
    damaged = {"count": 2, "remedy": "run `towline store verify`"}
    in_sync = status()["in_sync"] | {"degraded": True, "wanted": 2}
    found = sections_of(
        Look(NODE, status(dispatch_stopped=stopped, damaged=damaged, in_sync=in_sync, flags=["LOG_ERROR"])), {}, 0
    )["wrong"]
    assert [each["remedy"] for each in found] == ["repair it", "run `towline store verify`", "", ""]
    assert "at byte 5" in found[0]["sentence"]
    assert found[2]["sentence"] == "the in-sync set has 1 of 2 nodes"
