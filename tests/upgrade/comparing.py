"""What two reads of a store have to have in common."""

from typing import Any, Final

LATER: Final = "later"  # messages come to it by themselves


def seen(read: dict[str, Any]) -> dict[str, Any]:
    """A read without what time alone changes."""
    topics = {topic: row for topic, row in read["topics"].items() if topic != LATER}
    return read | {"topics": topics}


def messages(read: dict[str, Any]) -> dict[str, Any]:
    """Of a read, what a killed node may not lose: offsets of groups may be a moment old."""
    return {topic: row["messages"] for topic, row in read["topics"].items() if topic != LATER}


def delivered(name: str) -> list[str]:
    """What `fill` sent to be seen a moment later."""
    return sorted([f"{name}: by its level", f"{name}: soon"])
