"""The settings of one process, which follow those of its node: see `settings_changes` for how they change."""

from typing import Protocol, runtime_checkable

from towline.errors import TowlineError
from towline.runtime.agent import Agent
from towline.runtime.positions import Position
from towline.runtime.settings import Settings

from .context import Node
from .own_log import log_by


@runtime_checkable
class Adjustable(Protocol):
    """An agent that has made something of its settings."""

    def adjust(self) -> None:
        """Works by `node.settings` as they are now. Called between two cycles."""
        ...


class LiveSettings:
    """Looks between two cycles whether settings have changed, which costs the comparison of a word."""

    def __init__(self, node: Node, agent: Agent) -> None:
        self._node, self._agent = node, agent
        self._words, self._word = node.positions.words, Position.SETTINGS.word
        self._take(node.taken)

    def look(self) -> None:
        if self._words[self._word] != self._node.taken:
            self._change(int(self._words[self._word]))

    def _change(self, number: int) -> None:
        node = self._node
        node.taken = number  # what cannot be taken is not tried in each cycle
        try:
            node.settings = Settings.from_json(node.store.settings.read_text(encoding="utf-8"))
            if isinstance(self._agent, Adjustable):
                self._agent.adjust()
        except (OSError, TowlineError) as error:
            node.log.error("a change of settings is not taken: %s", error)
            return
        self._take(number)

    def _take(self, number: int) -> None:
        log_by(self._node.settings)
        self._node.line.taken = number
