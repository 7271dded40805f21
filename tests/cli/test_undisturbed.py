"""Verifying beside a node that deletes: what went meanwhile is no damage, and what is damaged stays damage."""

from types import SimpleNamespace

import pytest

from cli.store_verify import ATTEMPTS, undisturbed
from towline.errors import NotInLog
from towline.format.durable import Durable
from towline.log.durable_file import DurableFile
from towline.log.findings import Weight
from towline.places import Store


class Attempts:
    """Each attempt meets the next of `outcomes`; before it the log begins `rises` further on, if it is to."""

    def __init__(self, root, *outcomes, rises):
        self.store = Store(root)
        self.file = DurableFile(root)
        self.outcomes = list(outcomes)
        self.rises = rises
        self.low = 0
        self.file.save(Durable())

    def __call__(self):
        if self.rises:
            self.low += self.rises
            self.file.save(Durable(log_min=self.low, flushed=self.low))
        outcome = self.outcomes.pop(0)
        if outcome is NotInLog:
            raise NotInLog(0, 100, 200)
        return SimpleNamespace(weight=outcome)


def test_damage_is_looked_at_again_where_something_was_deleted_meanwhile(tmp_path):
    attempts = Attempts(tmp_path, Weight.DAMAGE, NotInLog, Weight.NOTE, rises=100)
    assert undisturbed(attempts.store, attempts).weight is Weight.NOTE
    assert not attempts.outcomes


def test_damage_is_damage_where_nothing_was_deleted(tmp_path):
    attempts = Attempts(tmp_path, Weight.DAMAGE, Weight.NOTE, rises=0)
    assert undisturbed(attempts.store, attempts).weight is Weight.DAMAGE
    assert attempts.outcomes == [Weight.NOTE], "once is enough"


def test_what_never_rests_is_told_as_it_was_found_last(tmp_path):
    attempts = Attempts(tmp_path, *[Weight.DAMAGE] * ATTEMPTS, rises=100)
    assert undisturbed(attempts.store, attempts).weight is Weight.DAMAGE
    assert not attempts.outcomes
    attempts = Attempts(tmp_path, *[NotInLog] * ATTEMPTS, rises=100)
    with pytest.raises(NotInLog):
        undisturbed(attempts.store, attempts)
