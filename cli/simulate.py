"""`towline simulate`: the decisions of a group of nodes under a simulated clock, network and disk."""

from typing import Annotated

import typer

from .lazy import load_module
from .options import Json


def simulate(
    seeds: Annotated[int, typer.Option(min=1, max=10_000_000, help="How many seeds are tried.")] = 200,
    first: Annotated[int, typer.Option(min=0, help="The first of them.")] = 0,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Replay this one alone, with everything that happens.")
    ] = None,
    steps: Annotated[
        int | None, typer.Option(min=1, help="With --seed: of everything that happens, the last so many lines.")
    ] = None,
    processes: Annotated[
        int | None, typer.Option(min=1, max=1024, help="Processes that share the seeds; one a core by default.")
    ] = None,
    as_json: Json = False,
) -> int:
    """Run groups of simulated nodes through faults, one history a seed, and look for a broken promise.

    The nodes decide by the functions of the real ones; time, network, disks and processes are simulated. The exit
    status is 1 where an invariant breaks, and the seed is named. Equal seeds give equal histories.
    """
    work = load_module("towline.cli.simulate_work", "server")
    status: int = work.replay(seed, steps, as_json) if seed is not None else work.run(first, seeds, processes, as_json)
    return status
