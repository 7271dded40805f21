"""The main function of a worker process: one process, one duty; forked from the zygote or started by hand.

A port that cannot be bound is explain_bind_error here: which setting names the address, and which process has the port.
"""

import argparse
import sys
from errno import EACCES, EADDRINUSE
from logging import Logger
from pathlib import Path
from signal import set_wakeup_fd
from typing import Final

import psutil

from towline.errors import CannotListen, TowlineError
from towline.link.endpoints import Endpoint, parse
from towline.link.memory_limit import FreedMemory
from towline.link.native import address_of
from towline.places import Store
from towline.runtime.agent import run
from towline.runtime.doorbell import Doorbell
from towline.runtime.idle_sleep import IdleSleep
from towline.runtime.locks import DutyLock
from towline.runtime.ports import OF_CLIENTS
from towline.runtime.positions import Duty
from towline.runtime.process import StopFlag, check_machine, set_name
from towline.runtime.settings import Settings

from .context import Node
from .duties import builder
from .failure import write_failure
from .live_settings import LiveSettings
from .own_log import begin_log

_PORTS: Final = ("ha_listen_port", "metrics_port", "rocketmq_ha_port", *OF_CLIENTS)
_OF_A_PORT: Final = (EADDRINUSE, EACCES)  # anything else is about the host


def run_worker(duty: Duty, store_root: Path, *, log_file: Path | None) -> int:
    """Do `duty` until SIGTERM. Returns the exit status; a TowlineError is logged with its remedy and gives 1."""
    stopped = StopFlag()
    set_name(f"towline:{duty.label}")
    store = Store(store_root.resolve())
    log = begin_log(duty.label, store.root, log_file)
    try:
        check_machine()
        FreedMemory.keep()
        node = Node.of(store_root, duty)
        if duty.label in node.settings.scheduling:
            node.settings.scheduling[duty.label].apply(log)
        lock = DutyLock(node.store.duty_lock(duty.label), duty.label)
        node.line.enter(node.generation)
        bell = Doorbell(node.runtime.bell(duty.label), node.line)
        set_wakeup_fd(bell.fileno(), warn_on_full_buffer=False)  # else a signal just before a sleep waits
        agent = builder(duty)(node)
        mine = node.generation

        def is_over() -> bool:
            return stopped() or node.positions.generation != mine

        live = LiveSettings(node, agent)
        run(agent, bell, node.line, IdleSleep(node.line, address_of("zmq_poll")), is_over, live.look)
    except CannotListen as error:
        return _give_up(log, store, duty, explain_bind_error(error, node.settings))
    except TowlineError as error:
        return _give_up(log, store, duty, error)
    del lock
    return 0


def _give_up(log: Logger, store: Store, duty: Duty, error: TowlineError) -> int:
    log.error("%s", error)
    write_failure(store, duty, error)
    return 1


def main(label: str) -> None:
    """`python -m <folder> --store DIR`: the process by hand, for a node whose supervisor leaves the duty out."""
    parser = argparse.ArgumentParser(description=f"the {label} process of a running node, started by hand")
    parser.add_argument("--store", type=Path, required=True, help="store directory of a node that runs without it")
    store: Path = parser.parse_args().store
    sys.exit(run_worker(Duty.named(label), store, log_file=None))


def explain_bind_error(error: CannotListen, settings: Settings) -> CannotListen:
    """The same error with the setting and the process that an operator needs to correct it."""
    endpoint = parse(error.endpoint)
    holder = holder_of(endpoint.port) if error.number == EADDRINUSE and endpoint.port else ""
    return CannotListen(error.endpoint, error.number, error.reason, holder, _setting_of(endpoint, error, settings))


def _setting_of(endpoint: Endpoint, error: CannotListen, settings: Settings) -> str:
    if endpoint.scheme != "tcp":
        return ""
    if error.number not in _OF_A_PORT:
        of_others = {settings.metrics_port: "metrics_address", settings.rocketmq_ha_port: "rocketmq_ha_address"}
        return of_others.get(endpoint.port, "listen_host")
    return next((key for key in _PORTS if getattr(settings, key) == endpoint.port), "")


def holder_of(port: int) -> str:
    """The process that listens there; "" where the system hides it, as for other users' processes."""
    try:
        found = psutil.net_connections("tcp")
        pids = {one.pid for one in found if one.status == psutil.CONN_LISTEN and one.laddr.port == port}
        return ", ".join(f"process {pid} ({psutil.Process(pid).name()})" for pid in sorted(pids - {None}))
    except psutil.Error:
        return ""
