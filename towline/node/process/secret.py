"""The secret with which processes of a node identify themselves to put: a file in the runtime directory (mode 0700).

Put writes it; schedule reads it each time it connects. It lives as long as the runtime directory.
"""

import os
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from towline.errors import LinkRefused
from towline.link.server import Greet

SCHEDULE_ROLE: Final = "schedule"  # of a greeting that shows the secret
SECRET_FACT: Final = "secret"
_BYTES: Final = 32


def make_secret(path: Path) -> str:
    """The secret at `path`, made if there is none."""
    try:
        found = read_secret(path)
    except FileNotFoundError:
        found = ""
    if found:
        return found
    path.unlink(missing_ok=True)  # empty: whoever made it was killed
    made = secrets.token_hex(_BYTES)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.write(descriptor, made.encode())
    finally:
        os.close(descriptor)
    return made


def read_secret(path: Path) -> str:
    """Raises FileNotFoundError when put has not made it yet."""
    return path.read_text(encoding="ascii")


def is_secret(shown: object, secret: str) -> bool:
    """`shown` is whatever a peer put into its greeting."""
    return isinstance(shown, str) and shown.isascii() and secret != "" and secrets.compare_digest(shown, secret)


def guarded(greet: Greet, secret: Callable[[], str]) -> Greet:
    """The same greeting; only the secret makes a peer a process of this node. `secret` may raise FileNotFoundError."""

    def guard(facts: dict[str, Any]) -> Mapping[str, Any]:
        if facts.get("role") == SCHEDULE_ROLE and not _shows(facts, secret):
            raise LinkRefused("ROLE", f"the role {SCHEDULE_ROLE!r} is for processes of this node")
        return greet(facts)

    return guard


def _shows(facts: Mapping[str, Any], secret: Callable[[], str]) -> bool:
    try:
        return is_secret(facts.get(SECRET_FACT), secret())
    except FileNotFoundError:
        return False
