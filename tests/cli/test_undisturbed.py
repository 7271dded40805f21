"""Verifying beside a node that deletes: what went meanwhile is no damage, and what is damaged stays damage."""

from types import SimpleNamespace

import pytest

from towline.errors import NotInLog
from towline.log.repair.verify_report import Findings, Weight
from towline.node.store.store_access import ATTEMPTS, verify_beside_node

TORN, HOLE, NEW = "TORN_TAIL", "QUEUE_MISSING", "INDEX_UNFINISHED"


class Attempts:
    """Each attempt meets the next of `outcomes`: rules that are broken, or an error."""

    def __init__(self, root, *outcomes, limit=1000):
        self.root, self.outcomes, self.limit = root, list(outcomes), limit

    def __call__(self):
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        findings = Findings(self.root)
        for rule in outcome:
            findings.add(self.root / "index" / "1", 40, 60, rule)
        findings.add(self.root / "abort", 0, 1, "CLOSED_UNCLEANLY")
        return SimpleNamespace(findings=findings, limit=self.limit)


def found(attempts):
    findings = verify_beside_node(attempts).findings
    assert findings.rows[-1].rule == "CLOSED_UNCLEANLY", "a note stays"
    assert findings.worst is max(row.weight for row in findings.rows)
    return [row.rule for row in findings.rows[:-1]]


GONE = (NotInLog(0, 100, 200), FileNotFoundError(2, "gone"))


@pytest.mark.parametrize("gone", GONE, ids=lambda error: type(error).__name__)
def test_what_is_not_found_again_is_no_damage(tmp_path, gone):
    attempts = Attempts(tmp_path, [TORN, HOLE], gone, [NEW])
    assert found(attempts) == []
    assert not attempts.outcomes


def test_what_is_found_again_is_damage(tmp_path):
    attempts = Attempts(tmp_path, [TORN, HOLE], [HOLE, NEW], [NEW, HOLE], [])
    assert found(attempts) == [HOLE]
    assert attempts.outcomes == [[]], "two that agree are enough"


def test_a_sound_store_and_one_without_a_node_are_read_once(tmp_path):
    assert found(Attempts(tmp_path, [])) == []
    assert found(Attempts(tmp_path, [TORN], limit=None)) == [TORN]
    assert verify_beside_node(Attempts(tmp_path, [])).findings.worst is Weight.NOTE


def test_what_never_rests_is_told_as_it_was_found_each_time(tmp_path):
    outcomes = [[HOLE, TORN, NEW], [HOLE, TORN], *[[HOLE]] * (ATTEMPTS - 2)]
    assert found(Attempts(tmp_path, *outcomes)) == [HOLE]


@pytest.mark.parametrize("gone", GONE, ids=lambda error: type(error).__name__)
def test_what_is_deleted_at_every_attempt_cannot_be_read(tmp_path, gone):
    with pytest.raises(type(gone)):
        verify_beside_node(Attempts(tmp_path, *[gone] * ATTEMPTS))
    assert found(Attempts(tmp_path, [TORN], *[gone] * (ATTEMPTS - 1))) == [TORN]
