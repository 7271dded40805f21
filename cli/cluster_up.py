"""Does the work of `towline cluster up`, `down` and `restart`.

`up` starts the slaves of a group before its master: a master asks the others before it takes puts. `down` stops the
master first, which leaves when its slaves hold all it has.
"""

import select
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote
from typing import Any, Final

from rich.console import Console

from towline.cluster.derived import MASTER, SLAVE
from towline.cluster.state import GroupState, NodeState, cluster_state, group_state
from towline.errors import (
    FixedSetting,
    NodeNotRunning,
    NodeStillRunning,
    StartFailed,
    StoreTaken,
    TowlineError,
    end_of_log,
)
from towline.node.process.settings_changes import change_settings
from towline.node.roles.role_commands import read_json_file
from towline.node.supervise.launch import Launched, stop_node
from towline.places import Store
from towline.route.nodes import Cluster, Group, Node
from towline.runtime.settings import LIVE

from .cluster_nodes import (
    ObservedGroup,
    chosen,
    is_here,
    newer_settings,
    observe,
    older_settings,
    recorded_role,
    roles_of,
    spawn,
    whole_cluster,
)
from .cluster_remedies import in_cluster_file
from .first_start import shown_compiling
from .interrupts import Interrupts
from .output import FAILED, add_row, progress_console, remedy_of, show, table

STEP_S: Final = 0.05
JOIN_MAX_S: Final = 60.0
AGREE_MAX_S: Final = 5.0  # nodes that just started may change their roles once more
# What became of a node.
STARTED, RUNS, RESTARTED, FAILS, ELSEWHERE = "started", "runs already", "restarted", "failed", "elsewhere"
CHANGED = "changed while it runs"
STOPPED, UNCLEAN, STOOD = "stopped", "stopped, not clean", "did not run"


@dataclass
class Outcome:
    """What became of one node, and why it failed."""

    node: Node
    what: str
    role: str = ""
    pid: int = 0
    sentence: str = ""
    remedy: str = ""
    older_settings: list[str] = field(default_factory=list)

    def document(self) -> dict[str, Any]:
        found = {"node": self.node.id, "outcome": self.what, "role": self.role, "pid": self.pid}
        found |= {"store": str(self.node.store)}
        found |= {"older_settings": self.older_settings} if self.older_settings else {}
        return found | ({"sentence": self.sentence, "remedy": self.remedy} if self.sentence else {})

    def failed(self, error: TowlineError, file: Path | None = None) -> None:
        """`file`: the cluster file, where its words are the remedy."""
        remedy = remedy_of(error)
        if file is not None:
            remedy = in_cluster_file(remedy, file, self.node.store)
        self.what, self.sentence, self.remedy = FAILS, error.describe(), remedy


class Starting:
    """Nodes that one command brings up: says what it does, and ends what it started when it is interrupted."""

    def __init__(
        self, cluster: Cluster, interrupts: Interrupts, timeout_s: float, flags_of_masters: Sequence[str] = ()
    ) -> None:
        self.cluster, self.timeout_s = cluster, timeout_s
        self._flags = {MASTER: flags_of_masters, SLAVE: ()}
        self._interrupts = interrupts
        self._launched: list[Launched] = []
        self._console = progress_console()

    def say(self, text: str) -> None:
        self._console.print(text, markup=False)

    def start(self, asked: Iterable[tuple[Group, Node, str, Node]]) -> list[Outcome]:
        """Starts nodes side by side, (group, node, role, its master), and waits until each serves or has failed."""
        begun: list[tuple[Outcome, Launched]] = []
        outcomes = []
        for group, node, role, master in asked:
            self.say(f"{node.label}: starts as {role}")
            outcome = Outcome(node, STARTED, role)
            outcomes.append(outcome)
            try:
                with self._interrupts.held():
                    launched = spawn(self.cluster, group, node, role, master, self._flags[role])
                    self._launched.append(launched)
            except (TowlineError, OSError) as error:
                failure = error if isinstance(error, TowlineError) else StartFailed(node.label, str(error))
                outcome.failed(failure, self.cluster.path)
            else:
                begun.append((outcome, launched))
        deadline = time.monotonic() + self.timeout_s
        for outcome, launched in begun:
            self._await(outcome, launched, max(0.1, deadline - time.monotonic()))
        return outcomes

    def _await(self, outcome: Outcome, launched: Launched, timeout_s: float) -> None:
        try:
            with shown_compiling() as compiling:
                launched.await_ready(timeout_s, compiling)
        except StoreTaken as error:  # another `up` was first
            outcome.what, outcome.pid = RUNS, error.pid
            self.say(f"{outcome.node.label}: is being started as process {error.pid}")
        except TowlineError as error:
            outcome.failed(error, self.cluster.path)
            self.say(f"{outcome.node.label}: failed: {outcome.sentence}")
        else:
            outcome.pid = launched.pid
            self.say(f"{outcome.node.label}: serves as process {launched.pid}")

    def keep(self) -> None:
        """What was started so far stays, whatever happens."""
        self._launched.clear()

    def undo(self) -> None:
        """Ends every node that this command started and did not keep, the last one first."""
        self._interrupts.ignore()
        for launched in reversed(self._launched):
            launched.end()
        if self._launched:
            self.say("interrupted: the nodes that this command started were stopped again")


def up(file: Path, names: Sequence[str], alone: bool, timeout: float, as_json: bool) -> int:
    cluster = whole_cluster(file)
    groups = chosen(cluster, names)
    with Interrupts() as interrupts:
        starting = Starting(cluster, interrupts, timeout, ["--alone"] if alone else [])
        try:
            outcomes = bring_up(starting, groups)
        except BaseException:
            starting.undo()
            raise
    return show_outcomes(cluster, groups, outcomes, as_json)


def bring_up(starting: Starting, groups: Sequence[Group]) -> list[Outcome]:
    """Starts what does not run in these groups, slaves first, and waits until running slaves follow their master."""
    observed = {group.name: observe(group) for group in groups}
    roles = {group.name: roles_of(observed[group.name]) for group in groups}
    outcomes = [standing(starting.cluster, observed[node.group], node) for group in groups for node in group.nodes]
    missing = [outcome for outcome in outcomes if outcome.what == STARTED]
    for role in (SLAVE, MASTER):
        asked = []
        for outcome in missing:
            group, of = starting.cluster.group(outcome.node.group), roles[outcome.node.group]
            if of[outcome.node.id] == role:
                master = next(group.node(number) for number, has in of.items() if has == MASTER)
                asked.append((group, outcome.node, role, master))
        for done in starting.start(asked):
            outcomes[next(place for place, each in enumerate(outcomes) if each.node == done.node)] = done
    for group in groups:
        await_following(starting.say, group, outcomes, starting.timeout_s, elected=bool(starting.cluster.etcd))
    return outcomes


def standing(cluster: Cluster, observed: ObservedGroup, node: Node) -> Outcome:
    """What is the case before anything is started; `STARTED` stands for: is to be."""
    seen = observed.seen(node.id)
    if seen.state is NodeState.ELSEWHERE:
        there = f"run `towline cluster up -f {cluster.path}` there"
        return Outcome(node, ELSEWHERE, sentence=f"{node.host} is not this machine", remedy=there)
    if seen.state is NodeState.STOPPED:
        return Outcome(node, STARTED)
    older = older_settings(cluster, observed.group, node)
    return Outcome(node, RUNS, seen.role, seen.pid, older_settings=older)


def await_following(
    say: Callable[[str], None], group: Group, outcomes: Sequence[Outcome], timeout_s: float, *, elected: bool = False
) -> None:
    """Until the group's running slaves follow its master; a slave that does not is a failure of its own.

    A master that is `elected` may take its time; otherwise none comes up by itself.
    """
    of_group = [each for each in outcomes if each.node.group == group.name]
    running = {each.node.id: each for each in of_group if each.what in (STARTED, RUNS, RESTARTED, CHANGED)}
    failed = any(each.what == FAILS and each.role == MASTER for each in of_group)
    began = time.monotonic()
    for_master = timeout_s if elected else 0.0 if failed else AGREE_MAX_S
    while True:
        observed, waited = observe(group), time.monotonic() - began
        if observed.master is None and any(not is_here(node) for node in group.nodes):
            return  # who is master is known on another machine
        away = [seen for seen in observed.nodes if seen.id in running and seen.role != MASTER and not seen.follows]
        if observed.master is not None and not away:
            return
        begins = any(seen.state is NodeState.STARTING for seen in observed.nodes)
        if waited > min(timeout_s, JOIN_MAX_S) or (observed.master is None and waited > for_master and not begins):
            break
        select.select([], [], [], STEP_S)
    for seen in away:
        outcome = running[seen.id]
        outcome.what = FAILS
        outcome.sentence, outcome.remedy = _why_alone(observed, outcome.node)
        say(f"{outcome.node.label}: {outcome.sentence}")


def _why_alone(observed: ObservedGroup, node: Node) -> tuple[str, str]:
    """Sentence and remedy for a slave that follows nobody."""
    log = f"{end_of_log(str(node.store))} shows what it has tried"
    if observed.master is not None:
        link = read_json_file(Store(node.store).link) or {}
        sentence = f"it runs, and the master {observed.group.name}-{observed.master.id} does not count it as connected"
        return f"{sentence}: {link['why']}" if link.get("why") else sentence, log
    why = recorded_role(node).get("why", "")
    sentence = f"group {observed.group.name} has no master to follow"
    remedy = f"start its master, or make a slave the master with `towline promote --store STORE`; {log}"
    return f"{sentence}: {why}" if why else sentence, remedy


def show_outcomes(
    cluster: Cluster, groups: Sequence[Group], outcomes: Sequence[Outcome], as_json: bool, said: Sequence[str] = ()
) -> int:
    """Shows what became of every node and in which state that leaves these groups; the exit status."""
    states = {group.name: group_state(observe(group).nodes) for group in groups}
    failed = [outcome for outcome in outcomes if outcome.what == FAILS]
    state = cluster_state(list(states.values()))
    document = {
        "cluster": cluster.name,
        "state": state,
        "failed": [outcome.node.label for outcome in failed],
        "remarks": list(said),
        "groups": [
            {
                "group": group.name,
                "state": states[group.name],
                "nodes": [each.document() for each in outcomes if each.node.group == group.name],
            }
            for group in groups
        ],
    }
    show(document, as_json, lambda console: _render(console, cluster, state, outcomes, said))
    good = (GroupState.OK, GroupState.ELSEWHERE)
    left = outcomes and any(each not in good for each in states.values())  # with nothing to do, nothing was left undone
    return FAILED if failed or left else 0


def _render(
    console: Console, cluster: Cluster, state: str, outcomes: Sequence[Outcome], said: Sequence[str] = ()
) -> None:
    console.print(f"cluster {cluster.name} is {state}", markup=False)
    for remark in said:
        console.print(remark, markup=False)
    nodes = table("node", "outcome", "role", "#pid", "store")
    for outcome in outcomes:
        add_row(nodes, outcome.node.label, outcome.what, outcome.role, outcome.pid or "", outcome.node.store)
    if outcomes:
        console.print(nodes)
    for outcome in outcomes:
        if outcome.sentence:
            said = f"{outcome.sentence}; {outcome.remedy}"
            console.print(f"{outcome.node.label}: {said}", markup=False, soft_wrap=True)
        if outcome.older_settings:
            keys, restart = ", ".join(outcome.older_settings), f"`towline cluster restart -f {cluster.path}`"
            said = f"runs with older {keys}; {restart}"
            console.print(f"{outcome.node.label}: {said}", markup=False, soft_wrap=True)


def down(file: Path, names: Sequence[str], timeout: float, as_json: bool) -> int:
    cluster = whole_cluster(file)
    groups = chosen(cluster, names)
    outcomes: list[Outcome] = []
    say = progress_console().print
    with Interrupts():
        for group in groups:
            outcomes += take_down(say, group, timeout, slaves_first=bool(cluster.etcd))
    return _tell_down(cluster, groups, outcomes, as_json)


def take_down(say: Callable[[str], None], group: Group, timeout_s: float, *, slaves_first: bool) -> list[Outcome]:
    """Stops what runs of a group here. The master goes first, and only when its slaves hold all it has; where an etcd
    would elect another one meanwhile, it goes last."""
    observed = observe(group)
    order = sorted(observed.nodes, key=lambda seen: (seen.role == MASTER) is slaves_first)
    outcomes = []
    for seen in order:
        node = group.node(seen.id)
        if seen.state is NodeState.ELSEWHERE:
            outcomes.append(
                Outcome(node, ELSEWHERE, sentence=f"{node.host} is not this machine", remedy="stop it there")
            )
        else:
            outcomes.append(stop(say, node, seen.role, timeout_s))
    return outcomes


def stop(say: Callable[[str], None], node: Node, role: str, timeout_s: float) -> Outcome:
    """Stops one node in order; one that does not run is fine."""
    outcome = Outcome(node, STOOD, role)
    try:
        clean = stop_node(node.store, timeout_s)
    except NodeNotRunning:
        return outcome
    except NodeStillRunning as error:
        outcome.failed(error)
        say(f"{node.label}: {outcome.sentence}")
        return outcome
    outcome.what = STOPPED if clean else UNCLEAN
    say(f"{node.label}: {outcome.what}")
    return outcome


def _tell_down(cluster: Cluster, groups: Sequence[Group], outcomes: Sequence[Outcome], as_json: bool) -> int:
    bad = [outcome for outcome in outcomes if outcome.what in (FAILS, UNCLEAN)]
    state = cluster_state([group_state(observe(group).nodes) for group in groups])
    document = {
        "cluster": cluster.name,
        "state": state,
        "failed": [outcome.node.label for outcome in bad],
        "nodes": [{"group": outcome.node.group} | outcome.document() for outcome in outcomes],
    }
    show(document, as_json, lambda console: _render(console, cluster, state, outcomes))
    return FAILED if bad else 0


def restart(file: Path, names: Sequence[str], every: bool, timeout: float, as_json: bool) -> int:
    cluster = whole_cluster(file)
    groups = chosen(cluster, names)
    outcomes: list[Outcome] = []
    with Interrupts() as interrupts:
        starting = Starting(cluster, interrupts, timeout)
        try:
            for group in groups:
                roll(starting, group, outcomes, every=every)
        except BaseException:
            starting.undo()
            raise
    return show_outcomes(cluster, groups, outcomes, as_json)


def roll(
    starting: Starting, group: Group, outcomes: list[Outcome], *, every: bool = False, restart: bool = True
) -> None:
    """Brings the group's nodes that run with older settings to the file's, one by one, the master last: what may change
    while a node runs does, the rest takes a restart, which `restart` allows; with `every` all restart.

    Each is up and all follow again before the next one goes; it ends with the first that fails. `outcomes` gets what
    became of each node that ran, or has it already.
    """
    observed = observe(group)
    known = {outcome.node.id for outcome in outcomes if outcome.node.group == group.name}
    outcomes += [
        standing(starting.cluster, observed, group.node(seen.id))
        for seen in observed.nodes
        if seen.runs and seen.id not in known
    ]
    for seen in sorted(observed.nodes, key=lambda seen: seen.role == MASTER):
        node = group.node(seen.id)
        if not seen.runs or not (every or older_settings(starting.cluster, group, node)):
            continue
        place = next(place for place, each in enumerate(outcomes) if each.node == node)
        if not every and _took_change(starting, group, outcomes[place]):
            await_following(starting.say, group, outcomes, starting.timeout_s, elected=bool(starting.cluster.etcd))
            if any(each.what == FAILS for each in outcomes):
                return
            continue
        if not restart:
            continue
        outcome = stop(starting.say, node, seen.role, starting.timeout_s)
        if outcome.what != FAILS:
            master = group.node(observed.master.id) if observed.master is not None else group.first_master
            [outcome] = starting.start([(group, node, seen.role, master)])
            outcome.what = RESTARTED if outcome.what == STARTED else outcome.what
            starting.keep()
        outcomes[place] = outcome
        await_following(starting.say, group, outcomes, starting.timeout_s, elected=bool(starting.cluster.etcd))
        if any(each.what == FAILS for each in outcomes):
            return


def _took_change(starting: Starting, group: Group, outcome: Outcome) -> bool:
    """Whether the running node now works by what the file says, without a restart."""
    node = outcome.node
    newer = newer_settings(starting.cluster, group, node)
    if newer.keys() - LIVE.keys():
        return False
    try:
        waiting = change_settings(node.store, newer, keep=False)["waiting"]
    except FixedSetting:  # some values of these take a start all the same
        return False
    except TowlineError as error:
        outcome.failed(error, starting.cluster.path)
        return True
    starting.say(f"{node.label}: takes {', '.join(sorted(newer))} while it runs")
    outcome.what, outcome.older_settings = CHANGED, []
    if waiting:
        outcome.what = FAILS
        outcome.sentence = f"{', '.join(waiting)} of it stands still, and takes the change when it goes on"
        again = f"`towline cluster restart -f {quote(str(starting.cluster.path))}`"
        outcome.remedy = f"{end_of_log(str(node.store))} shows why; then {again}"
    return True
