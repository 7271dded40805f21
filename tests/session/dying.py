"""Work of a task whose first attempt is lost. The workers of Spark import this module, so it imports little."""

from collections.abc import Callable
from pathlib import Path
from typing import Any


def dies_once(work: Callable[[Any], Any], mark: Path, victim: Any, part: Any) -> Any:
    """What `work` makes of `part`; of `victim` once an error, when the work is done. `mark` says that it was."""
    done = work(part)
    if part == victim and not mark.exists():
        mark.touch()
        raise RuntimeError("the executor was lost")
    return done
