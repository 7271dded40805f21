"""Does the work of `towline master`, `towline slave` and `towline promote`."""

import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from towline.errors import LinkRefused
from towline.link.handshake import MAGIC_DIFFERS, VERSION_DIFFERS
from towline.log.state.role_file import SLAVE
from towline.node.peers.peer_server import SEGMENT_SIZE
from towline.node.peers.promotion import promote as promote_node
from towline.node.report.running import node_facts
from towline.node.roles.role_commands import accept_loss_once, read_json_file
from towline.node.supervise.launch import Launched, start_node, stop_node
from towline.places import Store
from towline.runtime.positions import Duty
from towline.start import home

from .first_start import shown_compiling
from .output import FAILED, show
from .seeding import await_level
from .status import following


def flags_of(
    config: Path | None, settings: Sequence[str], named: Mapping[str, object], without: Sequence[str]
) -> list[str]:
    """Arguments of `python -m towline.master` or `python -m towline.slave`; named flags win over --set."""
    flags = ["--config", str(config.resolve())] if config else []
    for setting in (*settings, *(f"{key}={value}" for key, value in named.items() if value is not None)):
        flags += ["--set", setting]
    for duty in without:
        flags += ["--without", duty]
    return flags


def start(role: str, store: Path, flags: Sequence[str], foreground: bool, timeout: float, as_json: bool) -> int:
    if foreground:
        _become(role, store, flags, as_json)
    with shown_compiling() as compiling:
        launched = start_node(role, store, flags, tied=False, timeout_s=timeout, compiling=compiling)
    facts = node_facts(store)
    now = facts["role"]  # of a node that was promoted, or replaced, before it was stopped
    link = await_link(store, launched, facts)
    result = {"role": now, "pid": launched.pid, "store": str(launched.store), "endpoints": facts["endpoints"]}
    if link is not None:
        result["master"] = link

    def render(console: Console) -> None:
        console.print(f"the {now} runs as process {launched.pid} on {launched.store}")
        if link is not None:
            console.print(following(link), markup=False)
        for service, endpoints in facts["endpoints"].items():
            console.print(f"  {service}: {' '.join(endpoints)}")

    show(result, as_json, render)
    return 0


def _become(role: str, store: Path, flags: Sequence[str], as_json: bool) -> None:
    """This process turns into the supervisor: signals and the exit status are its own."""
    command = [sys.executable, "-m", f"towline.{role}", "--store", str(store.resolve()), *flags]
    if as_json:  # the one document is the supervisor's word that it is ready, or why it is not
        descriptor = os.dup(sys.stdout.fileno())
        os.set_inheritable(descriptor, True)
        command += ["--ready-fd", str(descriptor)]
    os.chdir(home())
    os.execv(sys.executable, command)


def stop(store: Path, timeout: float, as_json: bool) -> int:
    facts = node_facts(store)
    clean = stop_node(store, timeout)
    result = {"role": facts["role"], "pid": facts["pid"], "store": str(store.resolve()), "clean": clean}
    text = (
        "stopped, the store is clean" if clean else "stopped, but not everything was durable: the next start recovers"
    )
    show(result, as_json, lambda console: console.print(text))
    return 0 if clean else FAILED


def promote(store: Path, accept_loss: bool, timeout: float, as_json: bool) -> None:
    done = promote_node(store, accept_loss=accept_loss, timeout_s=timeout)
    result = {name: done[name] for name in ("role", "epoch", "stages_ms")} | {"store": str(store.resolve())}

    def render(console: Console) -> None:
        took = max(done["stages_ms"].values())
        console.print(
            f"{store.resolve()} is the {done['role']} of epoch {done['epoch']}, after {took} ms", markup=False
        )

    show(result, as_json, render)


def accept_loss(store: Path, as_json: bool) -> None:
    accept_loss_once(Store(store.resolve()))
    text = "what the master does not have is cut off at the next greeting, and kept in diverged/"
    show({"store": str(store.resolve()), "accept_loss": True}, as_json, lambda console: console.print(text))


def wait_level(store: Path, timeout: float, as_json: bool) -> None:
    done = await_level(store, timeout)
    text = f"it has the log from {done['from']:,} to {done['at']:,}, after {done['seconds']:.1f} s"
    show({"store": str(store.resolve())} | done, as_json, lambda console: console.print(text))


# --- the master that a new slave follows


ANSWER_MAX_S: Final = 5.0  # a busy master may miss some greetings; one that is not there is no reason not to start
STEP_S: Final = 0.01
FOR_GOOD: Final = frozenset({SEGMENT_SIZE, "CLUSTER", MAGIC_DIFFERS, VERSION_DIFFERS})  # only another start heals it


def await_link(store: Path, launched: Launched, facts: dict[str, Any]) -> dict[str, Any] | None:
    """What came of the slave's way to its master: a link, a refusal, or nothing in time; None for a master.

    Raises LinkRefused, with the node stopped, where a master refuses it for what only another start can change.
    """
    if facts["role"] != SLAVE or Duty.RECEIVE.label not in facts["processes"]:
        return None
    path, deadline = Store(store.resolve()).link, time.monotonic() + ANSWER_MAX_S
    while not _is_answer(link := read_json_file(path)) and time.monotonic() < deadline:
        time.sleep(STEP_S)
    if link is not None and link["refused"] and link["refused"][0] in FOR_GOOD:
        launched.end()
        raise LinkRefused(*link["refused"])
    return link


def _is_answer(link: dict[str, Any] | None) -> bool:
    return link is not None and bool(link["connected"] or link["refused"])
