"""Questions to put about topics: route, create, alter, delete, list."""

from collections.abc import Callable
from typing import Any, Final, Protocol

from towline.errors import MalformedFrame
from towline.format.forms import HALF_TOPIC, OP_TOPIC, TRANS_CHECK_TOPIC
from towline.format.topics import TEMPLATE_TOPIC, topic_facts

from .topics import Change, Topics

_NUMBERS: Final = ("read_queues", "write_queues", "perm")


class Numbers(Protocol):
    """Where the queues of a topic stand."""

    def numbers_of(self, topic: bytes) -> dict[int, int]: ...


class TopicQuestions:
    """`end` is the log's end: everything put before is below it. `changed` is told after a topic was deleted."""

    def __init__(self, topics: Topics, numbers: Numbers, end: Callable[[], int], changed: Callable[[], None]) -> None:
        self._topics = topics
        self._numbers = numbers
        self._end = end
        self._changed = changed

    def answer(self, question: dict[str, Any]) -> dict[str, Any] | None:
        """None for a question about something else. Raises a TowlineError that says what is wrong."""
        match question:
            case {"op": "route", "topic": str(name)}:
                queues, template = question.get("queues", 0), question.get("template", TEMPLATE_TOPIC)
                if not isinstance(queues, int) or not isinstance(template, str):
                    raise MalformedFrame(f"the number of queues is {queues!r}, the template {template!r}")
                return topic_facts(self._topics.route(name, queues, template))
            case {"op": "create_topic", "topic": str(name), "queues": int(queues)}:
                return topic_facts(self._topics.create(name, queues, _change(question)))
            case {"op": "alter_topic", "topic": str(name)}:
                return topic_facts(self._topics.alter(name, _change(question)))
            case {"op": "delete_topic", "topic": str(name)}:
                deleted = self._topics.delete(
                    name, self._end(), self._numbers.numbers_of(name.encode(errors="replace"))
                )
                self._changed()
                return {
                    "topic": name,
                    "log_offset": deleted.log_offset,
                }
            case {"op": "transaction_topics"}:
                self._topics.make_own((HALF_TOPIC, OP_TOPIC, TRANS_CHECK_TOPIC))
                return {}
            case {"op": "topics"}:
                known = (self._topics.get(name) for name in self._topics.names())
                return {"topics": [topic_facts(topic) for topic in known if topic is not None]}
        return None


def _change(question: dict[str, Any]) -> Change:
    for name in _NUMBERS:
        value = question.get(name)
        if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
            raise MalformedFrame(f"{name} is a number, not {value!r}")
    order = question.get("order")
    if order is not None and not isinstance(order, bool):
        raise MalformedFrame(f"order is true or false, not {order!r}")
    return Change(**{name: question.get(name) for name in _NUMBERS}, order=order)
