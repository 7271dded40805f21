"""The handshake of a link: the connecting side greets, the other side answers with a welcome or a refusal.

A greeting has two parts: the head (magic and version range) and a JSON object of facts. Facts both sides may state:

    role     what the sender is: producer, consumer, admin, ha receiver, put, serve, ...
    cluster  cluster id; a mismatch is refused
    store    store id; a mismatch is refused
    name     the sender's name for people

An empty fact is not compared: a producer need not know the store's id.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from towline.errors import LinkRefused, MalformedFrame
from towline.format.wire.frames import (
    GREETING,
    MAGIC,
    VERSION_MAX,
    VERSION_MIN,
    Buffer,
    Kind,
    expect,
    json_part,
    read_json,
)
from towline.limits import GREETING_SIZE_MAX

COMPARED: Final = ("cluster", "store")

# Codes of a refusal. A process that refuses a greeting for a reason of its own adds its own words.
MALFORMED: Final = "MALFORMED"
MAGIC_DIFFERS: Final = "MAGIC"
VERSION_DIFFERS: Final = "VERSION"
NOT_GREETED: Final = "NOT_GREETED"
BAD_FRAME: Final = "FRAME"  # what a greeted peer said cannot be: both sides know why its link ends
LEFT: Final = "LEFT"  # from the side that connected: why it goes


@dataclass(slots=True)
class Greeting:
    """The facts of the other side. `version` is the one agreed on."""

    version: int
    facts: dict[str, Any]


def encode_greeting(facts: Mapping[str, Any]) -> list[bytes]:
    return [GREETING.pack(Kind.GREETING, MAGIC, VERSION_MIN, VERSION_MAX), json_part(dict(facts))]


def encode_welcome(version: int, facts: Mapping[str, Any]) -> list[bytes]:
    return [GREETING.pack(Kind.WELCOME, MAGIC, version, version), json_part(dict(facts))]


def encode_refusal(refused: LinkRefused) -> list[bytes]:
    head = GREETING.pack(Kind.REFUSAL, MAGIC, VERSION_MIN, VERSION_MAX)
    return [head, json_part({"code": refused.code, "sentence": refused.sentence})]


def read_greeting(parts: Sequence[Buffer], own: Mapping[str, Any]) -> Greeting:
    """The greeting in `parts`, compared with our `own` facts. Raises what `parse_greeting` and `compare` do."""
    greeting = parse_greeting(parts)
    compare(greeting.facts, own)
    return greeting


def parse_greeting(parts: Sequence[Buffer]) -> Greeting:
    """The greeting in `parts`.

    Raises LinkRefused for another magic or version, MalformedFrame for no greeting at all.
    """
    _, magic, version_min, version_max = expect(GREETING, parts[0])
    if magic != MAGIC:
        raise LinkRefused(MAGIC_DIFFERS, f"the greeting's magic is {magic:08X} and ours is {MAGIC:08X}")
    version = min(version_max, VERSION_MAX)
    if version < max(version_min, VERSION_MIN):
        raise LinkRefused(
            VERSION_DIFFERS,
            f"you speak protocol versions {version_min} to {version_max} and we {VERSION_MIN} to {VERSION_MAX}",
        )
    return Greeting(version, _facts(parts))


def compare(facts: Mapping[str, Any], own: Mapping[str, Any]) -> None:
    """Compares both sides' facts. Raises LinkRefused with a sentence that names both values."""
    for name in COMPARED:
        theirs, ours = facts.get(name), own.get(name)
        if theirs and ours and theirs != ours:
            raise LinkRefused(name.upper(), f"you belong to {name} {theirs!r} and we to {name} {ours!r}")


def read_welcome(parts: Sequence[Buffer], own: Mapping[str, Any]) -> Greeting:
    """The welcome in `parts`, with the same checks; raises a refusal as LinkRefused."""
    kind, magic, *_ = expect(GREETING, parts[0])
    if kind == Kind.REFUSAL and magic == MAGIC:
        raise read_refusal(parts)
    if kind != Kind.WELCOME:
        raise MalformedFrame(f"the answer to a greeting is of kind {kind}")
    return read_greeting(parts, own)


def read_refusal(parts: Sequence[Buffer]) -> LinkRefused:
    """The error that a refusal names."""
    facts = _facts(parts)
    return LinkRefused(str(facts.get("code", MALFORMED)), str(facts.get("sentence", "")))


def _facts(parts: Sequence[Buffer]) -> dict[str, Any]:
    if len(parts) != 2:
        raise MalformedFrame(f"a greeting of {len(parts)} parts where 2 are needed")
    if len(parts[1]) > GREETING_SIZE_MAX:
        raise MalformedFrame(f"the facts of a greeting have {len(parts[1])} bytes; {GREETING_SIZE_MAX} are allowed")
    return read_json(parts[1])
