"""`towline master` and `towline slave`: start, stop and look at a node. The work is in `node_work`."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from .output import Json, StoreDir, door

master = typer.Typer(help="Start, stop and look at a master.", no_args_is_help=True)
slave = typer.Typer(help="Start, stop and look at a slave.", no_args_is_help=True)


class FlushDiskType(StrEnum):
    SYNC_FLUSH = "SYNC_FLUSH"
    ASYNC_FLUSH = "ASYNC_FLUSH"


class BrokerRole(StrEnum):
    """Of a master; a slave is started with `towline slave`."""

    SYNC_MASTER = "SYNC_MASTER"
    ASYNC_MASTER = "ASYNC_MASTER"


Config = Annotated[
    Path | None,
    typer.Option("--config", help="TOML file of settings, or a real broker.conf.", exists=True, dir_okay=False),
]
Set = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A setting; may be repeated.")]
Without = Annotated[
    list[str] | None, typer.Option("--without", metavar="DUTY", help="Leave a duty to be started by hand; repeatable.")
]
Foreground = Annotated[
    bool, typer.Option("--foreground", help="Stay in front until Ctrl-C; logs go to standard error.")
]
Flush = Annotated[
    FlushDiskType | None, typer.Option("--flush-disk-type", help="When an acknowledgement waits for the disk.")
]
ServePort = Annotated[int | None, typer.Option("--serve-port", min=0, max=65535, help="TCP port of reads, 0 for none.")]
Timeout = Annotated[float, typer.Option("--timeout", min=0.1, help="Seconds to wait.")]


@master.command("start")
def start_master(
    store: StoreDir,
    config: Config = None,
    settings: Set = None,
    flush_disk_type: Flush = None,
    broker_role: Annotated[
        BrokerRole | None, typer.Option(help="Whether an acknowledgement waits for the slaves.")
    ] = None,
    port: Annotated[int | None, typer.Option("--port", min=0, max=65535, help="TCP port of puts, 0 for none.")] = None,
    serve_port: ServePort = None,
    ha_port: Annotated[int | None, typer.Option(min=0, max=65535, help="TCP port for slaves.")] = None,
    without: Without = None,
    foreground: Foreground = False,
    timeout: Timeout = 120.0,
    as_json: Json = False,
) -> int:
    """Start a master on a store directory and wait until it serves."""
    named = {
        "flush_disk_type": flush_disk_type.value if flush_disk_type else None,
        "broker_role": broker_role.value if broker_role else None,
        "listen_port": port,
        "serve_port": serve_port,
        "ha_listen_port": ha_port,
    }
    flags = door("cli.node_work", "server").flags_of(config, settings or [], named, without or [])
    return _start("master", store, flags, foreground, timeout, as_json)


@slave.command("start")
def start_slave(
    store: StoreDir,
    ha_master: Annotated[str | None, typer.Option(help="The master's HA endpoint, as tcp://HOST:PORT.")] = None,
    config: Config = None,
    settings: Set = None,
    flush_disk_type: Flush = None,
    serve_port: ServePort = None,
    without: Without = None,
    foreground: Foreground = False,
    timeout: Timeout = 120.0,
    as_json: Json = False,
) -> int:
    """Start a slave that follows a master, and wait until it serves."""
    named = {
        "ha_master_address": ha_master,
        "flush_disk_type": flush_disk_type.value if flush_disk_type else None,
        "serve_port": serve_port,
    }
    flags = door("cli.node_work", "server").flags_of(config, settings or [], named, without or [])
    return _start("slave", store, flags, foreground, timeout, as_json)


def _start(role: str, store: Path, flags: list[str], foreground: bool, timeout: float, as_json: bool) -> int:
    status: int = door("cli.node_work", "server").start(role, store, flags, foreground, timeout, as_json)
    return status


@master.command("stop")
def stop_master(store: StoreDir, timeout: Timeout = 30.0, as_json: Json = False) -> int:
    """Stop the master on a store directory in order."""
    status: int = door("cli.node_work", "server").stop("master", store, timeout, as_json)
    return status


@slave.command("stop")
def stop_slave(store: StoreDir, timeout: Timeout = 30.0, as_json: Json = False) -> int:
    """Stop the slave on a store directory in order."""
    status: int = door("cli.node_work", "server").stop("slave", store, timeout, as_json)
    return status


@master.command("status")
def master_status(store: StoreDir, as_json: Json = False) -> None:
    """Show the pieces, positions, lag, slaves, memory and disk of a running master."""
    door("cli.node_work", "server").status("master", store, as_json)


@slave.command("status")
def slave_status(store: StoreDir, as_json: Json = False) -> None:
    """Show the pieces, positions, lag, memory and disk of a running slave."""
    door("cli.node_work", "server").status("slave", store, as_json)
