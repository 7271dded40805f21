"""What an operator meets when files of a store are damaged, full or in use: errors of recovery, verify and repair."""

from towline.errors import Remedy, TowlineError


class StoreFault(TowlineError):
    """Base class of what stands here: found in a store's files. No facts of its own."""

    remedy = Remedy.FIX_DISK
    advice = "run `towline store verify` on the store"


class RepairRefused(StoreFault):
    """`towline store repair` would have to guess. Facts: path, byte in the file, why."""

    remedy = Remedy.FIX_CALL
    advice = "restore the file from a copy or another node, or name the record to step over with --skip OFFSET"

    def __init__(self, path: str, at: int, why: str) -> None:
        self.path, self.at, self.why = path, at, why
        super().__init__(path, at, why)

    def describe(self) -> str:
        return f"{self.path} byte {self.at} is not repaired: {self.why}"
