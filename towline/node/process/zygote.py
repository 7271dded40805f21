"""The zygote: one thread that loads kernels and duties once, and forks the processes that the supervisor asks for.

A supervisor that has lived for hours has threads, and forking from it can deadlock (H10). The zygote never starts one:
thread counts of the numeric libraries are 1 and no ZeroMQ context exists here. Children share its pages.

Speaks JSON lines over one socket: {"fork": duty} is answered {"forked": duty, "pid": n}; {"exited": pid, "status": n}
comes when a child was reaped, {"compiling": n, "of": n} while it makes the machine code that it loads. {"follow_log":
true} is said to it when the log was moved aside.
"""

import gc
import json
import logging
import os
import select
import signal
import socket
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Final

from towline.parent import die_with_parent
from towline.runtime.log_file import follow
from towline.runtime.positions import Duty
from towline.runtime.process import set_name

from .duties import ONE_SHOTS, builder, one_shot

# Imported by `load_first` and `load_rest`, once the zygote cannot become an orphan any more.
MACHINE_CODE: Final = "towline.kernels.jit.machine_code"
KERNELS: Final = "towline.kernels.jit.load"
WORKER: Final = "towline.node.process.worker"
RECOVER: Final = "towline.node.supervise.recover"
FAILURE: Final = "towline.node.process.failure"
FIRST_S: Final = 0.2  # a duty that clients wait for does not wait for the imports of others


class Zygote:
    def __init__(self, control: socket.socket, store: Path, log_file: Path | None) -> None:
        self._control = control
        self._store = store
        self._log_file = log_file
        self._woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda signum, frame: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        self._unread = b""
        self._forked: list[str] = []
        self._poll = select.poll()
        self._poll.register(self._control, select.POLLIN)
        self._poll.register(self._woken, select.POLLIN)

    def serve(self) -> None:
        """Until the supervisor closes the socket or dies."""
        self._say({"ready": os.getpid()})
        while self.poll(None):
            pass

    def await_fork(self, label: str) -> None:
        """While recovery, if it was asked for, may end at any time: until this child is asked for too, or a moment."""
        deadline = time.monotonic() + FIRST_S
        while self._forked and label not in self._forked and (left := deadline - time.monotonic()) > 0:
            if not self.poll(int(1000 * left) + 1):
                return

    def poll(self, timeout_ms: int | None) -> bool:
        """Serves requests for `timeout_ms`. False when the supervisor closed the socket."""
        for fd, _ in self._poll.poll(timeout_ms):
            if fd == self._woken:
                os.read(self._woken, 4096)
            elif not self._read_commands():
                return False
        self._reap()
        return True

    def _read_commands(self) -> bool:
        data = self._control.recv(65_536)
        *lines, self._unread = (self._unread + data).split(b"\n")
        for asked in map(json.loads, lines):
            if "fork" in asked:
                self._fork(asked["fork"])
            elif self._log_file is not None:
                follow(self._log_file)
        return bool(data)

    def _fork(self, label: str) -> None:
        zygote = os.getpid()
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                die_with_parent(zygote)
                status = self._become(label)
            except Exception as error:
                logging.getLogger(label).exception("ends by an error that nobody expected")
                import_module(FAILURE).leave_unexpected(self._store, label, error)
            finally:
                sys.stderr.flush()
                os._exit(status)
        self._forked.append(label)
        self._say({"forked": label, "pid": pid})

    def _become(self, label: str) -> int:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        os.close(self._woken)
        self._control.close()
        gc.freeze()  # what it was forked with is shared, and no garbage; `load_rest` may not be over
        gc.enable()
        duty = Duty.named(label)
        if duty in ONE_SHOTS:
            return one_shot(duty)(self._store, self._log_file)
        return int(import_module(WORKER).run_worker(duty, self._store, log_file=self._log_file))

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self._say({"exited": pid, "status": os.waitstatus_to_exitcode(status)})

    def _say(self, fact: dict[str, object]) -> None:
        say(self._control, fact)


def say(control: socket.socket, fact: dict[str, object]) -> None:
    control.sendall(json.dumps(fact).encode() + b"\n")


def load_first(control: socket.socket) -> None:
    """What recovery needs. No collection from here on: of 130,000 objects 1,000 would go (decision 0015)."""
    gc.disable()
    import_module(MACHINE_CODE).prefer()
    import_module(KERNELS).load_all(lambda done, of: say(control, {"compiling": done, "of": of}))
    import_module(RECOVER)


def load_rest(labels: list[str], zygote: Zygote) -> None:
    """Everything else that children will need. The first of them is asked for as soon as recovery, which goes on
    meanwhile, is over.
    """
    zygote.poll(0)
    import_module(WORKER)
    for number, label in enumerate(labels):
        zygote.poll(0)
        builder(Duty.named(label))
        if not number:
            zygote.await_fork(label)
    zygote.poll(0)
    for duty in ONE_SHOTS:
        one_shot(duty)
    gc.freeze()
    gc.enable()


def main(arguments: list[str]) -> None:
    """Arguments: socket descriptor, supervisor's pid, store, log file or '-', duties."""
    control, parent, store, log_file, *labels = arguments
    die_with_parent(int(parent))  # before the imports that take long: a supervisor killed meanwhile leaves no orphan
    set_name("towline:zygote")
    connection = socket.socket(fileno=int(control))
    load_first(connection)
    zygote = Zygote(connection, Path(store), None if log_file == "-" else Path(log_file))
    load_rest(labels, zygote)
    zygote.serve()


if __name__ == "__main__":
    main(sys.argv[1:])
