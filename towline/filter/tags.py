"""Tag subscriptions: `a || b` (spec 10.2, RocketMQ's FilterAPI.buildSubscriptionData).

The queue holds only a hash of the tag, so a reader of queues may pass messages that the consumer drops by their tag.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from towline.format.java_hash import string_hash

from .errors import BadExpression

ALL: Final = "*"
SEPARATOR: Final = "||"

_SPACE: Final = "".join(map(chr, range(0x21)))  # what String.trim takes off


@dataclass(frozen=True, slots=True)
class Tags:
    """The tags of a subscription, each once and in order, and their hashes. `everything`: there is no filter.

    Without names and not for everything, as " " or "|| ||" give it, no entry of a queue matches.
    """

    names: tuple[str, ...]
    codes: tuple[int, ...]
    everything: bool = False

    def may_match(self, tags_codes: NDArray[np.int64]) -> NDArray[np.bool_]:
        """For each tags code of a queue, whether its low 32 bits are the hash of one of the tags."""
        if self.everything:
            return np.ones(len(tags_codes), np.bool_)
        low = tags_codes.astype(np.int32)
        if len(self.codes) == 1:
            found: NDArray[np.bool_] = low == np.int32(self.codes[0])
            return found
        return np.isin(low, np.array(self.codes, np.int32))

    def matches(self, tag: str | None) -> bool:
        """Whether a message that passed by hash has one of the tags: the consumer's own check."""
        return self.everything or not self.names or tag in self.names


def parse(text: str | None) -> Tags:
    """The tags in a subscription. No text, or `*` alone, is everything. Raises BadExpression for nothing but `||`."""
    if not text or text == ALL:
        return Tags((), (), everything=True)
    parts = text.split(SEPARATOR)
    if not any(parts):
        raise BadExpression(text, 0, "there is no tag beside ||")
    names = tuple(dict.fromkeys(name for part in parts if (name := part.strip(_SPACE))))
    return Tags(names, tuple(dict.fromkeys(map(string_hash, names))))
