"""The tables of `towline bench ha`."""

from typing import Any, Final

from rich.console import Console

from .output import add_row, print_machine, sized, table

GOAL_NAMES: Final = {
    "stream_of_raw": "the stream, of raw pyzmq push-pull of 1-MiB frames: at least",
    "send_cores_per_gb_s": "cores of the sender per GB/s: at most",
    "receive_cores_per_gb_s": "cores of the receiver per GB/s: at most",
    "lag_p99_ms": "ms behind the master under a steady load, p99: at most",
    "sync_of_async": "SYNC_MASTER's throughput with batches, of ASYNC_MASTER's: at least",
    "catch_up_of_load": "times the speed of the load at which a slave catches up beside it: at least",
}
LATENCIES: Final = ("p50_us", "p99_us", "p99_9_us", "max_us")


def render_ha(console: Console, result: dict[str, Any]) -> None:
    stream, lag, waiting = result["stream"], result["lag"], result["waiting"]
    console.print(
        f"stream of {sized(stream['bytes'])}: {stream['gb_s']:.2f} GB/s, raw {stream['raw_gb_s']:.2f} GB/s; cores per "
        f"GB/s: send {stream['send_cores_per_gb_s']:.2f}, receive {stream['receive_cores_per_gb_s']:.2f}"
    )
    console.print(
        f"lag at {lag['reached_mb_s']:,.0f} MB/s, in ms: p50 {lag['p50_ms']:.2f}, p99 {lag['p99_ms']:.2f}, "
        f"max {lag['max_ms']:.1f}"
    )
    console.print(
        f"batches: ASYNC_MASTER {waiting['async_mb_s']:,.0f} MB/s, {waiting['async_level_mb_s']:,.0f} until its slave "
        f"holds them too; SYNC_MASTER {waiting['sync_mb_s']:,.0f}, {waiting['sync_of_level']:.2f} of that\n"
    )
    made = table("put", "#p50 us", "#p99 us", "#p99.9 us", "#max us")
    behind, limited = result["catch_up"], result["limited"]
    load = f"{behind['load_mb_s']:,.0f} MB/s"
    rows = {
        "single messages, ASYNC_MASTER": waiting["latency"]["async"],
        "single messages, SYNC_MASTER": waiting["latency"]["sync"],
        f"{load}, the slave held": behind["quiet"],
        f"{load}, the slave catches up": behind["during"],
        f"{load}, at most {limited['limit_mb_s']:,.0f} MB/s to it": limited["during"],
    }
    for name, row in rows.items():
        add_row(made, name, *(f"{row[key]:,.0f}" for key in LATENCIES))
    console.print(made)
    trip, turn = waiting["round_trip"], waiting["slave_turn"]
    for key, name in (("p50_us", "p50"), ("p99_us", "p99")):
        console.print(
            f"  added by SYNC_MASTER, {name}: {waiting[f'added_{key}']:,.0f} us; a raw round trip and the slave's turn "
            f"take {trip[key]:,.0f} + {turn[key]:,.0f} = {waiting[f'allowed_{key}']:,.0f} us"
        )
    for one in (behind, limited):
        reached = (
            f"{sized(one['behind'])} behind: caught up at {one['stream_mb_s']:,.0f} MB/s in {one['seconds']:.1f} s"
        )
        most = f", at most {one['limit_mb_s']:,.0f} MB/s to it" if "limit_mb_s" in one else ""
        console.print(f"  {reached}, while {load} came{most}")
    console.print()
    for goal in result["goals"]:
        met = "met" if goal["met"] else "NOT met"
        console.print(f"{GOAL_NAMES[goal['goal']]} {goal['bound']:g}, reached {goal['reached']:.2f}: {met}")
    print_machine(console, result)
