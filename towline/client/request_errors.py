"""The errors of requests and replies, and of looking for a node's other services."""

from towline.errors import Remedy, TowlineError


class NoNeighbour(TowlineError):
    """A service of the node cannot be found from its put process. Facts: put's endpoint, the service."""

    remedy = Remedy.FIX_CALL
    advice = "name the service's endpoint, or give the node a TCP port for it"

    def __init__(self, endpoint: str, service: str) -> None:
        self.endpoint, self.service = endpoint, service
        super().__init__(endpoint, service)

    def describe(self) -> str:
        return f"the node at {self.endpoint} names no TCP port of {self.service}"


class RequestTimeout(TowlineError):
    """No reply in time. Facts: topic, correlation id, ms waited, whether the request was acknowledged."""

    remedy = Remedy.RETRY
    advice = "the request may be worked on all the same; a reply that comes later is counted and dropped"

    def __init__(self, topic: str, correlation_id: str, waited_ms: int, acknowledged: bool) -> None:
        self.topic, self.correlation_id = topic, correlation_id
        self.waited_ms, self.acknowledged = waited_ms, acknowledged
        super().__init__(topic, correlation_id, waited_ms, acknowledged)

    def describe(self) -> str:
        stage = "it is stored" if self.acknowledged else "whether it is stored is not known"
        return f"no reply to request {self.correlation_id} for {self.topic} in {self.waited_ms} ms; {stage}"


class NotARequest(TowlineError):
    """A reply to a message that asks for none. Facts: the property that is missing."""

    remedy = Remedy.FIX_CALL
    advice = "only messages sent by Producer.request can be replied to"

    def __init__(self, missing: str) -> None:
        self.missing = missing
        super().__init__(missing)

    def describe(self) -> str:
        return f"the message has no property {self.missing}, so nobody waits for a reply"
