"""Why a piece gave up, carried from the piece to its supervisor as a file: an error's class, its facts, its sentence."""

import json

import towline.errors
from towline.errors import StartFailed, TowlineError
from towline.log.store_files import write_atomically
from towline.places import Store
from towline.runtime.positions import Duty


def write_failure(store: Store, duty: Duty, error: TowlineError) -> None:
    facts = {"error": type(error).__name__, "facts": list(error.args), "sentence": str(error)}
    write_atomically(store.run / f"{duty.label}.failure", json.dumps(facts).encode())


def read_failure(store: Store, duty: Duty) -> TowlineError | None:
    """The error a piece left behind, as itself where its class is known."""
    path = store.run / f"{duty.label}.failure"
    if not path.exists():
        return None
    facts = json.loads(path.read_text(encoding="utf-8"))
    path.unlink()
    known = getattr(towline.errors, facts["error"], None)
    if isinstance(known, type) and issubclass(known, TowlineError):
        return known(*facts["facts"])
    return StartFailed(duty.label, facts["sentence"])
