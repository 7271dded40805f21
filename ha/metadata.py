"""A master's metadata as its slaves follow it: the files of config/ that a promoted slave must have."""

import zlib
from typing import Any, Final

from towline.errors import MalformedFrame
from towline.places import Store

FOLLOWED: Final = (
    "topics.json",
    "subscriptionGroup.json",
    "consumerOffset.json",
    "consumerFilter.json",
    "delayOffset.json",
    "timerOffset.json",
)


def read_metadata(store: Store, question: dict[str, Any]) -> dict[str, Any]:
    """{"files": {name: text}} of the files whose CRC-32 is not the one the slave names in {"have": {name: crc}}."""
    have = question.get("have")
    if question.get("op") != "metadata" or not isinstance(have, dict):
        raise MalformedFrame(f"the ha process answers 'metadata', not {question.get('op')!r}")
    files = {}
    for name in FOLLOWED:
        path = store.config / name
        data = path.read_bytes() if path.exists() else b""
        if data and zlib.crc32(data) != have.get(name):
            files[name] = data.decode()
    return {"files": files}
