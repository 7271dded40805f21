"""Runs the node of `towline dev`, and takes it away."""

import shutil
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from rich.console import Console

from towline.limits import MIB
from towline.node.report.running import node_facts
from towline.node.supervise.launch import START_MAX_S, spawn_node

from .first_start import shown_compiling
from .interrupts import Interrupts
from .node_work import flags_of
from .output import FAILED, show

# A few dozen MiB of disk for the first message, where a node for production takes GiB.
SMALL: Final = {
    "mapped_file_size_commit_log": 16 * MIB,
    "max_hash_slot_num": 100_000,
    "max_index_num": 400_000,
    "populate_ahead_bytes": 0,
    "ha_listen_port": 0,
}


def run(port: int | None, settings: list[str], as_json: bool) -> int:
    """Until Ctrl-C, SIGTERM or the end of the node. The exit status: 0 where it was stopped in order."""
    with Interrupts() as interrupts, ExitStack() as ending:
        with interrupts.held():
            made = Path(tempfile.mkdtemp(prefix="towline-dev-"))
            ending.callback(shutil.rmtree, made, ignore_errors=True)
        small = [f"{name}={value}" for name, value in SMALL.items()]
        flags = flags_of(None, [*small, *settings], {"listen_port": port}, [])
        with interrupts.held():
            launched = spawn_node("master", made / "store", flags, tied=True)
            ending.callback(launched.end)
        try:
            with shown_compiling() as compiling:
                launched.await_ready(START_MAX_S, compiling)
            _show(made / "store", as_json)
            launched.process.wait()
            return FAILED
        except KeyboardInterrupt:
            interrupts.ignore()
            launched.stop()
            return 0


def _show(store: Path, as_json: bool) -> None:
    address, *_ = node_facts(store)["endpoints"]["remoting"]  # at 10911 there are RocketMQ's two others too
    result = {"endpoint": address, "store": str(store)}

    def render(console: Console) -> None:
        console.print(f"a node to try things with: {address}, until Ctrl-C; nothing of it stays", markup=False)
        console.print(f"  towline put orders hello --endpoint {address}", markup=False)
        console.print(f"  towline get orders --endpoint {address}", markup=False)

    show(result, as_json, render)
