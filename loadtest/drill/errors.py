"""What keeps a drill from being run to its end."""

from towline.errors import Remedy, TowlineError


class DrillFailed(TowlineError, remedy=Remedy.RETRY):
    """A cluster under a drill did not do what it must."""

    problem: str
    advice = "read run/node.log of its nodes below the directory that is named, and history.jsonl beside it"


class DrillImpossible(TowlineError, remedy=Remedy.FIX_CALL):
    drill: str
    why: str
    template = "the drill {drill} is not possible here: {why}"
    advice = "run it as root, install what is missing, or leave this drill out"
