"""Questions to a node (ASK and ANSWER) and what comes back."""

from dataclasses import dataclass
from typing import Any

from towline.errors import AskRefused, MalformedFrame, UnknownTopic
from towline.format.frames import ANSWER, ASK, Buffer, Kind, expect, json_part, read_json

from .columns import Columns


@dataclass(slots=True)
class Reply:
    """An answer: JSON facts, and the records when the question was for some."""

    facts: dict[str, Any]
    columns: Columns


def encode_ask(request_id: int, op: str, facts: dict[str, Any]) -> list[bytes]:
    return [ASK.pack(Kind.ASK, request_id), json_part({"op": op, **facts})]


def read_answer(op: str, facts: dict[str, Any], parts: list[Buffer]) -> Reply:
    """Raises UnknownTopic, AskRefused, MalformedFrame."""
    _, status, _, count = expect(ANSWER, parts[0])
    if len(parts) != (4 if count else 2):
        raise MalformedFrame(f"an answer with {count} records in {len(parts)} parts")
    answer = read_json(parts[1])
    if status:
        error, sentence = str(answer.get("error", "")), str(answer.get("sentence", ""))
        if error in ("UnknownTopic", "TOPIC_NOT_EXIST"):
            raise UnknownTopic(str(facts.get("topic", "")))
        raise AskRefused(op, error, sentence)
    sizes, records = (parts[2], parts[3]) if count else (b"", b"")
    return Reply(answer, Columns(sizes, records))
