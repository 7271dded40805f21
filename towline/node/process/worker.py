"""The main function of a piece: one process, one duty; forked from the zygote or started by hand."""

import argparse
import sys
from logging import Logger
from pathlib import Path
from signal import set_wakeup_fd

from towline.errors import CannotListen, TowlineError
from towline.link.memory_limit import FreedMemory
from towline.link.native import address_of
from towline.places import Store
from towline.runtime.agent import run
from towline.runtime.doorbell import Doorbell
from towline.runtime.locks import DutyLock
from towline.runtime.logging import configure
from towline.runtime.machine import check_machine
from towline.runtime.positions import Duty
from towline.runtime.process import StopFlag, set_name
from towline.runtime.resting import Rest

from .context import Node
from .duties import builder
from .failure import write_failure
from .listening import explained


def run_piece(duty: Duty, store_root: Path, *, log_file: Path | None) -> int:
    """Do `duty` until SIGTERM. Returns the exit status; a TowlineError is logged with its remedy and gives 1."""
    stopped = StopFlag()
    set_name(f"towline:{duty.label}")
    log = configure(duty.label, log_file)
    store = Store(store_root.resolve())
    try:
        check_machine()
        FreedMemory.keep()
        node = Node.of(store_root, duty)
        lock = DutyLock(node.store.duty_lock(duty.label), duty.label)
        node.line.enter(node.generation)
        bell = Doorbell(node.runtime.bell(duty.label), node.line)
        set_wakeup_fd(bell.fileno(), warn_on_full_buffer=False)  # else a signal just before a sleep waits
        agent = builder(duty)(node)
        mine = node.generation

        def leave() -> bool:
            return stopped() or node.positions.generation != mine

        run(agent, bell, node.line, Rest(node.line, address_of("zmq_poll")), leave)
    except CannotListen as error:
        return _give_up(log, store, duty, explained(error, node.settings))
    except TowlineError as error:
        return _give_up(log, store, duty, error)
    del lock
    return 0


def _give_up(log: Logger, store: Store, duty: Duty, error: TowlineError) -> int:
    log.error("%s", error)
    write_failure(store, duty, error)
    return 1


def main(label: str) -> None:
    """`python -m <folder> --store DIR`: the piece alone, for a node whose supervisor leaves the duty out."""
    parser = argparse.ArgumentParser(description=f"the {label} process of a running node, started by hand")
    parser.add_argument("--store", type=Path, required=True, help="store directory of a node that runs without it")
    store: Path = parser.parse_args().store
    sys.exit(run_piece(Duty.named(label), store, log_file=None))
