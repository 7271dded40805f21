"""Does the work of `towline cluster status`: shows every group with its nodes and its state."""

from collections.abc import Sequence
from pathlib import Path
from shlex import quote
from typing import Any

from rich.console import Console

from towline.cluster.derived import MASTER
from towline.cluster.state import GroupState, NodeState, Seen, cluster_state, group_state
from towline.errors import NodeNotRunning, PositionsUnusable
from towline.node.report.status import BACKLOG_MIN, read_status
from towline.route.nodes import Cluster

from .cluster_nodes import ObservedGroup, chosen, observe, older_settings, recorded_role, whole_cluster
from .output import FAILED, add_row, show, sized, table
from .remedies import REMEDY, completed
from .status import progress_text


def status(file: Path, names: Sequence[str], as_json: bool) -> int:
    cluster = whole_cluster(file)
    groups = [_group(cluster, observe(group, ask=True)) for group in chosen(cluster, names)]
    states = [group["state"] for group in groups]
    document = {"cluster": cluster.name, "state": cluster_state(states), "groups": groups}
    show(document, as_json, lambda console: _render(console, document, cluster.path))
    still = any(node.get("standing_still") or "unreadable" in node for group in groups for node in group["nodes"])
    return FAILED if still or any(state not in (GroupState.OK, GroupState.ELSEWHERE) for state in states) else 0


def _group(cluster: Cluster, observed: ObservedGroup) -> dict[str, Any]:
    master = observed.master
    in_sync = master.in_sync if master is not None else ()
    nodes = [_node(cluster, observed, seen, in_sync) for seen in observed.nodes]
    return {
        "group": observed.group.name,
        "state": group_state(observed.nodes),
        "master": None if master is None else master.id,
        "in_sync": list(in_sync),
        "nodes": nodes,
    }


def _node(cluster: Cluster, observed: ObservedGroup, seen: Seen, in_sync: Sequence[int]) -> dict[str, Any]:
    """Of a node that does not run: its recorded role. `lag` is in bytes behind the master, None where unknown."""
    node = observed.group.node(seen.id)
    found: dict[str, Any] = {
        "node": seen.id,
        "state": seen.state,
        "role": seen.role,
        "pid": seen.pid,
        "host": node.host,
        "store": str(node.store),
        "follows": seen.follows,
    }
    if not seen.role:
        return found | ({} if seen.state is NodeState.ELSEWHERE else {"recorded_role": recorded_role(node)})
    master = observed.master
    lag = None if master is None or seen.role == MASTER else max(0, master.end - seen.end)
    found |= {"epoch": seen.epoch, "in_sync": seen.id in in_sync, "end": seen.end, "lag": lag}
    return found | (_inside(cluster, observed, seen) if seen.runs else {})


def _inside(cluster: Cluster, observed: ObservedGroup, seen: Seen) -> dict[str, Any]:
    """What only the node's own machine knows."""
    node = observed.group.node(seen.id)
    try:
        read = read_status(node.store)
    except NodeNotRunning:  # it went while we observed
        return {}
    except PositionsUnusable as error:
        return {"unreadable": error.describe(), REMEDY: completed(error.advice, ("--store", str(node.store)))}
    keys = ("visible_end", "pss", "flags", "standing_still", "dispatch_stopped", "damaged", "endpoints", "seeding")
    found = {key: read[key] for key in keys}
    link = read["master"]
    why = link["why"] if link is not None and not link["connected"] else ""
    return found | {"follows_nobody": why, "older_settings": older_settings(cluster, observed.group, node)}


def _render(console: Console, document: dict[str, Any], file: Path) -> None:
    console.print(f"cluster {document['cluster']} is {document['state']}", markup=False)
    for group in document["groups"]:
        console.print(f"\ngroup {group['group']}: {group['state']}", markup=False)
        nodes = table("node", "state", "role", "#epoch", "in sync", "#end", "#lag", "#memory", "store")
        for node in group["nodes"]:
            runs = "epoch" in node
            lag = "" if node.get("lag") is None else sized(node["lag"])
            role = node["role"] or node.get("recorded_role", {}).get("role", "")
            add_row(
                nodes,
                node["node"],
                node["state"],
                role if runs else f"({role})" * bool(role),
                node["epoch"] if runs else "",
                "yes" if node.get("in_sync") else "",
                f"{node['end']:,}" if runs else "",
                lag if node["follows"] or not lag else f"{lag}, not connected",
                sized(node["pss"]) if "pss" in node else "",
                node["store"] if node["state"] != NodeState.ELSEWHERE else f"{node['host']}:{node['store']}",
            )
        console.print(nodes)
        render_remarks(console, group, file)


def _status(node: dict[str, Any]) -> str:
    return completed(f"`towline {node['role']} status`", ("--store", str(node["store"])))


def render_remarks(console: Console, group: dict[str, Any], file: Path) -> None:
    """Commands are to be typed: their lines are not wrapped."""
    for node in group["nodes"]:
        label = f"{group['group']}-{node['node']}"
        if (progress := node.get("seeding")) and (progress["left"] or 0) >= BACKLOG_MIN:
            console.print(f"{label}: {progress_text(progress)}", markup=False)
        if "unreadable" in node:
            console.print(f"{label}: {node['unreadable']}; {node[REMEDY]}", markup=False, soft_wrap=True)
        if node.get("follows_nobody"):
            console.print(f"{label} follows nobody: {node['follows_nobody']}", markup=False, soft_wrap=True)
        for still in node.get("standing_still", []):
            console.print(f"{label}: {still['sentence']}", markup=False, soft_wrap=True)
        if node.get("flags"):
            console.print(f"{label}: running flags: {', '.join(node['flags'])}", markup=False)
        if node.get("dispatch_stopped"):
            where = node["dispatch_stopped"]["offset"]
            said = f"dispatching has stopped at {where}; {_status(node)}"
            console.print(f"{label}: {said}", markup=False, soft_wrap=True)
        if node.get("damaged", {}).get("count"):
            count = node["damaged"]["count"]
            said = f"readers found {count} damaged records; {_status(node)}"
            console.print(f"{label}: {said}", markup=False, soft_wrap=True)
        if node.get("older_settings"):
            keys = ", ".join(node["older_settings"])
            restart = f"`towline cluster restart -f {quote(str(file))}`"
            console.print(f"{label}: runs with older {keys}; {restart}", markup=False, soft_wrap=True)
