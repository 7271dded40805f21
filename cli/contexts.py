"""Contexts: names for nodes and keys, kept for a user, so that commands need not name them each time.

    ~/.config/towline/contexts.json     or below XDG_CONFIG_HOME; {"current": NAME, "contexts": {NAME: {...}}}

A context has an `endpoint` or a `store`, and the path of a key file where one is needed. TOWLINE_CONTEXT names another
than the current one for a shell or a script.
"""

import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Self

import orjson

from towline.errors import Remedy, TowlineError

ENVIRONMENT: Final = "TOWLINE_CONTEXT"
_MODE: Final = 0o600


class UnknownContext(TowlineError, remedy=Remedy.FIX_CALL):
    name: str
    known: str
    template = "there is no context {name}; there are: {known}"
    advice = "`towline context list` shows them, `towline context add NAME --endpoint ENDPOINT` makes one"


class UnreadableContexts(TowlineError, remedy=Remedy.FIX_SETTINGS):
    path: str
    why: str
    template = "the file of contexts {path} cannot be read: {why}"
    advice = "correct it, or remove it and make the contexts anew: `towline context add NAME --endpoint ENDPOINT`"


@dataclass(frozen=True, slots=True)
class Context:
    """What a name stands for; "" for what it does not have."""

    endpoint: str = ""
    store: str = ""
    keys: str = ""


@dataclass(slots=True)
class Contexts:
    """Those of this user."""

    path: Path
    current: str
    named: dict[str, Context]

    @classmethod
    def read(cls) -> Self:
        """Empty where there is no file yet. Raises UnreadableContexts."""
        above = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
        path = above / "towline" / "contexts.json"
        try:
            found: dict[str, Any] = orjson.loads(path.read_bytes())
            named = {str(name): Context(**fields) for name, fields in found["contexts"].items()}
            return cls(path, str(found["current"]), named)
        except FileNotFoundError:
            return cls(path, "", {})
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise UnreadableContexts(str(path), str(error)) from None

    def save(self) -> None:
        """Whole or not at all."""
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        staged = self.path.with_name(f"{self.path.name}.{os.getpid()}.tmp")
        document = {"current": self.current, "contexts": {name: asdict(each) for name, each in self.named.items()}}
        try:
            descriptor = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, _MODE)
            with os.fdopen(descriptor, "wb") as file:
                file.write(orjson.dumps(document, option=orjson.OPT_INDENT_2))
            staged.replace(self.path)
        finally:
            staged.unlink(missing_ok=True)

    def get(self, name: str) -> Context:
        """Raises UnknownContext."""
        if name not in self.named:
            raise UnknownContext(name, ", ".join(sorted(self.named)) or "none")
        return self.named[name]

    @property
    def chosen(self) -> str:
        """The name that the environment says, else the current one; "" for none."""
        return os.environ.get(ENVIRONMENT, self.current)


def chosen_context() -> Context | None:
    """The one that commands use which name no node. Raises UnknownContext, UnreadableContexts."""
    contexts = Contexts.read()
    return contexts.get(contexts.chosen) if contexts.chosen else None
