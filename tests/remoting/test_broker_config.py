"""UPDATE_BROKER_CONFIG, as serve answers it: a change that some process has not taken is no success."""

from typing import Any

import pytest

from towline.format.remoting.codes import RequestCode, ResponseCode
from towline.format.remoting.command import Command
from towline.remoting.admin_broker import BrokerAdmin
from towline.remoting.questions import Facts, Told


class Serve:
    """Answers every question with these facts."""

    def __init__(self, facts: Facts | None) -> None:
        self.facts = facts
        self.asked: list[tuple[str, Facts]] = []

    def ask(self, op: str, facts: Facts, told: Told) -> bool:
        self.asked.append((op, facts))
        told(self.facts, [])
        return True


@pytest.mark.parametrize(
    ("facts", "code", "remark"),
    [
        ({"settings": {"broker_permission": 4}, "waiting": []}, ResponseCode.SUCCESS, ""),
        (
            {"settings": {"broker_permission": 4}, "waiting": ["put", "remoting"]},
            ResponseCode.SYSTEM_ERROR,
            "the change is kept, and not taken yet by put, remoting: that takes until one long call is over",
        ),
        ({"error": "BadSetting", "sentence": "why"}, ResponseCode.INVALID_PARAMETER, "why"),
        (None, ResponseCode.SYSTEM_ERROR, "serve has ended or does not answer"),
    ],
    ids=["taken", "not taken yet", "refused", "lost"],
)
def test_success_means_that_every_process_has_the_change(facts: Facts | None, code: int, remark: str) -> None:
    unused: Any = None
    serve: Any = Serve(facts)
    answers: list[tuple[int, str]] = []

    def answer(given: int, remark: str = "") -> None:
        answers.append((given, remark))

    told: Any = answer
    request = Command(RequestCode.UPDATE_BROKER_CONFIG, body=b"brokerPermission=4\n")
    BrokerAdmin(serve, unused, unused).update(request, told)
    assert serve.asked == [("node_configure", {"settings": {"broker_permission": "4"}, "keep": True})]
    assert answers == [(code, remark)]
