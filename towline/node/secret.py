"""What a piece of a node shows put to be told from a client: a secret in the runtime directory (mode 0700).

Put keeps it; a piece that delivers reads it each time it connects. It lives as long as the runtime directory.
"""

import os
import secrets
from pathlib import Path
from typing import Final

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
    return isinstance(shown, str) and secrets.compare_digest(shown.encode(), secret.encode())
