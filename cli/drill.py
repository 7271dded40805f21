"""`towline drill`: faults on a live cluster under a load every message of which is checked. Work: `loadtest.drill`."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from .lazy import group, load_module
from .options import Json

app = group("Break a cluster on purpose, and prove that nothing is lost.")


class By(StrEnum):
    """How nodes are parted."""

    AUTO = "auto"
    NAMESPACE = "namespace"
    PROXY = "proxy"
    HALF_OPEN = "half-open"
    DELAY = "delay"


Rounds = Annotated[int, typer.Option(min=1, max=10_000, help="How often, on the same cluster.")]
Seconds = Annotated[float, typer.Option(min=0.1, help="Seconds that a pause, a cut or a slow disk lasts.")]
Rate = Annotated[int, typer.Option(min=100, max=100_000, help="Messages a second of the load.")]
Nodes = Annotated[int, typer.Option(min=2, max=9, help="Nodes of the drill's own cluster.")]
Least = Annotated[
    int, typer.Option("--min-in-sync", min=1, max=9, help="min_in_sync_replicas; 1: a master alone goes on, degraded.")
]
Etcd = Annotated[bool, typer.Option("--etcd", help="Fail over by a real etcd, which the drill starts; else by hand.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of all random choices; 0 draws one.")]
History = Annotated[
    bool, typer.Option("--history", help="Read along and keep registers too: operations.jsonl, for a checker.")
]
Out = Annotated[Path, typer.Option(help="Directory for history, picture and report.", file_okay=False)]
OfCluster = Annotated[
    Path | None,
    typer.Option("--cluster", help="File of a running cluster, for its first group; else one is made and removed."),
]
Group = Annotated[str | None, typer.Option("--group", "-g", metavar="NAME", help="Another group of that cluster.")]
OUT = Path("build/drills")


def _run(names: list[str], as_json: bool, out: Path, **plan: object) -> int:
    status: int = load_module("towline.cli.drill_run", "drill").run(names, out, as_json, plan)
    return status


def _usual(name: str, what: str) -> None:
    """A drill without options of its own."""

    def command(
        rounds: Rounds = 1,
        seconds: Seconds = 3.0,
        rate: Rate = 2000,
        nodes: Nodes = 3,
        min_in_sync: Least = 2,
        etcd: Etcd = False,
        cluster: OfCluster = None,
        group: Group = None,
        seed: Seed = 0,
        history: History = False,
        out: Out = OUT,
        as_json: Json = False,
    ) -> int:
        return _run(
            [name],
            as_json,
            out,
            rounds=rounds,
            seconds=seconds,
            rate=rate,
            nodes=nodes,
            least=min_in_sync,
            etcd=etcd,
            cluster=cluster,
            group=group,
            seed=seed,
            history=history,
        )

    command.__doc__ = what
    app.command(name)(command)


_usual("kill-master", "Kill every process of the master; another node takes over, the old one comes back as a slave.")
_usual("kill-slave", "Kill every process of a slave; the master goes on, the slave comes back and catches up.")
_usual("pause-slave", "Stop every process of a slave for a while (SIGSTOP), then let it go on.")
_usual("rejoin-diverged", "Give a master a tail that no slave has, kill it, promote, and let it come back.")
_usual("slow-disk", "Make every sync of the master's flush process take 100 ms longer.")
_usual("disk-full", "Fill the master's disk; puts are refused by name and go on when there is room again.")
_usual("rolling-restart", "Stop and start every node in turn, in order; the master's role moves first.")


@app.command("kill-process")
def kill_process(
    process: Annotated[str, typer.Argument(metavar="NAME", help="put, flush, send, receive, ..., supervisor, zygote.")],
    rounds: Rounds = 1,
    rate: Rate = 2000,
    nodes: Nodes = 3,
    etcd: Etcd = False,
    cluster: OfCluster = None,
    group: Group = None,
    seed: Seed = 0,
    history: History = False,
    out: Out = OUT,
    as_json: Json = False,
) -> int:
    """Kill one process of the first node that has it, the master in front; its supervisor brings it back."""
    more = {"rate": rate, "nodes": nodes, "etcd": etcd, "cluster": cluster, "group": group, "seed": seed}
    more["history"] = history
    return _run(["kill-process"], as_json, out, target=process, rounds=rounds, **more)


@app.command("partition")
def partition(
    by: Annotated[
        By, typer.Option(help="A network namespace (root) or a proxy; half-open: answers get lost; delay: 200 ms more.")
    ] = By.AUTO,
    rounds: Rounds = 1,
    seconds: Seconds = 3.0,
    rate: Rate = 2000,
    nodes: Nodes = 3,
    etcd: Etcd = False,
    seed: Seed = 0,
    history: History = False,
    out: Out = OUT,
    as_json: Json = False,
) -> int:
    """Cut the master off from slaves, etcd and half of the producers; another node takes over; the cut heals."""
    more = {"rate": rate, "nodes": nodes, "etcd": etcd, "seed": seed, "seconds": seconds, "history": history}
    return _run(["partition"], as_json, out, by=by.value, rounds=rounds, **more)


@app.command("all")
def every(
    seconds: Seconds = 3.0,
    rate: Rate = 2000,
    nodes: Nodes = 3,
    etcd: Etcd = False,
    seed: Seed = 0,
    history: History = False,
    out: Out = OUT,
    as_json: Json = False,
) -> int:
    """Every drill, one after the other; what this machine cannot do is skipped and named, and the exit status is 3."""
    return _run([], as_json, out, seconds=seconds, rate=rate, nodes=nodes, etcd=etcd, seed=seed, history=history)
