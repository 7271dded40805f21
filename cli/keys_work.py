"""Does the work of `towline keys`."""

from pathlib import Path
from typing import Any

from rich.console import Console

from towline.link.keys import ENVIRONMENT, list_keys, make_node_keys, new_key, revoke_key

from .output import add_row, show, table


def new(name: str, directory: Path, roles: list[str], as_json: bool) -> None:
    made_ring = make_node_keys(directory)
    handed = new_key(directory, name, roles)
    result = {"name": name, "roles": roles, "file": str(handed), "made_ring": made_ring}

    def render(console: Console) -> None:
        if made_ring:
            console.print(
                f"made what the nodes have of {directory}: copy it to every node, start them with keys_dir={directory}",
                markup=False,
            )
        console.print(f"{handed} is for {name} alone: {ENVIRONMENT}={handed.name}", markup=False)

    show(result, as_json, render)


def list_all(directory: Path, as_json: bool) -> None:
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


def revoke(name: str, directory: Path, as_json: bool) -> None:
    revoke_key(directory, name)
    sentence = f"{name} is revoked in {directory}; other copies of the ring have to be changed too"
    show({"name": name, "revoked": True}, as_json, lambda console: console.print(sentence, markup=False))
