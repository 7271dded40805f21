"""The parts of a node's status that the page shows, and the sentences about what has happened to it. Pure.

A section is told to a browser when it differs from what it was, so what moves with the clock alone (how long ago, how
many bytes of memory to the last one) is made to stand still.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from towline.client.looks import Look

MEMORY_STEP: Final = 1 << 18  # bytes: less is no news
POSITIONS: Final = ("appended", "committed", "flushed", "replicated", "dispatched", "log_min")
HEAD: Final = (
    *("role", "broker_name", "broker_id", "broker_role", "flush_disk_type", "store", "pid", "started_ms", "generation"),
    *("read_only", "ready", "transient_pool", "queues"),
)
Sections = dict[str, Any]


def sections_of(look: Look, before: Mapping[str, Any], now_ms: int) -> Sections:
    """The sections of a node that answered, or the one that says since when it does not. Raises KeyError, TypeError and
    the like of a status that is not as nodes of this version tell it."""
    if look.status is None:
        return {"reach": _silent(look.why, before.get("reach"), now_ms)}
    status = look.status
    return _now_and_then(status) | {
        "reach": {"answers": True, "since_ms": _since(before.get("reach"), True, now_ms), "why": ""},
        "head": {key: status.get(key) for key in HEAD},
        "positions": {key: status["positions"][key] for key in POSITIONS if key in status["positions"]}
        | {"epoch": int(status["positions"]["epoch"]), "visible": status["visible_end"]},
        "lag": status["lag"],
        "slaves": status["slaves"],
        "in_sync": status["in_sync"],
        "held_back": status["held_back"],
        "agreed": _agreed(status["agreed"]),
        "master": status["master"],
        "seeding": status["seeding"],
        "lease": status["lease"] is not None,
        "delayed": None if status["delayed"] is None else status["delayed"]["waiting"],
        "rates": {key: round(value) for key, value in look.rates.items()},
        "processes": _processes(status["processes"], look.cpu, before.get("processes", ())),
        "space": {key: status["space"][key] for key in ("used_percent", "warning_level_percent", "full_in_s")}
        | {"available": _stepped(status["space"]["available"])},
        "archive": status["archive"],
        "wrong": wrong(status),
        "refused": _refused(status["refused"], before.get("refused"), now_ms),
        "ended": _ended(status["remoting"]),
    }


def _silent(why: str, before: Mapping[str, Any] | None, now_ms: int) -> Sections:
    return {"answers": False, "since_ms": _since(before, False, now_ms), "why": why}


def _since(before: Mapping[str, Any] | None, answers: bool, now_ms: int) -> int:
    """When the node began to answer, or ceased to, as far as it was looked at."""
    return now_ms if before is None or before["answers"] is not answers else int(before["since_ms"])


def _agreed(agreed: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    return None if agreed is None else {"role": agreed["role"], "why": agreed["why"]}


def _now_and_then(status: Mapping[str, Any]) -> Sections:
    """What a brief answer does not have: it stays as it was told."""
    return {"memory": _stepped(status["pss"]), "disk": status["disk"]} if "pss" in status else {}


def _processes(
    processes: Sequence[Mapping[str, Any]], cpu: Mapping[int, float], before: Sequence[Sequence[Any]]
) -> list[list[Any]]:
    """duty, pid, state, percent of a core or None, bytes of memory: those of before in a brief answer, None for a
    process that is new."""
    known = {row[1]: row[4] for row in before}
    rows = []
    for each in processes:
        share, pid = cpu.get(each["pid"]), each["pid"]
        memory = _stepped(each["pss"]) if "pss" in each else known.get(pid)
        rows.append([each["duty"], pid, each["state"], None if share is None else round(share, 1), memory])
    return rows


def _stepped(size: int) -> int:
    return size // MEMORY_STEP * MEMORY_STEP


def _refused(refused: Mapping[str, Any], before: Mapping[str, Any] | None, now_ms: int) -> Sections:
    """Causes with the time of their last refusal, which stands while the count does."""
    known = {} if before is None else {cause["cause"]: cause for cause in before["causes"]}
    causes = []
    for cause in refused["causes"]:
        old = known.get(cause["cause"])
        same = old is not None and old["count"] == cause["count"]
        last = old["last_ms"] if old is not None and same else now_ms - cause["last_ms_ago"]
        causes.append({key: cause[key] for key in ("cause", "count", "remedy")} | {"last_ms": last})
    return {"total": refused["total"], "causes": causes}


def _ended(remoting: Mapping[str, Any] | None) -> Sections | None:
    """Connections that the port for clients ended, and requests that it refused, by cause."""
    if remoting is None:
        return None
    causes = [{key: cause[key] for key in ("cause", "count", "remedy")} for cause in remoting["ended"]["causes"]]
    codes = [{key: row[key] for key in ("name", "code", "count")} for row in remoting["refused"]["codes"]]
    return {"open": remoting["open"], "ended": causes, "codes": codes}


def wrong(status: Mapping[str, Any]) -> list[dict[str, str]]:
    """What is not as it should be: sentence, and remedy or ""."""
    found = [{"sentence": each["sentence"], "remedy": each["remedy"]} for each in status["not_ready"]]
    if stopped := status["dispatch_stopped"]:
        where = f"{stopped['segment']} at byte {stopped['byte']}"
        found.append({"sentence": f"dispatching has stopped before the record in {where}", "remedy": stopped["remedy"]})
    if (damaged := status["damaged"])["count"]:
        found.append({"sentence": f"readers found {damaged['count']} damaged records", "remedy": damaged["remedy"]})
    if (held := status["held_back"]) is not None:
        found.append({"sentence": f"readers do not see the newest {held['bytes']} bytes: {held['why']}", "remedy": ""})
    if status["in_sync"]["degraded"]:
        members, wanted = len(status["in_sync"]["members"]), status["in_sync"]["wanted"]
        found.append({"sentence": f"the in-sync set has {members} of {wanted} nodes", "remedy": ""})
    if flags := status["flags"]:
        found.append({"sentence": f"running flags: {', '.join(flags)}", "remedy": ""})
    return found


def happened(name: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Sentences about what is new between two states of a node; nothing for one that is seen for the first time."""
    if not before:
        return []
    found = []
    label = label_of(name, after)
    if before["reach"]["answers"] and not after["reach"]["answers"]:
        found.append(f"{label} does not answer any more: {after['reach']['why']}")
    if not before["reach"]["answers"] and after["reach"]["answers"]:
        found.append(f"{label} answers again" if "head" in before else f"{label} answers")
    old, new = before.get("head"), after.get("head")
    if old is None or new is None:
        return found
    epochs = before["positions"]["epoch"], after["positions"]["epoch"]
    if old["role"] != new["role"]:
        found.append(f"{label} was {old['role']} and is {new['role']} of epoch {epochs[1]}")
    elif epochs[0] != epochs[1]:
        found.append(f"{label} is {new['role']} of epoch {epochs[1]} now, after {epochs[0]}")
    if old["generation"] != new["generation"]:
        found.append(f"{label} was started anew")
    if old["ready"] and not new["ready"] and after["wrong"]:
        found.append(f"{label} is not ready: {after['wrong'][0]['sentence']}")
    return found


def label_of(name: str, sections: Mapping[str, Any]) -> str:
    """GROUP-ID of a node that has ever answered, else its address."""
    head = sections.get("head")
    return f"{head['broker_name']}-{head['broker_id']}" if head else name.removeprefix("tcp://")
