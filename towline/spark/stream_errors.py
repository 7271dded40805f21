"""Errors of streams; the others of the data source are in `towline.spark.errors`."""

from towline.errors import Remedy, TowlineError


class CheckpointUnusable(TowlineError):
    """A checkpoint holds offsets that this query cannot go on from. Facts: the offset as it was written, why."""

    remedy = Remedy.FIX_CALL
    advice = "give the options and the store that the query was begun with, or begin anew with another checkpoint"

    def __init__(self, offset: str, why: str) -> None:
        self.offset, self.why = offset, why
        super().__init__(offset, why)

    def describe(self) -> str:
        return f"the checkpoint cannot be used: {self.why} (offset {self.offset[:200]})"
