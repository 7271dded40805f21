"""Does the work of `towline master`, `towline slave` and `towline promote`."""

import os
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from towline.errors import LinkRefused
from towline.link.handshake import MAGIC_DIFFERS, VERSION_DIFFERS
from towline.node.peers.peer_server import SEGMENT_SIZE
from towline.node.peers.promotion import promote as promote_node
from towline.node.report.status import node_facts, read_status
from towline.node.roles.role_commands import accept_loss_once, read_json_file
from towline.node.roles.roles import SLAVE
from towline.node.supervise.launch import Launched, start_node, stop_node
from towline.places import Store
from towline.runtime.positions import Duty
from towline.start import home

from .first_start import shown_compiling
from .output import FAILED, add_row, show, sized, table
from .seeding import await_level, progress_text

TURN_SHOWN_MS: Final = 100


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


def status(store: Path, as_json: bool) -> int:
    """The exit status: 1 where a process stands still."""
    read = read_status(store)
    show(read, as_json, lambda console: _render(console, read))
    return FAILED if read["standing_still"] else 0


def _render(console: Console, read: dict[str, Any]) -> None:
    head = f"{read['role']} on {read['store']}: {read['broker_role']}, {read['flush_disk_type']}"
    console.print(head, markup=False)
    _render_durability(console, read)
    processes = table("duty", "#pid", "state", "#beat ms", "#PSS", "#CPU s", "#messages", "#bytes", "#refused")
    for process in read["processes"]:
        counters = process.get("counters", {})
        counts = [counters.get(name, "") for name in ("messages", "bytes", "refused")]
        beat = process.get("beat_age_ms", "")
        add_row(
            processes,
            process["duty"],
            process["pid"],
            process["state"],
            beat,
            sized(process["pss"]),
            process["cpu_s"],
            *counts,
        )
    console.print(processes)
    for still in read["standing_still"]:
        console.print(still["sentence"], style="bold", markup=False)
    positions = table("position", "#value")
    for name, value in read["positions"].items():
        add_row(positions, name, value)
    add_row(positions, "visible end", read["visible_end"])
    console.print(positions)
    lag = ", ".join(f"{name} {sized(value)}" for name, value in read["lag"].items())
    console.print(f"behind the writer: {lag}; {read['queues']} queues; memory {sized(read['pss'])}")
    counted = read["statistics"]
    slow = f"{counted['slow_puts']} slow puts, the slowest took {counted['put_time_max_ms']} ms"
    console.print(f"{counted['put_messages']:,} messages put, {counted['get_messages']:,} read; {slow}")
    _render_refusals(console, read)
    if (remoting := read["remoting"]) is not None:
        _render_remoting(console, remoting)
    if (delayed := read["delayed"]) is not None and delayed["waiting"]:
        console.print(_delayed(delayed))
    if lost := sum(process.get("lost", 0) for process in read["processes"]):
        console.print(f"{lost:,} delayed messages or halves were lost; the log of schedule says why")
    if (agreed := read["agreed"]) is not None and agreed["role"] == read["role"]:
        console.print(f"it is a {agreed['role']}: {agreed['why']}", markup=False)
    if (progress := read["seeding"]) is not None:
        console.print(progress_text(progress))
    if (master := read["master"]) is not None:
        console.print(following(master), markup=False)
    _render_in_sync(console, read)
    for service, endpoints in read["endpoints"].items():
        console.print(f"{service}: {' '.join(endpoints)}")
    for part, sizes in read["disk"].items():
        console.print(f"{part}: {sized(sizes['allocated'])} on disk, files of {sized(sizes['size'])}")
    console.print(_room(read["space"]))
    if (archive := read["archive"]) is not None:
        console.print(_archived(archive), markup=False)


def wait_level(store: Path, timeout: float, as_json: bool) -> None:
    done = await_level(store, timeout)
    text = f"it has the log from {done['from']:,} to {done['at']:,}, after {done['seconds']:.1f} s"
    show({"store": str(store.resolve())} | done, as_json, lambda console: console.print(text))


def _render_in_sync(console: Console, read: dict[str, Any]) -> None:
    """Who holds what was acknowledged, who of the slaves does not and why, and how long this master leads."""
    kept, lease = read["in_sync"], read["lease"]
    members = ", ".join(map(str, kept["members"])) or "not known"
    console.print(f"in-sync set of epoch {kept['epoch']}: {members}{' (degraded)' if kept['degraded'] else ''}")
    if kept["promised"] > kept["epoch"]:
        console.print(f"epoch {kept['promised']} was promised to another node: nothing is acknowledged")
    if (held := read["held_back"]) is not None:
        bytes_ = sized(held["bytes"])
        console.print(
            f"readers see nothing behind byte {held['from']:,} of the log, {bytes_} less than is stored: {held['why']}",
            markup=False,
        )
    if lease is not None:
        left = f"{lease['left_ms']} ms of {lease['lease_ms']} ms are left" if lease["left_ms"] else "it is over"
        console.print(f"lease: {left}")
    for slave in read["slaves"]:
        state = "in sync" if slave["in_sync"] and slave["connected"] else slave["why_not"] or "in sync"
        console.print(f"slave {slave['node']}: {state}, {sized(slave['behind'])} behind", markup=False)


def _delayed(delayed: dict[str, Any]) -> str:
    text = f"{delayed['waiting']:,} delayed messages wait"
    if delayed["next_due_ms"] is None:
        return text
    due = datetime.fromtimestamp(delayed["next_due_ms"] / 1000)
    late = f", {delayed['late_ms']:,} ms late" if delayed["late_ms"] else ""
    return f"{text}, the next is due at {due:%Y-%m-%d %H:%M:%S}{late}"


def _room(space: dict[str, Any]) -> str:
    level, left = space["warning_level_percent"], space["full_in_s"]
    used = f"the disk is {space['used_percent']}% used, {sized(space['available'])} available"
    room = f"{used}; above {level}% puts are refused"
    if left is None:
        return room
    hours, minutes = divmod(left // 60, 60)
    return f"{room}: in {hours} h {minutes} min, if the log grows on like this and nothing is deleted"


def _archived(archive: dict[str, Any]) -> str:
    if archive["problem"]:
        return f"no segment counts as archived: {archive['problem']}"
    where = f"the log is archived up to {archive['until']:,}, {sized(archive['waiting'])} of full segments are not"
    kept = "kept until they are" if archive["keep_until_archived"] else "cleaning does not wait for them"
    gone = f"; a full disk took {archive['deleted']} before they were" if archive["deleted"] else ""
    return f"{where}: {kept}{gone}"


def _render_durability(console: Console, read: dict[str, Any]) -> None:
    """What is not as the settings ask for, or as a disk should be."""
    if read["transient_pool"] != "off":
        buffers = ", ".join(f"{count} {state}" for state, count in read["transient_buffers"].items())
        console.print(f"transient pool: {read['transient_pool']}{buffers and f'; buffers: {buffers}'}", markup=False)
    if read["positions"]["sync_failed"]:
        console.print("a sync of the log failed: nothing more is promised until `towline store verify` was run")
    if read["positions"]["derived_sync_failed"]:
        console.print(
            "a sync of a queue or index file failed: nothing new in them is called durable; restart the node, which "
            "derives it again from the log"
        )
    if read["damaged"]["count"]:
        damaged, newest = read["damaged"], read["damaged"]["newest"]
        where = f"{newest['segment']} at byte {newest['byte']}, log offset {newest['offset']}"
        console.print(f"readers found {damaged['count']} damaged records, the last one in {where}:", markup=False)
        console.print(f"  {damaged['remedy']}", markup=False)


def _render_refusals(console: Console, read: dict[str, Any]) -> None:
    """What keeps puts out now, and what has, with what to do about it."""
    if read["config_backups"]:
        names = ", ".join(f"config/{name}" for name in read["config_backups"])
        console.print(f"the generation before (.bak) was used of {names}, which could not be read", markup=False)
    if read["flags"]:
        console.print(f"running flags: {', '.join(read['flags'])}")
    if stopped := read["dispatch_stopped"]:
        where = f"{stopped['segment']} at byte {stopped['byte']}, log offset {stopped['offset']}"
        console.print(f"dispatching has stopped before the record in {where}:", markup=False)
        console.print(f"  {stopped['rule']}: {stopped['sentence']}", markup=False)
        console.print(f"  puts are refused until it is repaired: {stopped['remedy']}", markup=False)
    for process in read["processes"]:
        if process.get("turn_ms", 0) >= TURN_SHOWN_MS:
            console.print(f"{process['duty']} has been in an append for {process['turn_ms']} ms")
    refused = read["refused"]
    if not refused["total"]:
        return
    leading = refused["causes"][0]
    ago = f"the last {leading['last_ms_ago'] / 1000:.1f} s ago"
    share = f"{leading['count']} of {refused['total']}, {ago}"
    console.print(f"puts are refused mostly by {leading['cause']} ({share}): {leading['remedy']}", markup=False)
    others = ", ".join(f"{cause['cause']} {cause['count']}" for cause in refused["causes"][1:])
    if others:
        console.print(f"other causes: {others}", markup=False)


def _render_remoting(console: Console, read: dict[str, Any]) -> None:
    """The port for RocketMQ's clients: who is there, who was sent away, and why."""
    console.print(
        f"port for RocketMQ's clients: {read['open']:,} connections, {read['own_clients']:,} of them Towline's own; "
        f"{read['accepted']:,} were accepted, {read['left']:,} ended by their clients; "
        f"{sized(read['held'])} in frames and answers, {sized(read['kept'])} of {read['clients']:,} clients' heartbeats"
    )
    if (ended := read["ended"])["total"]:
        leading = ended["causes"][0]
        share = f"{leading['count']:,} of {ended['total']:,}, the last {leading['last_ms_ago'] / 1000:.1f} s ago"
        console.print(
            f"connections are ended mostly by {leading['cause']} ({share}): {leading['remedy']}", markup=False
        )
        others = ", ".join(f"{cause['cause']} {cause['count']:,}" for cause in ended["causes"][1:])
        if others:
            console.print(f"other causes: {others}", markup=False)
    if (refused := read["refused"])["total"]:
        codes = [f"{row['name']} ({row['code']}) {row['count']:,}" for row in refused["codes"]]
        if refused["own"]:
            codes.append(f"Towline's own clients {refused['own']:,}")
        console.print(f"requests are refused there, by code: {', '.join(codes)}", markup=False)


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


def following(link: dict[str, Any]) -> str:
    """For people."""
    return f"follows the master at {link['address']}" if link["connected"] else f"follows nobody: {link['why']}"
