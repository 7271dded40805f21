"""`towline keys`: who may connect to a port that is open beyond this machine."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from .lazy import group, load_module
from .options import Json

app = group("Make, list and revoke the keys of a cluster's ports.")


class Role(StrEnum):
    PRODUCER = "producer"
    CONSUMER = "consumer"
    ADMIN = "admin"


Ring = Annotated[Path, typer.Option("--dir", help="The key ring: a directory, the same on every node.")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="Whose key it is.")]


@app.command("new")
def new(
    name: Name,
    directory: Ring,
    role: Annotated[
        list[Role],
        typer.Option("--role", help="What its holder may be; repeatable. A group's member needs the first two."),
    ],
    as_json: Json = False,
) -> None:
    """Make a key, and the ring with the nodes' own key if there is none. Nodes that run know it at once."""
    load_module("towline.node.ring_certificate", "server")  # where a ring is made
    load_module("towline.cli.keys_work", "cli").new(name, directory, [one.value for one in role], as_json)


@app.command("list")
def list_all(directory: Ring, as_json: Json = False) -> None:
    """List who may come, and who may not any more."""
    load_module("towline.cli.keys_work", "cli").list_all(directory, as_json)


@app.command("revoke")
def revoke(name: Name, directory: Ring, as_json: Json = False) -> None:
    """Let a key open nothing any more. Nodes that have this ring cut its holder off within a second."""
    load_module("towline.cli.keys_work", "cli").revoke(name, directory, as_json)
