"""`python -m tests.fuzz.worker PARENT SLOT JOBS`: runs jobs one after the other, on inputs made of the targets' seeds.

An input of a kind that was not seen before, by the line that refused it or by what the decoder said of it, is a seed
from then on.
"""

import faulthandler
import json
import sys
import warnings
from pathlib import Path
from random import Random
from typing import Final

from towline.parent import die_with_parent

from .catalogue import target_of
from .mutation import Mutation
from .recording import Job, Recorder, limit_memory, speak_alone
from .slot import Slot

_POOL_MAX: Final = 512  # seeds of a target
_MENDED: Final = 3  # of four inputs, where a target mends any


def run(recorder: Recorder, job: Job) -> None:
    """All inputs of a job. The seeds themselves come first."""
    target = recorder.target
    mutation = Mutation(Random(f"{job.seed} {job.name} {job.first}"), target.grammar, target.words, target.size_max)
    pool = list(target.seeds())
    given, known = len(pool), set[object]()
    while not recorder.is_done:
        if recorder.done < given:
            data = pool[recorder.done]
        else:
            among = given if mutation.below(2) else len(pool)
            data = mutation.changed(pool[mutation.below(among)], pool[mutation.below(len(pool))])
            if target.mend is not None and mutation.below(4) < _MENDED:
                data = target.mend(data)
        verdict = recorder.take(data)
        if verdict.defect is None and verdict.feature not in known:
            known.add(verdict.feature)
            if len(pool) < _POOL_MAX:
                pool.append(data)


def main() -> None:
    die_with_parent(int(sys.argv[1]))
    faulthandler.enable()
    speak_alone()
    slot, jobs = Slot(Path(sys.argv[2])), [Job(*each) for each in json.loads(sys.argv[3])]
    targets = [target_of(job.module, job.name) for job in jobs]
    warnings.simplefilter("error")
    limit_memory()
    for number, (job, target) in enumerate(zip(jobs, targets, strict=True)):
        run(Recorder(number, job, target, slot), job)


if __name__ == "__main__":
    main()
