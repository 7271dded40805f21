"""Does the work of `towline top`."""

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from towline.client.admin import AdminClient
from towline.client.looks import Look, Watched, look_at, nodes_of

from .endpoints import REACH_MS, named_node
from .lazy import load_module
from .output import add_row, people, sized, table, write_json

PROCESSES: Final = 12  # of all nodes, that are shown


def top(endpoint: str | None, store: Path | None, interval: float, rounds: int | None, as_json: bool) -> None:
    endpoint, store = named_node(endpoint, store)
    console = people()
    with ExitStack() as closing:
        nodes = [_local(store)] if store is not None else [_remote(each, closing) for each in nodes_of(str(endpoint))]
        pool = closing.enter_context(ThreadPoolExecutor(len(nodes), "towline top"))
        looks = _looks(nodes, pool, interval, rounds)
        try:
            if as_json:
                for found in looks:
                    write_json({"nodes": [look.document() for look in found]})
            elif console.is_terminal:
                _on_screen(console, looks)
            else:
                for found in looks:
                    console.print(rendered(found))
        except KeyboardInterrupt:  # the usual way to end it
            if rounds is not None:
                raise


def _on_screen(console: Console, looks: Iterator[list[Look]]) -> None:
    with Live(console=console, screen=True, auto_refresh=False, vertical_overflow="crop") as live:
        for found in looks:
            live.update(rendered(found), refresh=True)


def _local(store: Path) -> Watched:
    read = load_module("towline.node.report.status", "server").read_status
    return Watched(str(store), lambda: dict(read(store)))


def _remote(endpoint: str, closing: ExitStack) -> Watched:
    admin = closing.enter_context(AdminClient(endpoint, name="towline top", timeout_ms=REACH_MS))
    return Watched(endpoint, admin.node_status)


def _looks(
    nodes: Sequence[Watched], pool: ThreadPoolExecutor, interval: float, rounds: int | None
) -> Iterator[list[Look]]:
    """A look at all nodes every `interval` seconds."""
    due, number = time.monotonic(), 0
    while rounds is None or number < rounds:
        yield list(pool.map(look_at, nodes))
        number, due = number + 1, max(time.monotonic(), due + interval)
        if rounds is None or number < rounds:
            time.sleep(max(0.0, due - time.monotonic()))


def rendered(looks: Sequence[Look]) -> RenderableType:
    """The screen: where the nodes are, what they do, what is wrong with them, their busiest processes."""
    places = table("node", "role", "#epoch", "#log end", "#to flush", "#to dispatch", "#slaves")
    rates = table("node", "#put/s", "#log/s", "#get/s", "#refused/s", "#CPU %", "#memory", "#disk")
    wrong: list[Text] = []
    for look in looks:
        if look.status is None:
            add_row(places, _short(look.name), "no answer", *[""] * 5)
            wrong.append(Text(f"{_short(look.name)}: {look.why}"))
            continue
        add_row(places, _short(look.name), *_places(look.status))
        add_row(rates, _short(look.name), *_rates(look, look.status))
        wrong += [Text(f"{_short(look.name)}: {reason['sentence']}") for reason in look.status["not_ready"]]
    parts = [Text(time.strftime("%H:%M:%S")), places, *wrong, Text(), rates, Text(), _processes(looks)]
    return Group(*parts)


def _short(name: str) -> str:
    return name.removeprefix("tcp://")


def _places(status: dict[str, Any]) -> list[object]:
    behind = [slave["behind"] for slave in status["slaves"] if slave["connected"]]
    return [
        status["role"],
        status["positions"]["epoch"],
        f"{status['positions']['appended']:,}",
        sized(status["lag"]["flush"]),
        sized(status["lag"]["dispatch"]),
        f"{len(behind)}, {sized(max(behind))}" if behind else "",
    ]


def _rates(look: Look, status: dict[str, Any]) -> list[object]:
    rates = look.rates
    put, get, refused = (f"{rates[key]:,.0f}" if rates else "" for key in ("put", "get", "refused"))
    return [
        put,
        sized(round(rates["bytes"])) if rates else "",
        get,
        refused,
        f"{sum(look.cpu.values()):.0f}" if look.cpu else "",
        sized(status["pss"]),
        f"{status['space']['used_percent']} %",
    ]


def _processes(looks: Sequence[Look]) -> RenderableType:
    shown = table("process", "node", "#pid", "state", "#CPU %", "#memory")
    rows = [(look.cpu.get(each["pid"], 0.0), look.name, each) for look in looks if look.status is not None
            for each in look.status["processes"]]  # fmt: skip
    for share, name, each in sorted(rows, key=lambda row: -row[0])[:PROCESSES]:
        add_row(shown, each["duty"], _short(name), each["pid"], each["state"], f"{share:.0f}", sized(each["pss"]))
    return shown
