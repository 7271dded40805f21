"""What keeps a drill from being run to its end."""

from shlex import quote

from towline.errors import Remedy, TowlineError


def end_of_logs(kept: str) -> str:
    """The command that shows the last lines of the logs of a drill's nodes, where they are kept."""
    return f"`tail -n 20 {quote(kept)}/node*/run/node.log`"


class DrillFailed(TowlineError, remedy=Remedy.RETRY):
    """A cluster under a drill did not do what it must."""

    problem: str
    kept: str = ""  # the directory in which its own nodes are kept, "" where they are not

    @property
    def advice(self) -> str:  # type: ignore[override]
        if not self.kept:
            return "run it again; where it ends so each time, `towline doctor` finds what this machine lacks"
        return f"{end_of_logs(self.kept)} shows what its nodes did; `towline doctor` finds what this machine lacks"

    def describe(self) -> str:
        return self.problem


class DrillImpossible(TowlineError, remedy=Remedy.FIX_CALL):
    drill: str
    why: str
    template = "the drill {drill} is not possible here: {why}"
    advice = "run it as root, install what is missing, or leave this drill out"
