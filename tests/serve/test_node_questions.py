"""Questions about the node as a whole, of which so many are answered at once."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes.waiting import await_
from towline.serve import node_questions
from towline.serve.node_questions import AT_ONCE_MAX, Facts, NodeQuestions, TooManyAsk

STATUS: Facts = {"op": "node_status"}
CHANGE: Facts = {"op": "node_configure", "settings": {"broker_permission": 6}, "keep": False}


@pytest.fixture
def go(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """No question is answered before this is set."""
    event = threading.Event()

    def answer(*_: object, **__: object) -> Facts:
        event.wait()
        return {}

    monkeypatch.setattr(node_questions, "read_status", answer)
    monkeypatch.setattr(node_questions, "change_settings", answer)
    yield event
    event.set()


def test_a_change_is_taken_while_as_many_look_on_as_may(tmp_path: Path, go: threading.Event) -> None:
    questions = NodeQuestions(tmp_path, lambda: None)
    for number in range(AT_ONCE_MAX):
        questions.ask(b"p", number, STATUS)
    with pytest.raises(TooManyAsk, match=f"{AT_ONCE_MAX} questions"):
        questions.ask(b"p", 8, STATUS)
    questions.ask(b"p", 9, CHANGE)
    with pytest.raises(TooManyAsk, match=f"{AT_ONCE_MAX + 1} questions"):
        questions.ask(b"p", 10, CHANGE)
    go.set()
    answered = []
    await_(lambda: answered.extend(questions.cycle()) or not len(questions), 30.0, "all are answered")
    assert sorted(answer.request_id for answer in answered) == [*range(AT_ONCE_MAX), 9]
