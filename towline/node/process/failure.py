"""Why a process gave up, carried to whoever started it: an error's class, its facts, its sentence."""

import json
from collections.abc import Iterator
from typing import Any, Final

from towline.errors import StartFailed, TowlineError
from towline.log import errors as log_errors
from towline.log.files.store_files import write_atomically
from towline.places import Store
from towline.runtime.positions import Duty

# Loaded whoever reads a failure: `error_of` finds only errors that some module has defined.
_DEFINING: Final = (log_errors,)


def facts_of(error: TowlineError) -> dict[str, Any]:
    """What JSON can carry of an error; `error_of` makes it an error again."""
    return {"error": type(error).__name__, "facts": list(error.args), "sentence": str(error)}


def error_of(facts: dict[str, Any], who: str) -> TowlineError:
    """The error as itself where its class is known, else what `who` said while it started."""
    known = {kind.__name__: kind for kind in _every_kind(TowlineError)}.get(facts["error"])
    return known(*facts["facts"]) if known else StartFailed(who, facts["sentence"])


def _every_kind(kind: type[TowlineError]) -> Iterator[type[TowlineError]]:
    yield kind
    for narrower in kind.__subclasses__():
        yield from _every_kind(narrower)


def write_failure(store: Store, duty: Duty, error: TowlineError) -> None:
    write_atomically(store.run / f"{duty.label}.failure", json.dumps(facts_of(error)).encode())


def read_failure(store: Store, duty: Duty) -> TowlineError | None:
    """The error a piece left behind; it is taken away."""
    path = store.run / f"{duty.label}.failure"
    if not path.exists():
        return None
    facts = json.loads(path.read_text(encoding="utf-8"))
    path.unlink()
    return error_of(facts, duty.label)
