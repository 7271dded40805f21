"""Questions about the node as a whole: its status, statistics, segments, settings, and changes of these.

What they read takes up to some hundred milliseconds, and a change waits for every process, this one too. So a thread
answers each; everybody else is served meanwhile.
"""

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from towline.errors import MalformedFrame, Remedy, TowlineError
from towline.node.process.settings_changes import change_settings, forget_settings, read_node_settings
from towline.node.report.segments import read_segments
from towline.node.report.statistics import measure
from towline.node.report.status import read_status

PREFIX: Final = "node_"
CHANGE: Final = "node_configure"
AT_ONCE_MAX: Final = 4  # and one more that is a change: who looks on keeps nobody from mending what is seen
INTERVAL_MAX_MS: Final = 10_000
TOP_MAX: Final = 1_000

Facts = dict[str, Any]


class TooManyAsk(TowlineError, remedy=Remedy.RETRY):
    limit: int
    template = "{limit} questions about the node are being answered already"
    advice = "ask again in a moment"


class NodeUnreadable(TowlineError, remedy=Remedy.RETRY):
    why: str
    template = "the node could not be looked at: {why}"
    advice = "ask again in a moment"


@dataclass(frozen=True, slots=True)
class NodeAnswer:
    """To one question: facts, or why there are none."""

    peer: bytes
    request_id: int
    outcome: Facts | TowlineError


def is_node_question(question: Facts) -> bool:
    return str(question.get("op")).startswith(PREFIX)


class NodeQuestions:
    """Answers questions about the node on `store`. Used by one thread; `ended` is called by others."""

    def __init__(self, store: Path, ended: Callable[[], object]) -> None:
        self._store, self._ended = store, ended
        self._under_way = 0
        self._done: deque[NodeAnswer] = deque()  # filled by the threads

    def __len__(self) -> int:
        """The number of questions without an answer."""
        return self._under_way

    def ask(self, peer: bytes, request_id: int, question: Facts) -> None:
        """`cycle` returns the answer. Raises TooManyAsk, MalformedFrame."""
        answer = self._way_of(question)
        limit = AT_ONCE_MAX + (question["op"] == CHANGE)
        if self._under_way >= limit:
            raise TooManyAsk(limit)
        self._under_way += 1
        arguments = (peer, request_id, answer)
        threading.Thread(target=self._run, args=arguments, name="node-question", daemon=True).start()

    def cycle(self) -> list[NodeAnswer]:
        """What has been answered since the last call."""
        done = [self._done.popleft() for _ in range(len(self._done))]
        self._under_way -= len(done)
        return done

    def _way_of(self, question: Facts) -> Callable[[], Facts]:
        store = self._store
        match question:
            case {"op": "node_status"}:
                brief = question.get("brief") is True
                return lambda: read_status(store, brief=brief)
            case {
                "op": "node_stats",
                "interval_ms": int(interval),
                "top": int(top),
                "topic": None | str() as topic,
            } if 0 < interval <= INTERVAL_MAX_MS and 0 < top <= TOP_MAX:
                return lambda: measure(store, interval / 1_000, top=top, topic=topic)
            case {"op": "node_segments"}:
                return lambda: read_segments(store)
            case {"op": "node_settings"}:
                return lambda: {"settings": read_node_settings(store)}
            case {"op": op, "forget": list(keys)} if op == CHANGE and all(isinstance(key, str) for key in keys):
                return lambda: forget_settings(store, keys)
            case {"op": op, "settings": dict(settings), "keep": bool(keep)} if op == CHANGE:
                return lambda: change_settings(store, settings, keep=keep)
        raise MalformedFrame(f"the serve process does not answer {question.get('op')!r} with these facts")

    def _run(self, peer: bytes, request_id: int, answer: Callable[[], Facts]) -> None:
        outcome: Facts | TowlineError
        try:
            outcome = answer()
        except TowlineError as error:
            outcome = error
        except Exception as error:  # of a file that went meanwhile: the asker hears of it
            outcome = NodeUnreadable(repr(error))
        self._done.append(NodeAnswer(peer, request_id, outcome))
        self._ended()
