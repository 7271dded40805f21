"""`python -m tests.fuzz`: decoders of bytes that others made, under inputs that nobody makes.

Each target gets its share of the inputs. Where atheris is installed, half of them are made by the code that they reach,
of targets that do not run compiled code. What fails is kept in build/fuzz, and the run fails; `--replay` runs such a
file once more, here.
"""

import argparse
import contextlib
import faulthandler
import os
import sys
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from .catalogue import every_target, target_of
from .guided import ATHERIS
from .judging import ACCEPTED, judge
from .recording import Job
from .running import ENDING, ROOT, Run, Tally

INPUTS: Final = 10_000_000
SHARE_MIN: Final = 1_000  # inputs of a target
_TELL_EVERY_S: Final = 10.0
_SHOWN: Final = 6  # refusals of a line


def jobs_of(names: Sequence[str], inputs: int, seed: int) -> list[tuple[str, Job]]:
    """What is to be run, and by which worker."""
    modules = every_target()
    targets = [target_of(modules[name], name) for name in names]
    whole = sum(target.weight for target in targets)
    found: list[tuple[str, Job]] = []
    for target in targets:
        share = max(int(inputs * target.weight / whole), SHARE_MIN)
        guided = share // 2 if find_spec(ATHERIS) is not None and not target.is_compiled else 0
        job = Job(modules[target.name], target.name, share - guided, seed)
        found.append(("worker", job))
        if guided:
            found.append(("guided", job._replace(inputs=guided)))
    return found


def table(tallies: Sequence[Tally]) -> list[str]:
    """A line for each target, and one for all."""
    lines = [f"{'target':28} {'inputs':>10} {'accepted':>10} {'defects':>7} {'s':>6}  refusals"]
    for tally in tallies:
        others = {name: count for name, count in tally.outcomes.most_common() if name != ACCEPTED}
        shown = ", ".join(f"{name} {count:,}" for name, count in list(others.items())[:_SHOWN])
        numbers = f"{tally.inputs:10,} {tally.outcomes[ACCEPTED]:10,} {len(tally.kept):7} {tally.seconds:6.0f}"
        lines.append(f"{tally.name:28} {numbers}  {shown}")
    inputs, defects = (sum(each) for each in zip(*((tally.inputs, len(tally.kept)) for tally in tallies), strict=True))
    return [*lines, f"{inputs:,} inputs to {len(tallies)} targets, {defects} defects"]


def fuzz(asked: argparse.Namespace) -> int:
    modules = every_target()
    if unknown := [name for name in asked.target if name not in modules]:
        raise SystemExit(f"no target has this name: {', '.join(unknown)}; there are {', '.join(modules)}")
    began, told = time.monotonic(), 0.0

    def progress(name: str, inputs: int) -> None:
        nonlocal told
        if (now := time.monotonic()) - told > _TELL_EVERY_S:
            told = now
            print(f"{now - began:6.0f} s {inputs:12,} inputs  {name}", flush=True)

    deadline = began + asked.minutes * 60 if asked.minutes else float("inf")
    run = Run(deadline=deadline, progress=progress)
    jobs = jobs_of(asked.target or list(modules), asked.inputs, asked.seed)
    print(f"seed {asked.seed}, atheris {'is' if find_spec(ATHERIS) else 'is not'} installed", flush=True)
    with contextlib.suppress(KeyboardInterrupt):  # what ran is shown
        run.run("worker", [job for worker, job in jobs if worker == "worker"])
        for worker, job in jobs:
            if worker == "guided":
                run.run(worker, [job])
    for line in table(list(run.tallies.values())):
        print(line)
    failed = [(kind, path, tally.stories[kind]) for tally in run.tallies.values() for kind, path in tally.kept.items()]
    for kind, path, story in failed:
        print(f"\n{kind}: python -m tests.fuzz --replay {path.relative_to(ROOT)}\n{story}")
    return 1 if failed else 0


def replay(path: Path) -> int:
    """Runs a kept input in this process. Its name begins with that of its target."""
    name = path.name.removesuffix(ENDING).rpartition("-")[0]
    modules = every_target()
    if name not in modules:
        raise SystemExit(f"{path} is named after no target")
    faulthandler.enable()
    verdict = judge(target_of(modules[name], name), path.read_bytes())
    print(f"{verdict.outcome}\n{verdict.defect.story if verdict.defect else ''}")
    return 1 if verdict.defect else 0


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="Decoders refuse by name, or take.")
    parser.add_argument("--target", action="append", default=[], metavar="NAME", help="this one; may be repeated")
    parser.add_argument("--inputs", type=int, default=INPUTS, metavar="N", help="of all targets together")
    parser.add_argument(
        "--minutes", type=float, default=0.0, metavar="M", help="the run stops then; 0: when it is through"
    )
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(3), "big"), metavar="S")
    parser.add_argument("--replay", type=Path, metavar="FILE", help="of build/fuzz, once more")
    return parser.parse_args()


def main() -> int:
    asked = options()
    return replay(asked.replay) if asked.replay else fuzz(asked)


if __name__ == "__main__":
    sys.exit(main())
