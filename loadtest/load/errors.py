"""What keeps a load test from being run to its end."""

from towline.errors import Remedy, TowlineError


class LoadTestFailed(TowlineError):
    """Locust ended without a result. Facts: its exit status, its last line."""

    remedy = Remedy.FIX_CALL
    advice = "keep its output with --out DIR and read locust.log there"

    def __init__(self, status: int, said: str) -> None:
        self.status, self.said = status, said
        super().__init__(status, said)

    def describe(self) -> str:
        return f"Locust ended with status {self.status} and left no result: {self.said}"
