"""What a load test does: read by the command, carried to Locust's processes in their environment."""

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Final, Self

PREFIX: Final = "TOWLINE_LOAD_"
USERS: Final = {"put": "PutUser", "batch": "BatchPutUser", "pull": "PullUser", "mixed": "MixedUser", "slow": "SlowUser"}


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """`put` and `serve` are endpoints. Bounds of 0 (`max_p99` in ms) and below 0 (`max_fail`) are none."""

    put: str = ""
    serve: str = ""
    topic: str = "loadtest"
    body_size: int = 1024
    batch: int = 100  # messages in a request of BatchPutUser
    per_user: float = 0.0  # requests a second that each user begins; 0: one after the other
    shape: str = "none"
    users: int = 10
    spawn_rate: float = 10.0
    seconds: float = 30.0
    max_p99: float = 0.0
    max_fail: float = -1.0
    out: str = ""  # directory: what was acknowledged, by unique key, and the summary

    def environment(self) -> dict[str, str]:
        return {f"{PREFIX}{name.upper()}": str(value) for name, value in asdict(self).items()}

    @classmethod
    def read(cls, environment: Mapping[str, str] = os.environ) -> Self:
        """What is not in the environment is as by default, so that `locust -f loadtest/locustfile.py` works too."""
        default = cls()
        found = {
            field.name: type(getattr(default, field.name))(environment[name])
            for field in fields(cls)
            if (name := f"{PREFIX}{field.name.upper()}") in environment
        }
        return replace(default, **found)

    @property
    def directory(self) -> Path | None:
        return Path(self.out) if self.out else None


# --- how many users there are at a moment


RAMP_SHARE: Final = 0.25  # of the time, before a plateau
BURSTS: Final = 5
BURST_SHARE: Final = 0.25  # of each burst's period; between them a tenth of the users stays
SOAK_RAMP_S: Final = 60.0


def users_at(plan: LoadPlan, second: float) -> int | None:
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
