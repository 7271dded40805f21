"""How many users there are at a moment: the curves that a load test can follow."""

from typing import Final

from .plan import Plan

RAMP_SHARE: Final = 0.25  # of the time, before a plateau
BURSTS: Final = 5
BURST_SHARE: Final = 0.25  # of each burst's period; between them a tenth of the users stays
SOAK_RAMP_S: Final = 60.0


def users_at(plan: Plan, second: float) -> int | None:
    """None when the test is over.

    ramp     from one user to all of them, to the end
    plateau  a ramp over a quarter of the time, then all
    burst    five times a tenth of the users and, for a quarter of the period, all of them
    soak     a slow ramp of a minute, then all
    """
    if second >= plan.seconds:
        return None
    match plan.shape:
        case "ramp":
            share = second / plan.seconds
        case "plateau":
            share = second / (RAMP_SHARE * plan.seconds)
        case "burst":
            within = second % (plan.seconds / BURSTS) / (plan.seconds / BURSTS)
            share = 1.0 if within >= 1 - BURST_SHARE else 0.1
        case "soak":
            share = second / min(SOAK_RAMP_S, plan.seconds)
        case other:
            raise ValueError(f"{other!r} is no shape")
    return max(1, min(plan.users, round(share * plan.users)))
