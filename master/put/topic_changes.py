"""Questions that change topics: answered when the change is durable, while everybody else is served.

A sync waits for whatever else the disk has to write, so a thread does it. As many changes as wait are made together, in
the order in which they came, and written at once. Until then everybody goes by what was durable before, but that a
topic which is about to go takes no more puts: its numbers are being written down. When they cannot be written, nothing
has changed, and whoever asked for one of them is told why. Where even that is not sure after a crash, the topics that
they touch are closed, and the file is written once more until the disk takes it.
"""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from towline.errors import TowlineError
from towline.log.errors import SaveInDoubt
from towline.log.files.config_writer import Saver
from towline.runtime.failpoints import ARMED, reach

from .request_queue import ASKED_NS, Question
from .topic_questions import TopicQuestions
from .topics import Topics

AGAIN_NS: Final = 1_000_000_000  # between two attempts to settle a file that is in doubt
Facts = dict[str, Any]
# To one question: the answer's facts, or why there are none.
Answer = Callable[[Question, Facts | TowlineError], None]


@dataclass(slots=True)
class Change:
    question: Question
    asked: Facts


class TopicChanges:
    """Used by whoever holds the front's lock; `appending` says whether the main thread is in an append meanwhile.

    `answer` is told the outcome of each question, `ended` is called by the thread when there is one to be told.
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
        self._waiting: deque[Change] = deque()
        self._made: list[tuple[Change, Facts | TowlineError]] = []  # they are being written
        self._stopped = False
        self._writing = False
        self._again_ns = 0  # while the file is in doubt: when to write it once more

    def __len__(self) -> int:
        """Questions without an answer."""
        return len(self._waiting) + len(self._made)

    @property
    def writes(self) -> bool:
        """Whether changes are being written."""
        return self._writing

    def add(self, question: Question, asked: Facts) -> None:
        self._waiting.append(Change(question, asked))

    def turn(self) -> int:
        """Answers what has been written, begins with what waits; how much there was to do."""
        if not self._waiting and not self.writes and not self._topics.in_doubt:
            return 0
        return self._settle() + self._begin()

    def stop(self) -> None:
        """Nothing more begins; nobody hears of what waits."""
        self._stopped = True

    def close(self) -> None:
        """Waits for what is being written, and answers it."""
        self._saver.close()
        self._settle()

    def _settle(self) -> int:
        done = 0
        for _, error in self._saver.finished():
            made, self._made = self._made, []
            self._writing = False
            if error is None:
                self._topics.settle()
            elif isinstance(error, SaveInDoubt):
                self._topics.doubt()
                self._again_ns = time.monotonic_ns() + AGAIN_NS
            else:
                self._topics.withdraw()
            for change, outcome in made:
                self._answer(change.question, outcome if error is None else error)
            if error is None:
                self._questions.settled()
            done += len(made)
        return done

    def _begin(self) -> int:
        """Makes changes until ASKED_NS are over, and has them written. One that needs no writing is answered here."""
        if self._writing or self._stopped:
            return 0
        done, began_ns = 0, time.monotonic_ns()
        while self._waiting and (not done or time.monotonic_ns() - began_ns < ASKED_NS):
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
        if self._made or (self._topics.in_doubt and began_ns >= self._again_ns):
            self._writing = True
            self._saver.submit(self._topics.file, _when_due(self._topics.content()))
        return done

    def _outcome(self, asked: Facts) -> Facts | TowlineError:
        try:
            return self._questions.change(asked)
        except TowlineError as error:
            return error


def _when_due(content: Callable[[], Facts]) -> Callable[[], Facts]:
    def made() -> Facts:
        if ARMED:
            reach("put.in_topics")
        return content()

    return made
