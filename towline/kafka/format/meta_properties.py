"""`meta.properties` of a log directory: whose it is, as Java's properties.

    #
    #<a date>
    node.id=1
    directory.id=<22 characters of base64>
    version=1
    cluster.id=<text>

Version 0, of a broker with ZooKeeper, has `broker.id` in place of `node.id`.
"""

import re
from dataclasses import dataclass
from typing import Final

from towline.kafka.errors import MalformedBytes, Rule

NAME: Final = "meta.properties"
_COMMENTS: Final = ("#", "!")
_NUMBER: Final = re.compile(r"-?[0-9]{1,10}")


@dataclass(frozen=True, slots=True)
class MetaProperties:
    """None where a file does not say it; ids as the file has them."""

    cluster_id: str | None
    node_id: int | None
    directory_id: str | None = None
    version: int = 1


def encode(meta: MetaProperties) -> bytes:
    """The whole file, without a date."""
    lines = [
        ("node.id" if meta.version else "broker.id", meta.node_id),
        ("directory.id", meta.directory_id),
        ("version", meta.version),
        ("cluster.id", meta.cluster_id),
    ]
    return "".join(f"{name}={value}\n" for name, value in lines if value is not None).encode("latin-1")


def decode(data: bytes) -> MetaProperties:
    """Raises MalformedBytes where a number is none, or the version is not known."""
    known: dict[str, tuple[int, str]] = {}
    at = 0
    for line in data.decode("latin-1").splitlines(keepends=True):
        text = line.strip()
        if text and not text.startswith(_COMMENTS):
            name, _, value = text.replace("\\", "").partition("=")
            known[name.strip()] = at, value.strip()
        at += len(line)
    version = _number(known, "version", default=0)
    if version not in (0, 1):
        raise MalformedBytes(Rule.VERSION, known["version"][0], f"version {version}")
    words = {name: known[name][1] if name in known else None for name in ("cluster.id", "directory.id")}
    node = _number(known, "node.id" if version else "broker.id", default=None)
    return MetaProperties(words["cluster.id"], node, words["directory.id"], version or 0)


def _number(known: dict[str, tuple[int, str]], name: str, default: int | None) -> int | None:
    if name not in known:
        return default
    at, text = known[name]
    if not _NUMBER.fullmatch(text):
        raise MalformedBytes(Rule.TEXT, at, f"{name} is {text!r}")
    return int(text)
