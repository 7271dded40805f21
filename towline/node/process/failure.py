"""The failure of a process, handed to its parent in a file: the error's class, facts and sentence.

The file lies in the store's `run`; where that cannot be written, as on a full disk, in the node's runtime directory.
"""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from towline.errors import StartFailed, TowlineError
from towline.log import errors as log_errors
from towline.log.files.store_files import write_atomically
from towline.places import Store
from towline.runtime.positions import Duty

from .context import runtime_of

# Loaded whoever reads a failure: `error_of` finds only errors that some module has defined.
_DEFINING: Final = (log_errors,)


def facts_of(error: TowlineError) -> dict[str, Any]:
    """What JSON can carry of an error; `error_of` makes it an error again."""
    return {"error": type(error).__name__, "facts": list(error.args), "sentence": str(error)}


def error_of(facts: dict[str, Any], who: str) -> TowlineError:
    """The error itself where its class is known, else a StartFailed of `who`."""
    known = {kind.__name__: kind for kind in _every_kind(TowlineError)}.get(facts["error"])
    return known(*facts["facts"]) if known else StartFailed(who, facts["sentence"])


def _every_kind(kind: type[TowlineError]) -> Iterator[type[TowlineError]]:
    yield kind
    for narrower in kind.__subclasses__():
        yield from _every_kind(narrower)


def write_failure(store: Store, duty: Duty, error: TowlineError) -> None:
    """Never raises: where it cannot be written at all, the log alone says why."""
    for path in _files(store, duty):
        with contextlib.suppress(TowlineError, OSError):
            write_atomically(path, json.dumps(facts_of(error)).encode())
            return


def leave_unexpected(store: Path, label: str, error: Exception) -> None:
    """Of a process that nobody expected to fail like that."""
    failed = StartFailed(label, f"{type(error).__name__}: {error}")
    write_failure(Store(store.resolve()), Duty.named(label), failed)


def read_failure(store: Store, duty: Duty) -> TowlineError | None:
    """The error that a process left in its file, which is deleted."""
    for path in _files(store, duty):
        if path.exists():
            facts = json.loads(path.read_text(encoding="utf-8"))
            path.unlink()
            return error_of(facts, duty.label)
    return None


def forget_failures(store: Store) -> None:
    """Of earlier starts."""
    for duty in Duty:
        for path in _files(store, duty):
            path.unlink(missing_ok=True)


def _files(store: Store, duty: Duty) -> Iterator[Path]:
    for folder in (store.run, runtime_of(store.root).root):
        yield folder / f"{duty.label}.failure"
