"""The port for RocketMQ's clients in the status of a node: connections, why they ended, requests that were refused."""

from typing import Any

from towline.runtime.positions import Duty, Positions, State
from towline.runtime.remoting_counts import RemotingCounts, Total

from .times import ms_since


def remoting_of(positions: Positions) -> dict[str, Any] | None:
    """Counts since the node was started, causes and codes with the most first; None where there is no such port.

    open, own_clients, clients  connections now, those of them that are clients of ours, clients that heartbeats named
    held, kept                  bytes now: unfinished frames and unread answers; what is known by heartbeats
    accepted, left              connections; those that their clients ended
    ended                       those that were ended from this side, by cause, with what to do about it
    refused                     requests, by the code of the answer; `own` of our own protocol
    """
    if positions.duty(Duty.REMOTING).state is State.ABSENT:
        return None
    counts = RemotingCounts(positions)
    causes: list[dict[str, Any]] = [
        {"cause": ending.label, "count": count, "last_ms_ago": ms_since(last_ns), "remedy": ending.remedy}
        for ending, (count, last_ns) in counts.endings().items()
        if count
    ]
    codes: list[dict[str, Any]] = [
        {
            "code": None if code is None else int(code),
            "name": "other" if code is None else code.name,
            "count": count,
            "last_ms_ago": ms_since(last_ns),
        }
        for code, (count, last_ns) in counts.refusals().items()
        if count
    ]
    for rows in (causes, codes):
        rows.sort(key=lambda row: -row["count"])
    own = counts.total(Total.OWN_REFUSED)
    return {
        "open": counts.total(Total.OPEN),
        "own_clients": counts.total(Total.OWN_CLIENTS),
        "clients": counts.total(Total.CLIENTS),
        "held": counts.total(Total.HELD),
        "kept": counts.total(Total.KEPT),
        "accepted": counts.total(Total.ACCEPTED),
        "left": counts.total(Total.LEFT),
        "ended": {
            "total": sum(row["count"] for row in causes),
            "leading": causes[0]["cause"] if causes else None,
            "causes": causes,
        },
        "refused": {"total": own + sum(row["count"] for row in codes), "codes": codes, "own": own},
    }
