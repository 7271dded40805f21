"""Signatures of greetings over a node's remoting port, by the keys that RocketMQ's clients sign their requests with.

Signed is the JSON of all facts but the signature itself, names in their order: HMAC-SHA256 with the key's `access`, in
hexadecimal digits. `signed_at` bounds how long somebody who overheard a greeting may repeat it; TLS helps.
"""

import hashlib
import hmac
import json
import time
from collections.abc import Mapping
from typing import Any, Final

from towline.errors import LinkRefused

from .keys import KEYS_MADE, AuthorizedKeys, Key

KEY_REFUSED: Final = "KEY"
ACCESS_KEY: Final = "access_key"
SIGNED_AT: Final = "signed_at"
SIGNATURE: Final = "signature"
VALID_MS: Final = 300_000  # before and after `signed_at`


def sign(facts: Mapping[str, Any], key: Key) -> dict[str, Any]:
    """The facts of a greeting with the key's name, the time, and the signature."""
    found = {**facts, ACCESS_KEY: key.name, SIGNED_AT: time.time_ns() // 1_000_000}
    return {**found, SIGNATURE: _signature(found, key.access)}


def verify(facts: Mapping[str, Any], keys: AuthorizedKeys, now_ms: int) -> Key:
    """The key that signed the facts. Raises LinkRefused: none, one not allowed, another role, a wrong signature."""
    name = facts.get(ACCESS_KEY)
    if not isinstance(name, str):
        raise LinkRefused(KEY_REFUSED, f"a key is wanted: TOWLINE_KEYS=FILE; {KEYS_MADE}")
    found = keys.access(name)
    if found is None:
        raise LinkRefused(KEY_REFUSED, f"no key {name[:64]!r} is allowed: it is unknown there, or was revoked")
    key, secret = found
    given = facts.get(SIGNATURE)
    if not isinstance(given, str) or not hmac.compare_digest(_signature(facts, secret).encode(), given.encode()):
        raise LinkRefused(KEY_REFUSED, f"the signature of {key.name!r} is wrong")
    signed_at = facts.get(SIGNED_AT)
    if not isinstance(signed_at, int) or abs(now_ms - signed_at) > VALID_MS:
        raise LinkRefused(
            KEY_REFUSED, f"the greeting was signed at {signed_at!r} ms, here it is {now_ms}: set both clocks"
        )
    role = facts.get("role")
    if role not in key.may_greet_as:
        raise LinkRefused(KEY_REFUSED, f"{key.name!r} may be {', '.join(key.roles)}, and greets as {role!r}")
    return key


def _signature(facts: Mapping[str, Any], secret: str) -> str:
    signed = {name: value for name, value in facts.items() if name != SIGNATURE}
    text = json.dumps(signed, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hmac.new(secret.encode(), text.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()
