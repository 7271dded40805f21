"""`towline master`, `towline slave`, `towline promote`: start, stop, inspect and change a node.

A node changes its role while it runs, so `stop` and `status` of both find it. The work is in `node_work`.
"""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from .lazy import group, load_module
from .options import Endpoint, Json, LocalStore, StoreDir

master = group("Start, stop and inspect a master.")
slave = group("Start, stop and inspect a slave.")


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
    bool, typer.Option("--foreground", help="Stay in the foreground until Ctrl-C; logs go to standard error.")
]
Flush = Annotated[
    FlushDiskType | None, typer.Option("--flush-disk-type", help="When an acknowledgement waits for the disk.")
]
Port = Annotated[
    int | None,
    typer.Option("--port", min=0, max=65535, help="TCP port of clients, RocketMQ's and ours, 0 for none."),
]
HaPort = Annotated[int | None, typer.Option("--ha-port", min=0, max=65535, help="Port for slaves, 0 for none.")]
Alone = Annotated[
    bool, typer.Option("--alone", help="Be master though no peer answers: none of them can be master now.")
]
AcceptLoss = Annotated[
    bool, typer.Option("--accept-loss", help="Let the master's log replace what was confirmed here; it is kept aside.")
]
Insecure = Annotated[
    bool, typer.Option("--insecure", help="Listen beyond this machine without keys: whoever reaches it owns the store.")
]
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
    port: Port = None,
    ha_port: HaPort = None,
    without: Without = None,
    alone: Alone = False,
    accept_loss: AcceptLoss = False,
    insecure: Insecure = False,
    foreground: Foreground = False,
    timeout: Timeout = 120.0,
    as_json: Json = False,
) -> int:
    """Start a master on a store directory and wait until it serves. One that was replaced becomes a slave."""
    named = {
        "flush_disk_type": flush_disk_type.value if flush_disk_type else None,
        "broker_role": broker_role.value if broker_role else None,
        "listen_port": port,
        "ha_listen_port": ha_port,
        "insecure": "true" if insecure else None,
    }
    flags = load_module("towline.cli.node_work", "server").flags_of(config, settings or [], named, without or [])
    flags += _said(alone, accept_loss)
    return _start("master", store, flags, foreground, timeout, as_json)


@slave.command("start")
def start_slave(
    store: StoreDir,
    ha_master: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="The master's HA endpoint; tcp://HOST:PORT is the same.")
    ] = None,
    config: Config = None,
    settings: Set = None,
    flush_disk_type: Flush = None,
    port: Port = None,
    ha_port: HaPort = None,
    seed: Annotated[
        str | None,
        typer.Option(
            metavar="FROM",
            help="Where a new slave begins: oldest, last, offset:N, time:T, or backup:DIR, which is restored.",
        ),
    ] = None,
    seed_limit: Annotated[
        int, typer.Option(metavar="MB", min=0, help="Most megabytes a second until it has caught up, 0: any.")
    ] = 0,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until it has what its master has.")] = False,
    without: Without = None,
    alone: Alone = False,
    accept_loss: AcceptLoss = False,
    insecure: Insecure = False,
    foreground: Foreground = False,
    timeout: Timeout = 120.0,
    as_json: Json = False,
) -> int:
    """Start a slave that follows a master, and wait until it serves. One that was promoted is a master again."""
    named = {
        "ha_master_address": ha_master,
        "flush_disk_type": flush_disk_type.value if flush_disk_type else None,
        "listen_port": port,
        "ha_listen_port": ha_port,
        "insecure": "true" if insecure else None,
    }
    flags = load_module("towline.cli.node_work", "server").flags_of(config, settings or [], named, without or [])
    if seed is not None or seed_limit:
        flags += load_module("towline.cli.seeding", "server").settings_of(store, seed, seed_limit * 1_000_000)
    flags += _said(alone, accept_loss)
    status = _start("slave", store, flags, foreground, timeout, as_json and not wait)
    if wait:
        load_module("towline.cli.node_work", "server").wait_level(store, timeout, as_json)
    return status


def _said(alone: bool, accept_loss: bool) -> list[str]:
    return ["--alone"] * alone + ["--accept-loss"] * accept_loss


def _start(role: str, store: Path, flags: list[str], foreground: bool, timeout: float, as_json: bool) -> int:
    status: int = load_module("towline.cli.node_work", "server").start(role, store, flags, foreground, timeout, as_json)
    return status


@master.command("stop")
def stop_master(store: StoreDir, timeout: Timeout = 30.0, as_json: Json = False) -> int:
    """Stop the node on a store directory in order, whatever its role is now."""
    status: int = load_module("towline.cli.node_work", "server").stop(store, timeout, as_json)
    return status


@slave.command("stop")
def stop_slave(store: StoreDir, timeout: Timeout = 30.0, as_json: Json = False) -> int:
    """Stop the node on a store directory in order, whatever its role is now."""
    status: int = load_module("towline.cli.node_work", "server").stop(store, timeout, as_json)
    return status


@master.command("status")
def master_status(endpoint: Endpoint = None, store: LocalStore = None, as_json: Json = False) -> int:
    """Show the processes, positions, lag, slaves, memory and disk of a running node. Status 1: it is not ready."""
    return _status(endpoint, store, as_json)


@slave.command("status")
def slave_status(
    endpoint: Endpoint = None,
    store: LocalStore = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="With --store: first wait until it has what its master has.")
    ] = False,
    timeout: Timeout = 120.0,
    as_json: Json = False,
) -> int:
    """Show the processes, positions, lag, slaves, memory and disk of a running node. Status 1: it is not ready."""
    if wait:
        if store is None:
            raise typer.BadParameter("--wait looks at the files of the node: name it by --store, on its machine")
        load_module("towline.cli.seeding", "server").await_level(store, timeout)
    return _status(endpoint, store, as_json)


def _status(endpoint: str | None, store: Path | None, as_json: bool) -> int:
    status: int = load_module("towline.cli.status", "cli").show_status(endpoint, store, as_json)
    return status


@slave.command("accept-loss")
def accept_loss(store: StoreDir, as_json: Json = False) -> None:
    """Let the master's log replace what was confirmed on this node; the bytes that go are kept in diverged/."""
    load_module("towline.cli.node_work", "server").accept_loss(store, as_json)


def promote(
    store: StoreDir,
    accept_loss: Annotated[
        bool, typer.Option("--accept-loss", help="Though others may hold acknowledged messages that it has not.")
    ] = False,
    timeout: Timeout = 60.0,
    as_json: Json = False,
) -> None:
    """Make the running node on a store directory the master. Refused, it goes on as it is."""
    load_module("towline.cli.node_work", "server").promote(store, accept_loss, timeout, as_json)
