"""The supervisor of a node: locks the store, recovers it, starts, restarts and stops the processes.

On a command to change, it stops the workers and starts them again under a new generation, perhaps in another role;
its lock of the store and its zygote stay (H16, H17).

It watches exits (the zygote reaps and reports) and reports heartbeats that stand still; it never kills a slow process
by itself (H9). Killed, it takes its zygote and the workers with it: each dies with its parent (H8).
"""

import contextlib
import json
import logging
import os
import select
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from towline.errors import DiskFull, DutyTaken, StartFailed, StoreNotWritable, SyncFailed, TowlineError
from towline.log.commitlog.reserve_file import ReserveFile
from towline.log.files.store_files import AbortFile, write_atomically
from towline.log.state.identity import IdentityFile
from towline.log.state.role_file import MASTER, SLAVE, load_role
from towline.log.state.truncation_file import take_back_word
from towline.node.process.context import make_private, runtime_of
from towline.node.process.duties import STOP_ORDER, duties_of
from towline.node.process.endpoints import endpoints_of
from towline.node.process.failure import facts_of, forget_failures, read_failure
from towline.node.process.own_log import log_by
from towline.node.process.service_manager import ServiceManager
from towline.node.process.zygote_client import Exit, ZygoteClient
from towline.node.roles.promise import NOTHING, load_promise
from towline.node.roles.role_commands import PROMOTE, drop_command, expired_command, finish_command, pending_command
from towline.node.roles.roles import as_role, wanted_role
from towline.node.store.pool_state import clear_runtime, keep_positions
from towline.places import Runtime, Store
from towline.runtime.doorbell import Doorbell, Ringer, make_bell
from towline.runtime.locks import StoreLock, holder_of
from towline.runtime.log_file import move_aside
from towline.runtime.positions import Duty, Position, Positions, State
from towline.runtime.queue_ends import QueueEnds
from towline.runtime.settings import Settings

from . import changing, snapshot_store
from .room import need_first_segment
from .watching import Worker, listen_ms, look_at

START_MAX_S: Final = 60.0
START_STEP_MS: Final = 5
RECOVER_MAX_S: Final = 3600.0
AGREE_MAX_S: Final = 60.0
STOP_MAX_S: Final = 8.0
STOP_STEP_MS: Final = 50
DURING_RECOVERY: Final = (Duty.METRICS,)  # says that the node is not ready yet
AT_ONCE: Final = (Duty.LEASE, Duty.PUT, Duty.RECEIVE)  # forked before the zygote has loaded what the others need
LOCK_STEP_S: Final = 0.01
BACKOFF_MS: Final = (0, 100, 200, 400, 800, 1600, 3200, 5000)
STEADY_S: Final = 10.0  # a worker that ran so long starts with no back-off again
SERVING: Final = (State.RUNNING, State.SYNCING, State.KERNEL)  # flush may begin with a long sync
NS_PER_MS: Final = 1_000_000


@dataclass
class Supervisor:
    asked: str  # the role that the command named: "master" or "slave"
    without: frozenset[str]  # labels of duties that are started by hand
    store: Store
    given: Settings  # as the command, its file and changes since say; a role may change some
    sources: dict[str, str]  # where they came from
    log: logging.Logger
    zygote: ZygoteClient  # whose zygote has been started, and is ended by whoever did
    log_file: Path | None = None  # to which all processes of the node log; it is this one's to move aside
    manager: ServiceManager = field(default_factory=lambda: ServiceManager({}))
    alone: bool = False  # the operator says that no peer can be master now
    beneath: dict[str, Any] = field(default_factory=dict)  # of kept settings, what they would have without that
    role: str = ""  # which it has in this generation
    _serves: bool = False  # there is a generation, with workers
    _workers: dict[Duty, Worker] = field(default_factory=dict)
    _stages: dict[str, int] = field(default_factory=dict)  # of the start: when each was reached, CLOCK_MONOTONIC in ns
    _stopping: bool = False

    def __post_init__(self) -> None:
        self._changing = changing.Changing(self.store, self.given, self.sources, self._install, self.log, self.beneath)

    # --- life

    def start(self) -> None:
        """Returns when every worker runs. Raises a TowlineError; then nothing of the node is left running."""
        self._runtime: Runtime = runtime_of(self.store.root)
        self._reached("imported")
        self._lock = self._lock_store()
        self._abort = AbortFile(self.store.root)
        try:
            changing.forget_changes(self.store)
            order = self._unfinished_command()
            outdated = expired_command(self.store, order, self.given.broker_id) if order is not None else None
            if outdated is not None:
                self.log.warning("%s", outdated)
            self._begin(order if outdated is None else None, running=False)
            if order is not None:
                self._finish(order, outdated or self._refusal)
        except BaseException:
            self.zygote.end()
            self._leave()
            raise

    def _unfinished_command(self) -> dict[str, Any] | None:
        """The order of a supervisor that was killed in the middle of it.

        An election is not gone on with: another node may have been elected since. Where etcd still has this one, its
        lease process gives the order again.
        """
        order = pending_command(self.store)
        if order is None or not order.get("elected"):
            return order
        self.log.warning("an election was cut short: etcd is asked anew who leads")
        drop_command(self.store, int(order["number"]))
        return None

    def run(self) -> None:
        """Until SIGTERM or SIGINT: restart what exits, report processes that stand still, execute commands.

        Raises the TowlineError with which an order left a node that cannot serve.
        """
        self.manager.ready(self._what)
        while not self._stopping:
            self._listen(listen_ms(self.manager))
            self._positions.duty(Duty.SUPERVISE).beat()
            self._restart_due()
            still = look_at(self._workers.values(), self._positions, self.manager, self.log)
            self.manager.status(still or self._what)
            self._keep_log_small()
            self._bell.drain()
            self._changing.carry_out(self.given)
            order = pending_command(self.store)
            if order is not None and not self._stopping:
                self.manager.status(f"was ordered to {order['order']}")
                self.zygote.pulse = self.manager.alive  # no worker beats meanwhile; each step has a time of its own
                try:
                    self._execute(order)
                finally:
                    self.zygote.pulse = lambda: None

    def stop(self) -> bool:
        """Stop the workers in order. True when the store is clean: every byte durable and in its queue."""
        self._stopping = True
        self.manager.stopping()
        clean = self._end_generation() if self._serves else not self._abort.exists()
        self.zygote.end()
        self._leave()
        return clean

    def request_stop(self, signum: int, frame: object) -> None:
        """Signal handler."""
        self._stopping = True
        self.zygote.wake()

    # --- a generation

    def _begin(self, order: dict[str, Any] | None, *, running: bool) -> None:
        """From the recovered store to workers that run, in the role that the node agreed on with its peers."""
        self._refusal: TowlineError | None = None
        given, promotes = order, order is not None and order["order"] == PROMOTE
        role = MASTER if promotes else wanted_role(self.store, self.given, self.asked)
        while True:
            self._prepare(role, order, running)
            self._reached("prepared")
            self._recover()  # the zygote forks it as soon as it can, and loads the rest meanwhile
            self._reached("recovered")
            agreed = self._agree(promotes)
            self._reached("agreed")
            if agreed == role:
                break
            role, order, promotes = agreed, None, False  # the other role recovers in its own way
            for worker in self._workers.values():
                self._stop_worker(worker)
            self._bell.close()
        if given is not None:
            drop_command(self.store, int(given.get("number", 0)))
        if role == MASTER:
            take_back_word(self.store)  # it was for another master's log
        self._abort.create(os.getpid())
        snapshot_store.record_running(self.store, self._runtime, self.log, self._positions, self.settings)
        self._serves = True
        for duty in duties_of(role, self.settings, self.without):
            if duty in self._workers:
                continue
            if duty not in AT_ONCE:
                self.zygote.await_ready()
            self._workers[duty] = Worker(duty)
            self._fork(self._workers[duty])
        self._reached("zygote")
        self._await_running()
        self._reached("running")
        self._write_node()
        self._positions.duty(Duty.SUPERVISE).state = State.RUNNING

    def _end_generation(self) -> bool:
        """Every worker has gone, what it held in memory too. True when the store is clean."""
        for duty in STOP_ORDER:
            if duty in self._workers:
                self._stop_worker(self._workers[duty])
        self._workers.clear()
        self._end_generation_of_others()
        positions = self._positions
        positions.revive(self.generation)  # what its workers wrote is as good as what a killed node leaves
        end = positions.get(Position.APPENDED)
        synced = end == positions.get(Position.FLUSHED)
        synced = synced and not (positions.get(Position.SYNC_FAILED) or positions.get(Position.DERIVED_SYNC_FAILED))
        clean = synced and end == positions.get(Position.DISPATCHED) == positions.get(Position.INDEXED)
        if synced:
            snapshot_store.save_stopped(self.store, self._runtime, self.log, positions, self.settings, clean=clean)
        if self.store.known.exists():
            positions.retire()  # nobody needs them any more: readers that have them mapped see that the node has ended
        if clean:
            self._abort.remove()
        else:
            self.log.warning("not everything is durable and in its queue: abort stays and the next start recovers")
        self._serves = False
        self.zygote.watch(-1)
        self._bell.close()
        return clean

    def _execute(self, order: dict[str, Any]) -> None:
        """Stops the workers and starts them again. A refused promotion leaves the node what it was."""
        self.log.info("ordered to %s", order["order"])
        self._stages = {}
        self._reached("ordered")
        fenced = self._positions.get(Position.PROMISED) > self._positions.get(Position.EPOCH)
        if order["order"] == PROMOTE and self.role == MASTER and not fenced:
            self._finish(order, None)  # it is a master already
            return
        self._end_generation()
        self._reached("stopped")
        try:
            self._begin(order, running=True)
        except TowlineError as error:
            if self._stopping:  # a stop was ordered meanwhile: the order stands for the next start
                return
            self.log.error("cannot go on: %s", error)
            self._finish(order, error)
            raise
        self._finish(order, self._refusal)

    def _finish(self, order: dict[str, Any], error: TowlineError | None) -> None:
        first, last = min(self._stages.values()), max(self._stages.values())
        stages = {stage: (at - first) // NS_PER_MS for stage, at in self._stages.items()}
        outcome: dict[str, Any] = {"order": order["order"], "role": self.role, "stages_ms": stages}
        outcome |= {"epoch": self._positions.get(Position.EPOCH), "generation": self.generation}
        outcome |= {"elected": order["elected"]} if "elected" in order else {}
        if error is not None:
            outcome["error"] = facts_of(error)
        finish_command(self.store, int(order.get("number", 0)), outcome)
        self.log.info("is a %s, %d ms after the order to %s", self.role, (last - first) // NS_PER_MS, order["order"])

    def _agree(self, promotes: bool) -> str:
        """The role of this generation: what the one-shot process of that name wrote, if it has to ask anybody."""
        if not self.store.asked.exists():
            return self.role
        pid = self.zygote.fork(Duty.AGREE.label)
        status = self.zygote.await_exit(Duty.AGREE.label, pid, AGREE_MAX_S)
        if status != 0:
            failure = read_failure(self.store, Duty.AGREE) or StartFailed(Duty.AGREE.label, f"exit status {status}")
            if not promotes:
                raise failure
            self.log.warning("%s", failure)  # the node goes on as a slave
            self._refusal = failure
            return SLAVE
        agreed = load_role(self.store)
        assert agreed is not None, "who agreed wrote down what on"
        return agreed.role

    # --- start

    def _reached(self, stage: str) -> None:
        self._stages[stage] = time.monotonic_ns()

    def _lock_store(self) -> StoreLock:
        lock = StoreLock(self.store.lock)
        try:
            self.store.run.mkdir(exist_ok=True)
            deadline = time.monotonic() + 2.0
            while (taken := self._taken_duty()) is not None:
                if time.monotonic() > deadline:
                    raise DutyTaken(*taken)
                select.select([], [], [], LOCK_STEP_S)  # workers of a killed supervisor are on their way out
        except OSError as error:
            lock.release()
            raise StoreNotWritable(str(self.store.run), error.strerror or str(error)) from None
        except DutyTaken:
            lock.release()
            raise
        return lock

    def _taken_duty(self) -> tuple[str, int, str] | None:
        for duty in Duty:
            path = self.store.duty_lock(duty.label)
            if pid := holder_of(path):
                return duty.label, pid, str(path)
        return None

    def _prepare(self, role: str, order: dict[str, Any] | None, running: bool) -> None:
        self.role, self.settings = role, as_role(self.given, role)
        try:
            make_private(self._runtime.root)
        except OSError as error:
            raise StoreNotWritable(str(self._runtime.root), str(error)) from None
        for leftover in self._runtime.root.glob("*.sock"):
            leftover.unlink()
        forget_failures(self.store)
        ReserveFile(self.store.root, self.settings.reserve_file_size).give_up_when_full()
        if not running:
            need_first_segment(self.store, self.settings)
        write_atomically(self.store.settings, self.settings.to_json().encode())
        self._ask(role, order, running)
        identity = IdentityFile(self.store.root)
        founds = role == MASTER and (order is None or bool(order.get("elected")))
        if identity.check(self.settings.broker_cluster_name) is None and founds:
            identity.create(self.settings.broker_cluster_name)
        self.generation = time.time_ns()
        keep_positions(self._runtime)
        snapshot_store.save_killed(self.store, self._runtime, self.log)
        self._positions = Positions.create(self._runtime.positions, self.generation)
        QueueEnds.create(self._runtime.queue_ends).close()
        line = self._positions.duty(Duty.SUPERVISE)
        line.enter(self.generation)
        for duty in Duty:
            make_bell(self._runtime.bell(duty.label))
        self._bell = Doorbell(self._runtime.bell(Duty.SUPERVISE.label), line)
        self._bell.arm()  # for good: whoever gives an order rings
        self.zygote.watch(self._bell.fileno())

    def _ask(self, role: str, order: dict[str, Any] | None, running: bool) -> None:
        """Leaves what this start is to agree on with its peers; nothing where a master has none, or for a slave."""
        self.store.asked.unlink(missing_ok=True)
        promotes = order is not None and order["order"] == PROMOTE
        promised = load_promise(self.store).node not in (NOTHING.node, self.given.broker_id)
        if role == MASTER and (promotes or promised or self.given.ha_peers):
            allowed = {"alone": self.alone, "running": running}
            write_atomically(self.store.asked, json.dumps(allowed | (order or {})).encode())

    def _recover(self) -> None:
        pid = self.zygote.fork(Duty.RECOVER.label)
        duties = duties_of(self.role, self.settings, self.without)
        self._workers = {duty: Worker(duty) for duty in duties if duty in DURING_RECOVERY}
        for worker in self._workers.values():
            self._fork(worker)
        status = self.zygote.await_exit(Duty.RECOVER.label, pid, RECOVER_MAX_S)
        if status != 0:
            self._raise_failure(Duty.RECOVER, status)

    def _fork(self, worker: Worker) -> None:
        worker.pid, worker.started, worker.due = self.zygote.fork(worker.duty.label), time.monotonic(), None

    def _await_running(self) -> None:
        deadline = time.monotonic() + START_MAX_S
        while any(self._positions.duty(duty).state not in SERVING for duty in self._workers):
            for gone in self.zygote.listen(START_STEP_MS):
                duty = next(worker.duty for worker in self._workers.values() if worker.pid == gone.pid)
                self._raise_failure(duty, gone.status)
            if time.monotonic() > deadline:
                raise StartFailed("the node", f"not every worker ran within {START_MAX_S:.0f} s")
            if self._stopping:
                raise StartFailed("the node", "was told to stop while it started")

    def _raise_failure(self, duty: Duty, status: int) -> None:
        known = read_failure(self.store, duty)
        if known is not None:
            raise known
        raise StartFailed(duty.label, f"exit status {status}")

    def _write_node(self) -> None:
        facts = {
            "pid": os.getpid(),
            "role": self.role,
            "asked": self.asked,
            "epoch": self._positions.get(Position.EPOCH),
            "generation": self.generation,
            "runtime": str(self._runtime.root),
            "endpoints": endpoints_of(self.settings, self._runtime, self.role),
            "started": time.time_ns() // 1_000_000,
            "stages": self._stages,
            "zygote": self.zygote.pid,
            "processes": {duty.label: worker.pid for duty, worker in self._workers.items()},
        }
        write_atomically(self.store.node, json.dumps(facts, indent=1).encode())

    # --- settings

    def _install(self, given: Settings) -> int:
        """Makes these the settings of the node; the number of the change. Each process takes them between two of its
        cycles. Raises DiskFull, StoreNotWritable, SyncFailed: then nothing has changed."""
        settings = as_role(given, self.role)
        write_atomically(self.store.settings, settings.to_json().encode())
        self.given, self.settings = given, settings
        log_by(settings)
        changes = self._positions.writer(Position.SETTINGS, Duty.SUPERVISE)
        changes.advance(changes.get() + 1)
        ringer = Ringer(self._positions, {duty: self._runtime.bell(duty.label) for duty in Duty})
        ringer.ring()
        ringer.close()
        return changes.get()

    # --- watching

    def _listen(self, timeout_ms: int) -> None:
        due = [worker.due for worker in self._workers.values() if worker.due is not None]
        if due:
            timeout_ms = min(timeout_ms, max(0, int(1000 * (min(due) - time.monotonic())) + 1))
        for gone in self.zygote.listen(timeout_ms):
            worker = self._worker_of(gone)
            if worker is not None:
                self._note_exit(worker, gone.status)

    def _worker_of(self, gone: Exit) -> Worker | None:
        return next((worker for worker in self._workers.values() if worker.pid == gone.pid), None)

    def _note_exit(self, worker: Worker, status: int) -> None:
        now = time.monotonic()
        worker.failures = 0 if now - worker.started > STEADY_S else worker.failures + 1
        delay = BACKOFF_MS[min(max(worker.failures - 1, 0), len(BACKOFF_MS) - 1)] / 1000
        worker.pid, worker.due = 0, now + delay
        self.log.warning("%s exited with %s, starts again in %.1f s", worker.duty.label, status, delay)

    def _restart_due(self) -> None:
        if self.zygote.exit_status is not None:
            self._replace_zygote()
        now, changed = time.monotonic(), False
        for worker in self._workers.values():
            if worker.due is not None and worker.due <= now and not self._stopping:
                try:
                    self._fork(worker)
                except StartFailed as error:  # the zygote went: the next turn replaces it
                    self.log.warning("%s", error)
                    return
                changed = True
        if changed:
            try:
                self._write_node()
            except (DiskFull, StoreNotWritable, SyncFailed) as error:  # a full disk ends no node that runs
                self.log.error("node.json names workers that have gone: %s", error)

    def _replace_zygote(self) -> None:
        """Its children died with it; all are restarted as workers, so no position is reset (H11)."""
        self.log.warning("the zygote exited with %s; it and every worker start again", self.zygote.exit_status)
        self.zygote.discard()
        for worker in self._workers.values():
            worker.pid, worker.due = 0, time.monotonic()  # no failure of its own: no back-off
        self.zygote.spawn()
        try:
            self.zygote.await_ready()
        except StartFailed as error:  # the next turn tries again
            self.log.error("%s", error)

    @property
    def _what(self) -> str:
        """What the node does, in words."""
        return f"serves as a {self.role} in epoch {self._positions.get(Position.EPOCH)}"

    def _keep_log_small(self) -> None:
        """A disk on which nothing can be renamed is tried again at the next look."""
        if self.log_file is None:
            return
        with contextlib.suppress(OSError):
            if move_aside(self.log_file, self.settings.log_file_size_max, self.settings.log_file_count):
                self.log.info("the log goes on here; what came before stands in %s.1", self.log_file.name)
                self.zygote.follow_log()

    # --- stop

    def _stop_worker(self, worker: Worker) -> None:
        if not worker.pid:
            return
        deadline = time.monotonic() + STOP_MAX_S
        with contextlib.suppress(ProcessLookupError):
            os.kill(worker.pid, signal.SIGTERM)
        ringer = Ringer(self._positions, {worker.duty: self._runtime.bell(worker.duty.label)})
        ringer.ring()  # a signal alone does not end a sleep
        ringer.close()
        while worker.pid:
            for gone in self.zygote.listen(STOP_STEP_MS):
                other = self._worker_of(gone)
                if other is not None:
                    other.pid = 0
            if self.zygote.exit_status is not None:
                return
            if time.monotonic() > deadline:
                self.log.error("%s did not stop within %.0f s and is killed", worker.duty.label, STOP_MAX_S)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(worker.pid, signal.SIGKILL)
                deadline += STOP_MAX_S

    def _end_generation_of_others(self) -> None:
        """Ends the generation for processes that were started by hand, which finish their duty and exit."""
        self._positions.retire()
        ringer = Ringer(self._positions, {duty: self._runtime.bell(duty.label) for duty in Duty})
        ringer.ring()
        ringer.close()
        deadline = time.monotonic() + STOP_MAX_S
        while (taken := self._taken_duty()) is not None:
            if time.monotonic() > deadline:
                self.log.error("%s", DutyTaken(*taken))
                return
            select.select([], [], [], LOCK_STEP_S)

    def _leave(self) -> None:
        self.store.node.unlink(missing_ok=True)
        self.store.asked.unlink(missing_ok=True)
        clear_runtime(self.store, self._runtime)
        self._lock.release()
