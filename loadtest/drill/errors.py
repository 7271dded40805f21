"""What keeps a drill from being run to its end."""

from towline.errors import Remedy, TowlineError


class DrillFailed(TowlineError):
    """A cluster under a drill did not do what it must. Facts: what did not happen."""

    remedy = Remedy.RETRY
    advice = "read run/node.log of its nodes below the directory that is named, and history.jsonl beside it"


class DrillImpossible(TowlineError):
    """This machine or this cluster cannot have the fault. Facts: the drill, what is missing."""

    remedy = Remedy.FIX_CALL
    advice = "run it as root, install what is missing, or leave this drill out"

    def __init__(self, drill: str, why: str) -> None:
        self.drill, self.why = drill, why
        super().__init__(drill, why)

    def describe(self) -> str:
        return f"the drill {self.drill} is not possible here: {self.why}"
