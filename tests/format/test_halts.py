"""Every number that reput can stand still with has a name and a sentence."""

from towline.format.halts import Halt, why
from towline.format.rules import Rule


def test_rules_and_halts_are_named():
    assert {why(halt)[0] for halt in Halt} == {"QUEUE_GAP", "TOPIC_PLACE", "TOO_MANY_QUEUES"}
    for rule in Rule:
        assert why(rule) == (rule.name, rule.sentence)
    assert all(len(why(number)[1].split()) > 3 for number in [*Rule, *Halt])
    assert max(Rule) < min(Halt)
