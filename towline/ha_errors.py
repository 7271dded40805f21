"""What an operator meets when nodes of one name disagree about who is master."""

from towline.errors import Remedy, TowlineError


class PromotionRefused(TowlineError):
    """A node may not become master now; nothing has changed. Facts: node id, why."""

    remedy = Remedy.FIX_CALL
    advice = "promote the node that is named, bring the silent ones back, or say --accept-loss"

    def __init__(self, node: int, why: str) -> None:
        self.node, self.why = node, why
        super().__init__(node, why)

    def describe(self) -> str:
        return f"node {self.node} is not promoted: {self.why}"


class AloneRefused(TowlineError):
    """A master whose peers are silent may have been replaced by one of them. Facts: node id, the peers asked."""

    remedy = Remedy.FIX_CALL
    advice = (
        "start its peers first, or say --alone if none of them can be a master now; with min_in_sync_replicas of 2 or "
        "more it starts by itself, because it acknowledges nothing alone"
    )

    def __init__(self, node: int, peers: str) -> None:
        self.node, self.peers = node, peers
        super().__init__(node, peers)

    def describe(self) -> str:
        return f"node {self.node} was master and none of its peers answers ({self.peers})"


class DoubtRefused(AloneRefused):
    """A master may have lost what it had acknowledged, and whoever surely holds it is silent. Facts: node id, why."""

    advice = "start the nodes that are named, or say --alone if what they hold may be lost"

    def __init__(self, node: int, why: str) -> None:
        super().__init__(node, why)

    def describe(self) -> str:
        return f"node {self.node} is not master again: {self.peers}"


class NothingToGiveUp(TowlineError):
    """The word to give up what was confirmed is not taken, it would stand for a later cut. Facts: store root, why."""

    remedy = Remedy.FIX_CALL
    advice = "say it when `towline slave status` shows that the node waits for it, or when the node is stopped"

    def __init__(self, store: str, why: str) -> None:
        self.store, self.why = store, why
        super().__init__(store, why)

    def describe(self) -> str:
        return f"the node on {self.store} {self.why}: it has nothing to give up"


class OrderUndone(TowlineError):
    """A running node was told to change and has not said how that ended. Facts: store root, the order, seconds."""

    remedy = Remedy.RETRY
    advice = "look at `towline master status`, which finds the node whatever its role is, and at its log"

    def __init__(self, store: str, order: str, seconds: float) -> None:
        self.store, self.order, self.seconds = store, order, seconds
        super().__init__(store, order, seconds)

    def describe(self) -> str:
        return f"the node on {self.store} was told to {self.order} and has not done it within {self.seconds:.0f} s"


class OrderTooOld(TowlineError):
    """A node was stopped before it became master, and much may have happened since. Facts: store root, seconds."""

    remedy = Remedy.FIX_CALL
    advice = "look who is master now, and give the order again if this node is to be it"

    def __init__(self, store: str, seconds: float) -> None:
        self.store, self.seconds = store, seconds
        super().__init__(store, seconds)

    def describe(self) -> str:
        return f"the promotion of the node on {self.store} was ordered {self.seconds:.0f} s ago and is not gone on with"


class EtcdUnavailable(TowlineError):
    """No endpoint of etcd answered in time. Facts: what each of them said."""

    remedy = Remedy.RETRY
    advice = "look at etcd, and at etcd_endpoints; puts go on by themselves when it answers again"

    def __init__(self, troubles: str) -> None:
        self.troubles = troubles
        super().__init__(troubles)

    def describe(self) -> str:
        return f"etcd does not answer: {self.troubles}"
