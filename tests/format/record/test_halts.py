"""Every number that reput can stand still with has a name and a sentence."""

from towline.format.record.halts import Halt, remedy, why
from towline.format.record.rules import Rule


def test_rules_and_halts_are_named():
    assert {why(halt)[0] for halt in Halt} == {"QUEUE_GAP", "QUEUE_TWICE", "TOO_MANY_QUEUES"}
    for rule in Rule:
        assert why(rule) == (rule.name, rule.sentence)
    assert all(len(why(number)[1].split()) > 3 for number in [*Rule, *Halt])
    assert max(Rule) < min(Halt)


def test_the_remedy_steps_over_a_record_only_where_one_is_damaged():
    damaged = [number for number in [*Rule, *Halt] if "--skip 4711`" in remedy(number, 4711)]
    assert set(damaged) == {*Rule, Halt.QUEUE_TWICE}
    assert "repair --yes`: it puts holes" in remedy(Halt.QUEUE_GAP, 4711)
    assert "repair`" not in remedy(Halt.TOO_MANY_QUEUES, 4711)
