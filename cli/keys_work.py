"""Does the work of `towline keys`."""

from pathlib import Path
from typing import Any

from rich.console import Console

from towline.link.keys import ENVIRONMENT, Key, change_key, list_keys, make_node_keys, new_key, revoke_key
from towline.link.permissions import CONSUMER, EVERYTHING, PRODUCER, read_roles

from .output import add_row, show, table


def new(name: str, directory: Path, roles: list[str], groups: list[str], as_json: bool) -> None:
    made_ring = make_node_keys(directory)
    handed = new_key(directory, name, roles, groups)
    kinds, limits = read_roles(roles, groups)
    key = Key(name, kinds, "", limits=limits)
    result = {**_facts(key), "file": str(handed), "made_ring": made_ring}

    def render(console: Console) -> None:
        if made_ring:
            console.print(
                f"made what the nodes have of {directory}: copy it to every node, start them with keys_dir={directory}",
                markup=False,
            )
        console.print(f"{handed} is for {name} alone: {ENVIRONMENT}={handed.name}", markup=False)
        _warn(console, key)

    show(result, as_json, render)


def change(name: str, directory: Path, roles: list[str], groups: list[str], as_json: bool) -> None:
    changed = change_key(directory, name, roles, groups)
    sentence = f"{name} is {_told(changed)} from now on in {directory}; other copies of the ring have to be changed too"

    def render(console: Console) -> None:
        console.print(sentence, markup=False)
        _warn(console, changed)

    show(_facts(changed), as_json, render)


def list_all(directory: Path, as_json: bool) -> None:
    found = list_keys(directory)
    rows: list[dict[str, Any]] = [
        {**_facts(listed.key), "public": listed.key.public, "revoked": listed.revoked} for listed in found
    ]

    def render(console: Console) -> None:
        made = table("name", "roles", "groups", "public key", "")
        for listed in found:
            key = listed.key
            revoked = "revoked" if listed.revoked else ""
            everywhere = EVERYTHING if key.roles != (PRODUCER,) else ""
            add_row(made, key.name, _told(key), ", ".join(key.limits.groups) or everywhere, key.public, revoked)
        console.print(made)

    show({"ring": str(directory), "keys": rows}, as_json, render)


def revoke(name: str, directory: Path, as_json: bool) -> None:
    revoke_key(directory, name)
    sentence = f"{name} is revoked in {directory}; other copies of the ring have to be changed too"
    show({"name": name, "revoked": True}, as_json, lambda console: console.print(sentence, markup=False))


def _facts(key: Key) -> dict[str, Any]:
    """`topics` has the roles that are for some alone; no `groups` are every group."""
    topics = {role: list(patterns) for role, patterns in key.limits.topics}
    return {"name": key.name, "roles": list(key.roles), "topics": topics, "groups": list(key.limits.groups)}


def _told(key: Key) -> str:
    """As `--role` takes it."""
    return " ".join(":".join(filter(None, (role, ",".join(key.limits.of(role))))) for role in key.roles)


def _warn(console: Console, key: Key) -> None:
    if key.limits.of(CONSUMER) and not key.limits.groups:
        why = "it consumes in every group, and reads what these send back, of any topic: --group names some"
        console.print(why, markup=False)
