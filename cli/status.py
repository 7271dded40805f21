"""Shows the status of a node to people, whether it was read here or asked for."""

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from towline.errors import end_of_log

from .endpoints import ask_node, named_node
from .lazy import load_module
from .output import FAILED, add_row, show, sized, table
from .remedies import complete_all, completed, words_of

TURN_SHOWN_MS: Final = 100
PUTS_REFUSED: Final = "puts_refused"
SYNC_FAILED: Final = (
    "a sync of the log failed: nothing more is promised; look at the disk, stop the node with `towline master stop`, "
    "run `towline store mend --yes`, and start it again"
)
READ_ONLY: Final = "it is read-only: broker_permission is {}; `towline config set broker_permission=6` ends that"


def show_status(endpoint: str | None, store: Path | None, as_json: bool) -> int:
    """Read from the node's memory and files on its own machine, which needs no process of it; elsewhere it is asked.
    The exit status: 1 where it is not ready."""
    endpoint, store = named_node(endpoint, store)
    read: dict[str, Any]
    if store is not None:
        read = load_module("towline.node.report.status", "server").read_status(store)
    else:
        assert endpoint is not None
        with ask_node(endpoint) as admin:
            read = admin.node_status()
    named = words_of(endpoint, store)
    read = complete_all(read, named)
    show(read, as_json, lambda console: render(console, read, lambda text: completed(text, named)))
    return 0 if read["ready"] else FAILED


def render(console: Console, read: dict[str, Any], typed: Callable[[str], str]) -> None:
    """`typed`: a sentence with commands as they are to be typed."""
    head = f"{read['role']} on {read['store']}: {read['broker_role']}, {read['flush_disk_type']}"
    console.print(head, markup=False)
    if read["read_only"]:
        console.print(typed(READ_ONLY.format(read["broker_permission"])), style="bold", markup=False, soft_wrap=True)
    _render_durability(console, read, typed)
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
    for reason in read["not_ready"]:
        remedy = f"; {reason['remedy']}" if reason["reason"] == PUTS_REFUSED else ""  # others are told of elsewhere
        said = typed(f"not ready: {reason['sentence']}{remedy}")
        console.print(said, style="bold", markup=False, soft_wrap=True)
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
        console.print(f"{lost:,} delayed messages or halves were lost; schedule says why in the node's log")
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
    console.print(f"the node's log: {end_of_log(read['store'])}", markup=False, soft_wrap=True)


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
    for slave in read["rocketmq_slaves"]:
        console.print(f"slave of RocketMQ at {slave['address']}: {sized(slave['behind'])} behind", markup=False)


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


def _render_durability(console: Console, read: dict[str, Any], typed: Callable[[str], str]) -> None:
    """What is not as the settings ask for, or as a disk should be."""
    if read["transient_pool"] != "off":
        buffers = ", ".join(f"{count} {state}" for state, count in read["transient_buffers"].items())
        console.print(f"transient pool: {read['transient_pool']}{buffers and f'; buffers: {buffers}'}", markup=False)
    if read["positions"]["sync_failed"]:
        console.print(typed(SYNC_FAILED), markup=False, soft_wrap=True)
    if read["positions"]["derived_sync_failed"]:
        console.print(
            "a sync of a queue or index file failed: nothing new in them is called durable; restart the node, which "
            "derives it again from the log"
        )
    if read["damaged"]["count"]:
        damaged, newest = read["damaged"], read["damaged"]["newest"]
        where = f"{newest['segment']} at byte {newest['byte']}, log offset {newest['offset']}"
        console.print(f"readers found {damaged['count']} damaged records, the last one in {where}:", markup=False)
        console.print(f"  {damaged['remedy']}", markup=False, soft_wrap=True)


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
        console.print(f"  puts are refused until it is repaired: {stopped['remedy']}", markup=False, soft_wrap=True)
    for process in read["processes"]:
        if process.get("turn_ms", 0) >= TURN_SHOWN_MS:
            console.print(f"{process['duty']} has been in an append for {process['turn_ms']} ms")
    refused = read["refused"]
    if not refused["total"]:
        return
    leading = refused["causes"][0]
    ago = f"the last {leading['last_ms_ago'] / 1000:.1f} s ago"
    share = f"{leading['count']} of {refused['total']}, {ago}"
    why = f"puts are refused mostly by {leading['cause']} ({share}): {leading['remedy']}"
    console.print(why, markup=False, soft_wrap=True)
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


def following(link: dict[str, Any]) -> str:
    """For people."""
    return f"follows the master at {link['address']}" if link["connected"] else f"follows nobody: {link['why']}"


def progress_text(progress: dict[str, Any]) -> str:
    """How far a slave is behind, and for how long."""
    have, left = progress["at"] - progress["from"], progress["left"]
    if left is None:
        return f"it has {sized(have)}; what its master has is not known while it follows nobody"
    if not left:
        return f"it has all {sized(have)} that its master has confirmed"
    done = f"it has {sized(have)} of {sized(have + left)}, {100 * have // (have + left)}%"
    if not progress["bytes_per_second"]:
        return f"{done}; nothing came just now"
    hours, seconds = divmod(round(progress["left_s"]), 3600)
    rate = f"{progress['bytes_per_second'] / 1e6:,.0f} MB/s"
    return f"{done}, {rate}: {hours} h {seconds // 60} min {seconds % 60} s are left"
