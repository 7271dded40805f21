"""The errors of changing topics; what only concerns a name is IllegalTopic of `towline.errors`."""

from towline.errors import Remedy, TowlineError


class TopicChangeRefused(TowlineError):
    """A topic cannot be made or changed like that. Facts: the topic, what is wrong and what to do instead."""

    remedy = Remedy.FIX_CALL
    advice = "change what the sentence names"

    def __init__(self, topic: str, problem: str) -> None:
        self.topic, self.problem = topic, problem
        super().__init__(topic, problem)

    def describe(self) -> str:
        return f"topic {self.topic!r}: {self.problem}"


class TopicProtected(TowlineError):
    """A topic that the broker keeps for itself: no client makes, changes or deletes it. Facts: the topic."""

    remedy = Remedy.FIX_CALL
    advice = "use a topic of your own; what the broker keeps for itself follows its settings"

    def __init__(self, topic: str) -> None:
        self.topic = topic
        super().__init__(topic)

    def describe(self) -> str:
        return f"the topic {self.topic!r} is the broker's own: it is not changed from outside"
