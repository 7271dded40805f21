"""`towline keys`: who may connect to a port that is open beyond this machine."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from towline.link.keys import ENVIRONMENT, list_keys, make_node_keys, new_key, revoke_key

from .output import Json, add_row, load_module, show, table

app = typer.Typer(help="Make, list and revoke the keys of a cluster's ports.", no_args_is_help=True)


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
    load_module("towline.runtime.ring_certificate", "server")
    made_ring = make_node_keys(directory)
    handed = new_key(directory, name, [one.value for one in role])
    result = {"name": name, "roles": [one.value for one in role], "file": str(handed), "made_ring": made_ring}

    def render(console: Console) -> None:
        if made_ring:
            console.print(
                f"made the ring {directory}: copy it to every node, start them with keys_dir={directory}", markup=False
            )
        console.print(
            f"{handed} is for {name} alone: {ENVIRONMENT}={handed.name}, or keys=... of a client", markup=False
        )

    show(result, as_json, render)


@app.command("list")
def list_all(directory: Ring, as_json: Json = False) -> None:
    """List who may come, and who may not any more."""
    rows: list[dict[str, Any]] = [
        {
            "name": listed.key.name,
            "roles": list(listed.key.roles),
            "public": listed.key.public,
            "revoked": listed.revoked,
        }
        for listed in list_keys(directory)
    ]

    def render(console: Console) -> None:
        made = table("name", "roles", "public key", "")
        for row in rows:
            add_row(made, row["name"], ", ".join(row["roles"]), row["public"], "revoked" if row["revoked"] else "")
        console.print(made)

    show({"ring": str(directory), "keys": rows}, as_json, render)


@app.command("revoke")
def revoke(name: Name, directory: Ring, as_json: Json = False) -> None:
    """Let a key open nothing any more. Nodes that have this ring cut its holder off within a second."""
    revoke_key(directory, name)
    sentence = f"{name} is revoked in {directory}; other copies of the ring have to be changed too"
    show({"name": name, "revoked": True}, as_json, lambda console: console.print(sentence, markup=False))
