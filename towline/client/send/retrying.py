"""What becomes of a put that was answered, or lost: pure."""

from enum import Enum, auto

from towline.format.wire.status import PutStatus


class Fate(Enum):
    """What becomes of a put that was answered."""

    DONE = auto()  # its outcome is what was answered
    HELD = auto()  # stored and not promised: a later master may show that it is gone
    AGAIN = auto()  # with the same bytes
    REFUSED = auto()  # it can never pass


def fate_of(status: PutStatus, retry_after_ms: int, *, insists: bool, has_later: bool) -> Fate:
    """`insists`: what was stored and not promised goes again too, as a retry may double it. `has_later`: another node
    may become master."""
    if status.stored:
        if status.acknowledged:
            return Fate.DONE
        if insists:
            return Fate.AGAIN
        return Fate.HELD if has_later else Fate.DONE
    return Fate.AGAIN if status.retryable or retry_after_ms else Fate.REFUSED


def goes_again(attempts: int, refusals: int, retries: int, deadline: float, now: float) -> bool:
    """Whether attempts and time are left. A refusal that says when to come back costs no attempt."""
    return attempts - (refusals if retries else 0) <= retries and deadline > now
