"""`towline store`: what an operator does to the files of a store. The work is in modules of their own."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from .lazy import group, load_module
from .options import Json, StoreDir

app = group("Look after the files of a store.")

Yes = Annotated[bool, typer.Option("--yes", help="Do it; without this only what would be done is said.")]
Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        help="TOML file of settings, or a real broker.conf, for a store on which no node of ours ever ran.",
        exists=True,
        dir_okay=False,
    ),
]


@app.callback()
def store() -> None:
    """Look after the files of a store."""


@app.command("mend")
def mend(store: StoreDir, yes: Yes = False, as_json: Json = False) -> None:
    """After a failed sync: write everything behind the last durable offset anew, sync it, and take the flag off."""
    load_module("towline.cli.store_work", "server").mend_store(store, yes, as_json)


@app.command("verify")
def verify(store: StoreDir, config: Config = None, as_json: Json = False) -> int:
    """Read every file and report what is wrong. Status 0: sound; 1: a start or a repair heals it; 2: damage."""
    return int(load_module("towline.cli.store_verify", "server").verify_store(store, config, as_json))


@app.command("clean")
def clean(store: StoreDir, as_json: Json = False) -> None:
    """On a running node: delete segments older than file_reserved_time now, whatever the hour."""
    load_module("towline.cli.store_work", "server").clean_store(store, as_json)


@app.command("repair")
def repair(
    store: StoreDir,
    yes: Yes = False,
    skip: Annotated[
        list[int] | None,
        typer.Option("--skip", metavar="OFFSET", min=0, help="Step over the damage that begins there; repeatable."),
    ] = None,
    config: Config = None,
    as_json: Json = False,
) -> int:
    """Heal what verify finds. Nothing is deleted: what is replaced or cut off is kept in diverged/."""
    return int(load_module("towline.cli.store_verify", "server").repair_store(store, config, skip or [], yes, as_json))


@app.command("backup")
def backup(
    store: Annotated[
        Path | None, typer.Option("--store", help="Store directory, of a running node too.", file_okay=False)
    ] = None,
    to: Annotated[
        Path | None,
        typer.Option("--to", help="Directory of the backup: a new one, or the last backup.", file_okay=False),
    ] = None,
    check: Annotated[
        Path | None, typer.Option("--verify", help="Check the backup in this directory instead.", file_okay=False)
    ] = None,
    prune: Annotated[
        bool, typer.Option("--prune", help="Segments that the store has deleted leave the backup.")
    ] = False,
    limit: Annotated[int, typer.Option("--limit", metavar="MB", min=0, help="Most megabytes a second, 0: any.")] = 0,
    cold: Annotated[bool, typer.Option("--cold", help="Drop what was read from the page cache.")] = False,
    config: Config = None,
    as_json: Json = False,
) -> int:
    """Back up a store up to what no crash can take back; the next time only what is new. Or check a backup."""
    work = load_module("towline.cli.store_backup", "server")
    if check is not None:
        return int(work.verify_backup(check, as_json))
    if store is None or to is None:
        raise typer.BadParameter("name a store with --store and a directory with --to, or a backup with --verify")
    return int(work.backup_store(store, to, config, prune, limit * 1_000_000, cold, as_json))


class Role(StrEnum):
    """How a restored store is to be started."""

    MASTER = "master"
    SLAVE = "slave"


@app.command("restore")
def restore(
    store: Annotated[Path, typer.Option("--store", help="Store directory to make: an empty one.", file_okay=False)],
    source: Annotated[Path, typer.Option("--from", help="Directory of a backup.", file_okay=False, exists=True)],
    role: Annotated[Role, typer.Option("--as", help="What is to be started on it.")] = Role.MASTER,
    as_json: Json = False,
) -> int:
    """Make a store of a backup, checked while it is copied. Its first start derives queues and index."""
    return int(load_module("towline.cli.store_backup", "server").restore_store(source, store, role.value, as_json))
