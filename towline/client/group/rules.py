"""How a member behaves, handed to everything that acts for it."""

from dataclasses import dataclass

from towline.client.read.reader import Start

from .subscription import Subscription


@dataclass(frozen=True, slots=True)
class Rules:
    """Sizes are bytes, times ms. `optional` topics need not exist. `place` is that of the group of nodes among all."""

    group: str
    member: str
    instance: str
    cluster: str
    subscriptions: dict[str, Subscription]
    optional: frozenset[str]
    broadcasting: bool
    ordered: bool
    start: Start
    strategy: str
    auto_commit: bool
    commit_interval_ms: int
    max_count: int
    max_bytes: int
    buffer_bytes: int
    suspend_ms: int
    timeout_ms: int
    check_crcs: bool
    place: int = 0

    @property
    def identity(self) -> dict[str, str]:
        """Who asks, in every question of the member."""
        return {"group": self.group, "member": self.member, "instance": self.instance}
