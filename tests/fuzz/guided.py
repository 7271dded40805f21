"""`python -m tests.fuzz.guided PARENT SLOT JOBS`: one job, on inputs that libFuzzer makes by the code that they reach.

atheris counts branches in the modules of the decoders. Half of the changes are libFuzzer's own, half `Mutation`'s.
"""

import faulthandler
import json
import os
import sys
import warnings
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Any, Final

from towline.kernels.jit import machine_code
from towline.parent import die_with_parent

from .mutation import Mutation
from .recording import Job, Recorder, limit_memory, speak_alone
from .slot import Slot

ATHERIS: Final = "atheris"
INSTRUMENTED: Final = (
    *("towline.format", "towline.filter", "towline.kafka", "towline.replication", "towline.link", "towline.log.state"),
    *("towline.log.files", "towline.pipeline.archive_manifest", "towline.client", "towline.slave", "towline.serve"),
)
_FLAGS: Final = (
    "-runs=-1",
    "-timeout=86400",  # 0 is no end of its own clock: it ended an input after a second
    "-rss_limit_mb=0",
    "-verbosity=0",
    "-print_final_stats=0",
    "-len_control=20",
)


def fuzz(atheris: Any, recorder: Recorder, job: Job, corpus: Path) -> None:
    """Runs until the job's inputs are through; the process ends with it."""
    target = recorder.target
    mutation = Mutation(Random(f"{job.seed} {job.name} guided"), target.grammar, target.words, target.size_max)
    seeds = list(target.seeds())
    for number, seed in enumerate(seeds):
        (corpus / f"{number:04}").write_bytes(seed)

    def change(data: bytes, size_max: int, seed: int) -> bytes:
        if seed % 2:
            made = mutation.changed(data, seeds[mutation.below(len(seeds))])
        else:
            made = atheris.Mutate(data or b" ", size_max)
        if target.mend is not None and seed % 4 > 0:
            made = target.mend(made)
        return made[:size_max]

    def take(data: bytes) -> None:
        recorder.take(data)
        if recorder.is_done:
            os._exit(0)  # libFuzzer has no other end

    flags = [*_FLAGS, f"-seed={job.seed % (1 << 31) + 1}", f"-max_len={target.size_max}"]
    atheris.Setup([ATHERIS, *flags, str(corpus)], take, custom_mutator=change)
    atheris.Fuzz()


def main() -> None:
    die_with_parent(int(sys.argv[1]))
    faulthandler.enable()
    speak_alone()
    atheris: Any = import_module(ATHERIS)
    place, job = Path(sys.argv[2]), Job(*json.loads(sys.argv[3])[0])
    slot, corpus = Slot(place), place.with_name("corpus")
    machine_code.prefer()  # numba would compile what atheris has changed
    with atheris.instrument_imports(include=list(INSTRUMENTED)):
        catalogue = import_module("tests.fuzz.catalogue")
        target = catalogue.target_of(job.module, job.name)
    warnings.simplefilter("error")
    limit_memory()
    corpus.mkdir()
    fuzz(atheris, Recorder(0, job, target, slot), job, corpus)


if __name__ == "__main__":
    main()
