"""`towline keys`: who may connect to a port that is open beyond this machine."""

from pathlib import Path
from typing import Annotated

import typer

from .lazy import group as group_of_commands
from .lazy import load_module
from .options import Json

app = group_of_commands("Make, list, change and revoke the keys of a cluster's ports.")

Ring = Annotated[Path, typer.Option("--dir", help="The key ring: a directory, the same on every node.")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="Whose key it is.")]
Roles = Annotated[
    list[str],
    typer.Option(
        "--role",
        metavar="ROLE[:TOPICS]",
        help="What its holder may be, producer, consumer or admin; repeatable. For some topics alone: "
        "producer:orders,orders-*. A group's member is a consumer whose groups are named, or a producer too.",
    ),
]
Groups = Annotated[
    list[str] | None,
    typer.Option(
        "--group",
        metavar="PATTERN",
        help="A group, or the beginning of some with * behind it, in which a consumer may be; repeatable. Every group "
        "without it, with what these send back, of any topic.",
    ),
]


@app.command("new")
def new(
    name: Name,
    directory: Ring,
    role: Roles,
    group: Groups = None,
    as_json: Json = False,
) -> None:
    """Make a key, and the ring with the nodes' own key if there is none. Nodes that run know it at once."""
    load_module("towline.node.ring_certificate", "server")  # where a ring is made
    load_module("towline.cli.keys_work", "cli").new(name, directory, role, group or [], as_json)


@app.command("change")
def change(
    name: Name,
    directory: Ring,
    role: Roles,
    group: Groups = None,
    as_json: Json = False,
) -> None:
    """Give a key other roles, topics and groups, all anew. Its file stays good; nodes that run know it in a second."""
    load_module("towline.cli.keys_work", "cli").change(name, directory, role, group or [], as_json)


@app.command("list")
def list_all(directory: Ring, as_json: Json = False) -> None:
    """List who may come, and who may not any more."""
    load_module("towline.cli.keys_work", "cli").list_all(directory, as_json)


@app.command("revoke")
def revoke(name: Name, directory: Ring, as_json: Json = False) -> None:
    """Let a key open nothing any more. Nodes that have this ring cut its holder off within a second."""
    load_module("towline.cli.keys_work", "cli").revoke(name, directory, as_json)
