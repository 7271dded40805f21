"""The errors of restoring a compressed body."""

from towline.errors import Remedy, TowlineError


class DecompressedTooLarge(TowlineError):
    """A compressed body that would grow beyond the reader's cap. Facts: the cap in bytes."""

    remedy = Remedy.FIX_CALL
    advice = "raise body_size_max of the reader if the sender is to be trusted"

    def __init__(self, size_max: int) -> None:
        self.size_max = size_max
        super().__init__(size_max)

    def describe(self) -> str:
        return f"the body decompresses to more than the cap of {self.size_max} bytes"


class UnreadableBody(TowlineError):
    """A body marked as compressed that does not decompress. Facts: kind of compression, what its library says."""

    remedy = Remedy.FIX_CALL
    advice = "look at the sender: the store keeps bodies as it receives them"

    def __init__(self, kind: str, problem: str) -> None:
        self.kind, self.problem = kind, problem
        super().__init__(kind, problem)

    def describe(self) -> str:
        return f"the body is no {self.kind} stream: {self.problem}"
