"""A subscription to a topic, as brokers read it."""

from typing import Any

from towline.format.java_hash import string_hash
from towline.format.remoting.consumers import SQL92


def subscription_of(topic: str, expression: str, kind: str, version: int) -> dict[str, Any]:
    """`kind` is TAG or SQL92."""
    tags = [] if kind == SQL92 or expression == "*" else [each.strip() for each in expression.split("||")]
    return {
        "classFilterMode": False,
        "topic": topic,
        "subString": expression,
        "tagsSet": tags,
        "codeSet": [string_hash(tag) for tag in tags],
        "subVersion": version,
        "expressionType": kind,
    }
