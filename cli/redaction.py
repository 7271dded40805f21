"""Takes secrets out of what is handed on: by what they look like, by their names, and by what this node's are."""

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from towline.link.keys import access_secret

REMOVED: Final = "[removed]"
_LEAST: Final = 8  # characters of a known secret: a shorter one would tear up words
_NAME: Final = r"[\w.-]*(?:secret|passw(?:or)?d|passphrase|token|access_?key|api_?key|credential|signature)[\w.-]*"
_NAMED: Final = re.compile(_NAME, re.IGNORECASE)
_LOOKS: Final = (
    (re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL), REMOVED),
    (re.compile(r"(\b[a-z][a-z0-9+.-]*://)[^\s,\"']*@", re.IGNORECASE), rf"\1{REMOVED}@"),
    (re.compile(r"(\bauthorization[\"']?\s*[:=]\s*)[^\n]+", re.IGNORECASE), rf"\1{REMOVED}"),
    (
        re.compile(rf"({_NAME}[\"']?\s*[:=]\s*)(?:\"[^\"\n]*\"?|'[^'\n]*'?|[^\s,;&\"'}}\])]+)", re.IGNORECASE),
        rf"\1{REMOVED}",
    ),
)


class Redaction:
    """Takes the `known` secrets out as well, wherever they stand."""

    def __init__(self, known: Iterable[str] = ()) -> None:
        self._known = sorted({each for each in known if len(each) >= _LEAST}, key=len, reverse=True)

    def text(self, text: str) -> str:
        for each in self._known:
            text = text.replace(each, REMOVED)
        for pattern, instead in _LOOKS:
            text = pattern.sub(instead, text)
        return text

    def document(self, value: Any) -> Any:
        """What a JSON document holds; a name like that of a secret takes away whatever stands under it."""
        if isinstance(value, dict):
            return {
                self.text(str(name)): REMOVED if _NAMED.fullmatch(str(name)) and each else self.document(each)
                for name, each in value.items()
            }
        if isinstance(value, list | tuple):
            return [self.document(each) for each in value]
        return self.text(value) if isinstance(value, str) else value


def key_in(path: Path) -> dict[str, str]:
    """What a key file says. Raises OSError, ValueError for what is none."""
    key = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(key, dict):
        raise ValueError(f"{path} is no key file")
    return {name: str(value) for name, value in key.items()}


def secrets_of(keys: Iterable[Mapping[str, str]]) -> set[str]:
    """Those in the files of a ring, and those that follow from them: what the holder of each public key signs with."""
    known = list(keys)
    found = {key.get(name, "") for key in known for name in ("secret", "access")}
    nodes = {secret for key in known if (secret := key.get("secret"))}
    found |= {access_secret(secret, key["public"]) for secret in nodes for key in known if "public" in key}
    return found - {""}


def private_lines(path: Path) -> set[str]:
    """Those of the private key in a PEM file, each for itself: a log may have wrapped them. Raises OSError."""
    private = path.read_text(encoding="ascii").partition("-----BEGIN CERTIFICATE-----")[0]
    return {line for line in private.splitlines() if not line.startswith("-----")}
