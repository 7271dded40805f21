"""Questions about topics: reads are answered at once, changes when they are durable, while puts go on.

A sync may wait for other writes to the disk, so a thread does it. Waiting changes are made together, in order, and
written at once. Until then all clients see what was durable before, but a topic that is being deleted takes no more
puts: its offsets are being recorded. When the write fails, nothing has changed and each asker gets the error. Where
even that is not certain after a crash, the topics involved are closed, and the file is written again until that
succeeds.
"""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from towline.errors import MalformedFrame, TowlineError
from towline.format.files.topics import TEMPLATE_TOPIC, topic_facts
from towline.format.record.forms import HALF_TOPIC, OP_TOPIC, TRANS_CHECK_TOPIC
from towline.log.errors import SaveInDoubt
from towline.log.files.config_writer import Saver
from towline.runtime.failpoints import ARMED, reach

from .request_queue import QUESTIONS_NS_MAX, Question
from .topics import TopicChange, Topics

RETRY_NS: Final = 1_000_000_000  # between two attempts to settle a file that is in doubt
Facts = dict[str, Any]
# To one question: the answer's facts, or why there are none.
Answer = Callable[[Question, Facts | TowlineError], None]
_NUMBERS: Final = ("read_queues", "write_queues", "perm", "retention_ms", "retention_bytes")


class Numbers(Protocol):
    """The next offsets of a topic's queues."""

    def next_offsets_of(self, topic: bytes) -> dict[int, int]: ...


class TopicQuestions:
    """Answers questions about topics. `end` is the log's end behind every put so far; `changed` is called after a
    commit."""

    def __init__(self, topics: Topics, numbers: Numbers, end: Callable[[], int], changed: Callable[[], None]) -> None:
        self._topics = topics
        self._numbers = numbers
        self._end = end
        self._changed = changed

    def answer(self, question: dict[str, Any]) -> dict[str, Any] | None:
        """The answer to a question that writes nothing; None for any other. Raises a TowlineError that names the
        problem."""
        match question:
            case {"op": "route", "topic": str(name)}:
                queues, template = _wished(question)
                topic = self._topics.committed(name)
                if topic is None:
                    self._topics.check_route(name, queues, template)
                return None if topic is None else topic_facts(topic)
            case {"op": "topics"}:
                known = (self._topics.get(name) for name in self._topics.names())
                return {"topics": [topic_facts(topic) for topic in known if topic is not None]}
        return None

    @staticmethod
    def changes(question: dict[str, Any]) -> bool:
        """Whether `change` handles the question when `answer` has returned None."""
        match question:
            case {"op": "route" | "alter_topic" | "delete_topic", "topic": str()}:
                return True
            case {"op": "create_topic", "topic": str(), "queues": int()} | {"op": "transaction_topics"}:
                return True
        return False

    @staticmethod
    def deletes(question: dict[str, Any]) -> bool:
        return bool(question["op"] == "delete_topic")

    def change(self, question: dict[str, Any]) -> dict[str, Any]:
        """Makes the change and returns the answer to send after the commit. Raises a TowlineError; then nothing has
        changed."""
        name, topics = str(question.get("topic", "")), self._topics
        match question["op"]:
            case "route":
                return topic_facts(topics.route(name, *_wished(question)))
            case "create_topic":
                return topic_facts(topics.create(name, int(question["queues"]), _change(question)))
            case "alter_topic":
                return topic_facts(topics.alter(name, _change(question)))
            case "delete_topic":
                numbers = self._numbers.next_offsets_of(name.encode(errors="replace"))
                return {"topic": name, "log_offset": topics.delete(name, self._end(), numbers).log_offset}
        topics.create_system_topics((HALF_TOPIC, OP_TOPIC, TRANS_CHECK_TOPIC))
        return {}

    def committed(self) -> None:
        """Reports durable changes: reput checks which queues to remove."""
        self._changed()


@dataclass(slots=True)
class PendingChange:
    """A question that waits for its change."""

    question: Question
    asked: Facts


class TopicChanges:
    """Makes, writes and commits changes of topics.

    Used by the thread that holds the stall responder's lock; `appending` says whether the main thread is in an append
    meanwhile. `answer` gets the outcome of each question; `ended` is called by the writing thread when it has finished.
    """

    def __init__(
        self,
        topics: Topics,
        questions: TopicQuestions,
        answer: Answer,
        appending: Callable[[], bool],
        ended: Callable[[], object],
    ) -> None:
        self._topics, self._questions = topics, questions
        self._answer, self._appending = answer, appending
        self._saver = Saver("topics", ended)
        self._waiting: deque[PendingChange] = deque()
        self._made: list[tuple[PendingChange, Facts | TowlineError]] = []  # they are being written
        self._stopped = False
        self._writing = False
        self._retry_ns = 0  # while the file is in doubt: when to write it once more

    def __len__(self) -> int:
        """The number of questions without an answer."""
        return len(self._waiting) + len(self._made)

    @property
    def is_writing(self) -> bool:
        """Whether changes are being written."""
        return self._writing

    def add(self, question: Question, asked: Facts) -> None:
        self._waiting.append(PendingChange(question, asked))

    def cycle(self) -> int:
        """Answers what has been written and starts what waits; returns how much was done."""
        if not self._waiting and not self.is_writing and not self._topics.in_doubt:
            return 0
        return self._finish() + self._begin()

    def stop(self) -> None:
        """Starts nothing more; questions that wait get no answer."""
        self._stopped = True

    def close(self) -> None:
        """Waits for the write under way, and answers its questions."""
        self._saver.close()
        self._finish()

    def _finish(self) -> int:
        done = 0
        for _, error in self._saver.finished():
            made, self._made = self._made, []
            self._writing = False
            if error is None:
                self._topics.commit()
            elif isinstance(error, SaveInDoubt):
                self._topics.mark_in_doubt()
                self._retry_ns = time.monotonic_ns() + RETRY_NS
            else:
                self._topics.rollback()
            for change, outcome in made:
                self._answer(change.question, outcome if error is None else error)
            if error is None:
                self._questions.committed()
            done += len(made)
        return done

    def _begin(self) -> int:
        """Makes changes for QUESTIONS_NS_MAX and starts their write; answers at once where nothing has to be
        written."""
        if self._writing or self._stopped:
            return 0
        done, began_ns = 0, time.monotonic_ns()
        while self._waiting and (not done or time.monotonic_ns() - began_ns < QUESTIONS_NS_MAX):
            # The numbers of a topic that is deleted are final only when nobody appends to it.
            if self._questions.deletes(self._waiting[0].asked) and self._appending():
                break
            change = self._waiting.popleft()
            outcome = self._outcome(change.asked)
            if self._topics.changed:  # later ones build on it, so they share its fate
                self._made.append((change, outcome))
            else:
                self._answer(change.question, outcome)
            done += 1
        if self._made or (self._topics.in_doubt and began_ns >= self._retry_ns):
            self._writing = True
            self._saver.submit(self._topics.file, _with_failpoint(self._topics.content()))
        return done

    def _outcome(self, asked: Facts) -> Facts | TowlineError:
        try:
            return self._questions.change(asked)
        except TowlineError as error:
            return error


def _wished(question: dict[str, Any]) -> tuple[int, str]:
    queues, template = question.get("queues", 0), question.get("template", TEMPLATE_TOPIC)
    if not isinstance(queues, int) or not isinstance(template, str):
        raise MalformedFrame(f"the number of queues is {queues!r}, the template {template!r}")
    return queues, template


def _change(question: dict[str, Any]) -> TopicChange:
    for name in _NUMBERS:
        value = question.get(name)
        if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
            raise MalformedFrame(f"{name} is a number, not {value!r}")
    order = question.get("order")
    if order is not None and not isinstance(order, bool):
        raise MalformedFrame(f"order is true or false, not {order!r}")
    return TopicChange(**{name: question.get(name) for name in _NUMBERS}, order=order)


def _with_failpoint(content: Callable[[], Facts]) -> Callable[[], Facts]:
    def made() -> Facts:
        if ARMED:
            reach("put.in_topics")
        return content()

    return made
