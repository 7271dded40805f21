"""Checks offsets that were read under an earlier master: they count as far as this master has those records (H15)."""

import logging
from collections.abc import Callable, Mapping

from . import questions
from .errors import GroupRefused, Refusal
from .questions import Question


class EpochBounds:
    """`current` returns this master's epoch; `end_of` a queue's end in an earlier one, None for the newest."""

    def __init__(
        self, current: Callable[[], int], end_of: Callable[[str, int, int], int | None], log: logging.Logger
    ) -> None:
        self._current, self._end_of, self._log = current, end_of, log

    def asked(self, question: Question) -> int:
        """The epoch in which the offsets of a commit were read; the current one where it states none.

        Raises GroupRefused NOT_MASTER for a later epoch than this master's.
        """
        ours = self._current()
        epoch = questions.number(question, "epoch", ours)
        if epoch > ours:
            sentence = f"the offsets were read in epoch {epoch}, and this master is of epoch {ours}"
            raise GroupRefused(Refusal.NOT_MASTER, sentence)
        return epoch

    def clamp(self, group: str, topic: str, offsets: Mapping[int, int], epoch: int) -> dict[int, int]:
        """The queues whose offsets lie beyond the end of their epoch, with that end. Each is logged."""
        found = {}
        for queue, at in offsets.items():
            end = self._end_of(topic, queue, epoch)
            if end is not None and at > end:
                found[queue] = end
                self._log.warning(
                    "group %s: its offset %d of queue %d of %s was read in epoch %d, which ended at %d",
                    group, at, queue, topic, epoch, end,
                )  # fmt: skip
        return found
