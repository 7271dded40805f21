"""Tasks of a job without Spark: what they are given and return is pickled here too."""

import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from towline.pipeline.progress import Progress
from towline.pipeline.tasks import Done, Part


@dataclass(frozen=True)
class Loop:
    """In this process, one after the other."""

    progress: Progress = Progress()  # noqa: RUF009 - it has no state
    parallel: int = 1

    def run(self, what: str, work: Callable[[Part], Done], parts: Sequence[Part]) -> list[Done]:
        done = []
        for number, part in enumerate(parts):
            self.progress.report(what, number, len(parts))
            done.append(pickle.loads(pickle.dumps(work(pickle.loads(pickle.dumps(part))))))
        return done
