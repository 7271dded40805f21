"""`towline cluster`: groups of one master and its slaves, from one file. The work is in the modules `cluster_*`."""

from pathlib import Path
from typing import Annotated

import typer

from .lazy import group, load_module
from .options import Json

app = group("Start, inspect and change a cluster that a file describes.")

File = Annotated[
    Path, typer.Option("--file", "-f", help="The cluster file; `towline cluster init` writes one.", dir_okay=False)
]
Groups = Annotated[
    list[str] | None, typer.Option("--group", "-g", metavar="NAME", help="Only this group; may be repeated.")
]
Timeout = Annotated[float, typer.Option("--timeout", min=0.1, help="Seconds to wait for each step.")]
NoRestart = Annotated[
    bool,
    typer.Option("--no-restart", help="Restart nobody: who has to be learns of the change later."),
]


@app.command("init")
def init(
    file: Annotated[Path, typer.Option("--file", "-f", help="Where to write it.")] = Path("cluster.toml"),
    groups: Annotated[int, typer.Option(min=1, max=100, help="Groups, each with a log of its own.")] = 1,
    slaves: Annotated[int, typer.Option(min=0, max=8, help="Slaves of each group.")] = 1,
    name: Annotated[str, typer.Option(help="Name of the cluster.")] = "demo",
    as_json: Json = False,
) -> None:
    """Write a commented cluster file for this machine, with ports that are free."""
    load_module("towline.cli.cluster_files", "server").init(file, groups, slaves, name, as_json)


@app.command("up")
def up(
    file: File,
    group: Groups = None,
    alone: Annotated[
        bool, typer.Option("--alone", help="Let a master start though no peer answers: none of them can be master now.")
    ] = False,
    timeout: Timeout = 120.0,
    as_json: Json = False,
) -> int:
    """Start the nodes of this machine that do not run, and wait until the slaves follow. Exit status 1: not all do."""
    status: int = load_module("towline.cli.cluster_up", "server").up(file, group or [], alone, timeout, as_json)
    return status


@app.command("down")
def down(file: File, group: Groups = None, timeout: Timeout = 60.0, as_json: Json = False) -> int:
    """Stop the nodes of this machine in order. Exit status 1: a store is not clean, or a node did not stop."""
    status: int = load_module("towline.cli.cluster_up", "server").down(file, group or [], timeout, as_json)
    return status


@app.command("restart")
def restart(
    file: File,
    group: Groups = None,
    every: Annotated[bool, typer.Option("--all", help="Also those whose settings are the file's.")] = False,
    timeout: Timeout = 120.0,
    as_json: Json = False,
) -> int:
    """Bring running nodes to the file's settings, one by one, masters last: a restart only where a change takes one."""
    status: int = load_module("towline.cli.cluster_up", "server").restart(file, group or [], every, timeout, as_json)
    return status


@app.command("status")
def status(file: File, group: Groups = None, as_json: Json = False) -> int:
    """Show each group: its state, who is master, who follows and how far. Exit status 1: a group is not ok."""
    worst: int = load_module("towline.cli.cluster_show", "server").status(file, group or [], as_json)
    return worst


@app.command("scale")
def scale(
    file: File,
    group: Annotated[str, typer.Argument(help="Name of the group.")],
    slaves: Annotated[int, typer.Option("--slaves", "-n", min=0, max=62, help="Number of slaves.")],
    host: Annotated[str, typer.Option(help="Machine of new ones.")] = "127.0.0.1",
    no_restart: NoRestart = False,
    timeout: Timeout = 120.0,
    as_json: Json = False,
) -> int:
    """Give a group more or fewer slaves: the file is changed, and what runs."""
    work = load_module("towline.cli.cluster_change", "server")
    status: int = work.scale(file, group, slaves, host, not no_restart, timeout, as_json)
    return status


@app.command("replace-node")
def replace_node(
    file: File,
    group: Annotated[str, typer.Argument(help="Name of the group.")],
    node: Annotated[int, typer.Argument(help="Id of the lost node.")],
    new_id: Annotated[int | None, typer.Option("--id", min=0, max=62, help="Id of the new one; else the same.")] = None,
    host: Annotated[str | None, typer.Option(help="Its machine; else the same.")] = None,
    no_restart: NoRestart = False,
    timeout: Timeout = 600.0,
    as_json: Json = False,
) -> int:
    """Bring in an empty slave for a lost node, and wait until it has caught up. An old store there is set aside."""
    work = load_module("towline.cli.cluster_change", "server")
    status: int = work.replace_node(file, group, node, new_id, host, not no_restart, timeout, as_json)
    return status


@app.command("units")
def units(
    file: File,
    out: Annotated[Path, typer.Option("--out", help="Directory to write to.", file_okay=False)],
    etc: Annotated[Path, typer.Option(help="Where the environment files will lie.")] = Path("/etc/towline"),
    command: Annotated[
        Path | None, typer.Option("--towline", help="The `towline` command on those machines; else this one's path.")
    ] = None,
    user: Annotated[str, typer.Option(help="Who the nodes run as.")] = "towline",
    image: Annotated[str, typer.Option(help="Image of the compose file; it holds the `towline` command.")] = "towline",
    as_json: Json = False,
) -> None:
    """Write a systemd unit and an environment file for each node, and a compose file."""
    load_module("towline.cli.cluster_files", "server").units(file, out, etc, command, user, image, as_json)
