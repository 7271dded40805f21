"""Does the work of `towline cluster scale` and `replace-node`: changes the file first, then what runs.

The changed file is checked whole before it replaces the old one, and it does so before anything is started or stopped:
whatever breaks off, `towline cluster up` and `restart` bring the cluster to what the file says.
"""

import select
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from shlex import quote
from typing import Any, Final

from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from towline.cluster.derived import SLAVE, check_settings
from towline.cluster.edit import with_changed_node, with_master, with_node, without_node
from towline.cluster.sample import free_bases, is_free
from towline.errors import end_of_log
from towline.limits import NODE_MAX
from towline.log.files.store_files import write_atomically
from towline.route.errors import ChangeRefused
from towline.route.nodes import Cluster, Group, Node

from .cluster_nodes import ObservedGroup, forget_memory, group_of, is_here, node_of, observe, whole_cluster
from .cluster_up import ELSEWHERE, FAILS, STOPPED, UNCLEAN, Outcome, Starting, roll, show_outcomes, stop
from .interrupts import Interrupts
from .output import progress_console

STEP_S: Final = 0.1
LEAVE_MAX_S: Final = 30.0


@dataclass
class Draft:
    """The text of a cluster file while it is changed, and what it would mean."""

    path: Path
    text: str
    cluster: Cluster
    said: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, file: Path) -> "Draft":
        return cls(file, file.read_text(encoding="utf-8"), whole_cluster(file))

    def change(self, how: Callable[..., tuple[str, Cluster]], *arguments: Any) -> None:
        """`how` is a function of `towline.cluster.edit`. Raises BadCluster."""
        self.text, self.cluster = how(self.text, self.path, *arguments)

    def save(self) -> None:
        """Raises what `check_settings` raises; then the file is as it was."""
        check_settings(self.cluster)
        write_atomically(self.path.resolve(), self.text.encode())


def scale(file: Path, name: str, slaves: int, host: str, restart: bool, timeout: float, as_json: bool) -> int:
    draft = Draft.of(file)
    observed = observe(group_of(draft.cluster, name), ask=True)
    keep = observed.master.id if observed.master is not None else observed.group.master
    before = [node for node in observed.group.nodes if node.id != keep]
    gone = sorted(before, key=lambda node: node.id)[slaves:]
    for _ in range(slaves - len(before)):
        _add(draft, observed, host)
    if keep != observed.group.master and any(node.id == observed.group.master for node in gone):
        draft.change(with_master, name, keep)
    for node in gone:
        draft.change(without_node, name, node.id)
    if len(before) == slaves:
        draft.said.append(f"group {name} has {slaves} slaves already")
    else:
        draft.save()
    new = [
        node for node in draft.cluster.group(name).nodes if node.id not in {node.id for node in observed.group.nodes}
    ]
    return _carry_out(draft, observed, new, gone, restart, timeout, as_json)


def _add(draft: Draft, observed: ObservedGroup, host: str) -> None:
    """One more slave, under a number that nobody has or is on record with, where a port and a store are free."""
    group = draft.cluster.group(observed.group.name)
    number = _new_id(group, observed)
    store = _store_beside(group.first_master, number)
    draft.change(
        with_node,
        group.name,
        {"id": number, "host": host, "port": _port(draft.cluster, host), "store": _as_written(draft.cluster, store)},
    )


def _new_id(group: Group, observed: ObservedGroup) -> int:
    """Above every other one: a number that was used before may stand in a record somewhere, and its store here."""
    taken: set[int] = {node.id for node in group.nodes} | set(
        observed.master.in_sync if observed.master is not None else ()
    )
    taken |= {number for number in range(NODE_MAX + 1) if _store_beside(group.first_master, number).exists()}
    above = max(node.id for node in group.nodes) + 1
    for number in chain(range(above, NODE_MAX + 1), range(above)):
        if number not in taken:
            return number
    raise ChangeRefused(f"add a node to group {group.name}", "every number has been used", "make another group")


def _store_beside(node: Node, number: int) -> Path:
    return node.store.parent / f"{node.group}-{number}"


def _as_written(cluster: Cluster, store: Path) -> str:
    """Relative to the file where it lies below its directory, as the sample has it."""
    home = cluster.path.parent
    return str(store.relative_to(home)) if home in store.parents else str(store)


def _port(cluster: Cluster, host: str) -> int:
    """A `port` whose ports no node of the file has on that host, and nobody else where that is this machine."""
    taken = {port for node in cluster.nodes if node.host == host for port in node.ports.values()}
    here = any(is_here(node) for node in cluster.nodes if node.host == host)
    return next(free_bases(lambda port: port not in taken and (not here or is_free(port))))


def replace_node(
    file: Path,
    name: str,
    number: int,
    new_id: int | None,
    host: str | None,
    restart: bool,
    timeout: float,
    as_json: bool,
) -> int:
    draft = Draft.of(file)
    group = group_of(draft.cluster, name)
    lost, observed = node_of(draft.cluster, group, number), observe(group, ask=True)
    what = f"replace node {number} of group {name}"
    new_id = _id_of_replacement(what, observed, lost, new_id)
    keys: dict[str, Any] = {}
    if new_id != number:
        keys |= {"id": new_id, "store": _as_written(draft.cluster, _store_beside(lost, new_id))}
    if host is not None and host != lost.host:
        keys |= {"host": host}
    if keys:
        draft.change(with_changed_node, name, number, keys)
    if group.master == number and observed.master is not None:
        draft.change(with_master, name, observed.master.id)
    new = draft.cluster.group(name).node(new_id)
    check_settings(draft.cluster)
    if is_here(new) and new.store.exists() and any(new.store.iterdir()):
        if new.store != lost.store:
            raise ChangeRefused(what, f"{new.store} is not empty", "move it away, or take another number with --id")
        aside = new.store.with_name(f"{new.store.name}.lost-{time.strftime('%Y%m%dT%H%M%S')}")
        new.store.rename(aside)
        draft.said.append(f"what was left of the store is in {aside}")
    draft.save()
    if is_here(lost):
        forget_memory(lost)
    return _carry_out(draft, observed, [new], [], restart, timeout, as_json)


def _id_of_replacement(what: str, observed: ObservedGroup, lost: Node, asked: int | None) -> int:
    """The lost node's own, unless an empty store under it could be taken for the one that is on record as in sync."""
    seen, master = observed.seen(lost.id), observed.master
    if seen.role or seen.pid:
        where = f"as process {seen.pid}" if seen.pid else f"on {lost.host}"
        raise ChangeRefused(what, f"it runs {where}", "stop it first, if it is to go")
    if master is None:
        instead = "start one, or make a slave the master with `towline promote --store STORE`"
        raise ChangeRefused(what, "the group has no master to copy from", instead)
    on_record = lost.id in master.in_sync
    if asked is None:
        return _new_id(observed.group, observed) if on_record else lost.id
    if asked == lost.id and on_record:
        why = f"it is on record as in sync ({', '.join(map(str, master.in_sync))}), and an empty store is not"
        raise ChangeRefused(what, why, "leave out --id: the new node gets a number of its own")
    if asked != lost.id and any(node.id == asked for node in observed.group.nodes):
        raise ChangeRefused(what, f"node {asked} is there already", "take another number with --id")
    return asked


def _carry_out(
    draft: Draft,
    observed: ObservedGroup,
    new: Sequence[Node],
    gone: Sequence[Node],
    restart: bool,
    timeout: float,
    as_json: bool,
) -> int:
    """Starts, stops and changes nodes until the group runs as the file has it now; a group that does not run stays so.
    `restart`: nodes may be restarted, where a change takes that."""
    cluster, group = draft.cluster, draft.cluster.group(observed.group.name)
    outcomes: list[Outcome] = []
    runs = any(seen.runs for seen in observed.nodes)
    with Interrupts() as interrupts:
        starting = Starting(cluster, interrupts, timeout)
        try:
            if runs:
                outcomes = _apply(starting, group, observed, new, gone, timeout)
            if runs and not any(outcome.what == FAILS for outcome in outcomes):
                roll(starting, group, outcomes, restart=restart)
        except BaseException:
            starting.undo()
            raise
    draft.said += [] if runs else [f"group {group.name} does not run: the file alone was changed"]
    draft.said += [f"the store of {node.label} is left in {node.store}" for node in gone]
    return show_outcomes(cluster, [group], outcomes, as_json, draft.said)


def _apply(
    starting: Starting, group: Group, observed: ObservedGroup, new: Sequence[Node], gone: Sequence[Node], timeout: float
) -> list[Outcome]:
    master = observed.master
    follow = group.node(master.id) if master is not None else group.first_master
    outcomes = [
        Outcome(node, ELSEWHERE, sentence="it is on another machine", remedy="start it there")
        for node in new
        if not is_here(node)
    ]
    started = starting.start([(group, node, SLAVE, follow) for node in new if is_here(node)])
    for outcome in started:
        if outcome.what != FAILS:
            await_caught_up(starting.cluster.path, group, outcome, timeout)
    starting.keep()
    for node in gone:
        if is_here(node):
            outcomes.append(stop(starting.say, node, SLAVE, timeout))
        else:
            outcomes.append(Outcome(node, ELSEWHERE, sentence="it is on another machine", remedy="stop it there"))
    for outcome in outcomes:
        if outcome.what in (STOPPED, UNCLEAN):
            await_left(starting.cluster.path, group, outcome, timeout)
    return [*started, *outcomes]


def await_left(file: Path, group: Group, outcome: Outcome, timeout_s: float) -> None:
    """Until the recorded in-sync set is without a stopped node: only then may the others forget where it was."""
    deadline = time.monotonic() + min(timeout_s, LEAVE_MAX_S)
    while (master := observe(group).master) is not None and outcome.node.id in master.in_sync:
        if time.monotonic() > deadline:
            outcome.what = FAILS
            outcome.sentence = f"it is still on record as in sync ({', '.join(map(str, master.in_sync))})"
            restarts = f"`towline cluster restart -f {quote(str(file))}`"
            outcome.remedy = f"bring the other slaves up and in sync, then {restarts}"
            return
        select.select([], [], [], STEP_S)


def await_caught_up(file: Path, group: Group, outcome: Outcome, timeout_s: float) -> None:
    """With a progress bar, until the slave holds what its master has at that moment, or `timeout_s` have passed."""
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    deadline = time.monotonic() + timeout_s
    with Progress(*columns, TimeRemainingColumn(), console=progress_console()) as progress:
        task = progress.add_task(f"{outcome.node.label} catches up", total=None)
        while True:
            observed = observe(group)
            own = observed.seen(outcome.node.id)
            if observed.master is not None:
                progress.update(task, total=observed.master.end, completed=max(0, own.end))
                if own.follows and own.end >= observed.master.end:
                    return
            if not own.pid or time.monotonic() > deadline:
                break
            select.select([], [], [], STEP_S)
    outcome.what = FAILS
    outcome.sentence = "it went while it caught up" if not own.pid else f"it has not caught up within {timeout_s:.0f} s"
    where = quote(str(outcome.node.store))
    late = f"it goes on by itself while it runs: `towline slave status --store {where}` shows how far it is"
    again = (
        f"{end_of_log(str(outcome.node.store))} shows why; `towline cluster up -f {quote(str(file))}` starts it again"
    )
    outcome.remedy = late if own.pid else again
