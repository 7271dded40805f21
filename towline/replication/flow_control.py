"""What a slave may be sent in a second: pure."""

from typing import Final

UNLIMITED: Final = 1 << 62
PORTIONS: Final = 10


class FlowControl:
    """Limits the bytes per second to one slave to `rate`, in portions of a tenth of it; 0: no limit."""

    def __init__(self, rate: int, now_ms: int = 0) -> None:
        self._rate, self._at_ms = rate, now_ms
        self._left = self._portion = max(1, rate // PORTIONS)

    def room(self, now_ms: int) -> int:
        """Bytes that may be sent now."""
        if not self._rate:
            return UNLIMITED
        earned = (now_ms - self._at_ms) * self._rate // 1000
        if earned > 0:  # else less than a byte: it goes on adding up
            self._left, self._at_ms = min(self._left + earned, self._portion), now_ms
        return self._left

    def spent(self, size: int) -> None:
        self._left -= size

    @property
    def is_throttled(self) -> bool:
        return bool(self._rate) and self._left <= 0
