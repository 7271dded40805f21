"""Questions to put about topics: route, create, alter, delete, list."""

from collections.abc import Callable
from typing import Any, Final, Protocol

from towline.errors import MalformedFrame
from towline.format.files.topics import TEMPLATE_TOPIC, topic_facts
from towline.format.record.forms import HALF_TOPIC, OP_TOPIC, TRANS_CHECK_TOPIC

from .topics import Change, Topics

_NUMBERS: Final = ("read_queues", "write_queues", "perm")


class Numbers(Protocol):
    """Where the queues of a topic stand."""

    def numbers_of(self, topic: bytes) -> dict[int, int]: ...


class TopicQuestions:
    """`end` is the log's end: everything put before is below it. `changed` is told when changes are durable."""

    def __init__(self, topics: Topics, numbers: Numbers, end: Callable[[], int], changed: Callable[[], None]) -> None:
        self._topics = topics
        self._numbers = numbers
        self._end = end
        self._changed = changed

    def answer(self, question: dict[str, Any]) -> dict[str, Any] | None:
        """What nothing has to be written for; None for all else. Raises a TowlineError that says what is wrong."""
        match question:
            case {"op": "route", "topic": str(name)}:
                queues, template = _wished(question)
                topic = self._topics.settled(name)
                if topic is None:
                    self._topics.check_route(name, queues, template)
                return None if topic is None else topic_facts(topic)
            case {"op": "topics"}:
                known = (self._topics.get(name) for name in self._topics.names())
                return {"topics": [topic_facts(topic) for topic in known if topic is not None]}
        return None

    @staticmethod
    def changes(question: dict[str, Any]) -> bool:
        """Whether it is one for `change`, unless `answer` has an answer."""
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
        """The answer that is due when the topics are settled. Raises a TowlineError; then nothing has changed."""
        name, topics = str(question.get("topic", "")), self._topics
        match question["op"]:
            case "route":
                return topic_facts(topics.route(name, *_wished(question)))
            case "create_topic":
                return topic_facts(topics.create(name, int(question["queues"]), _change(question)))
            case "alter_topic":
                return topic_facts(topics.alter(name, _change(question)))
            case "delete_topic":
                numbers = self._numbers.numbers_of(name.encode(errors="replace"))
                return {"topic": name, "log_offset": topics.delete(name, self._end(), numbers).log_offset}
        topics.make_own((HALF_TOPIC, OP_TOPIC, TRANS_CHECK_TOPIC))
        return {}

    def settled(self) -> None:
        """Changes are durable: reput looks which queues are to go."""
        self._changed()


def _wished(question: dict[str, Any]) -> tuple[int, str]:
    queues, template = question.get("queues", 0), question.get("template", TEMPLATE_TOPIC)
    if not isinstance(queues, int) or not isinstance(template, str):
        raise MalformedFrame(f"the number of queues is {queues!r}, the template {template!r}")
    return queues, template


def _change(question: dict[str, Any]) -> Change:
    for name in _NUMBERS:
        value = question.get(name)
        if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
            raise MalformedFrame(f"{name} is a number, not {value!r}")
    order = question.get("order")
    if order is not None and not isinstance(order, bool):
        raise MalformedFrame(f"order is true or false, not {order!r}")
    return Change(**{name: question.get(name) for name in _NUMBERS}, order=order)
