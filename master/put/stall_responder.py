"""A thread of put that answers while the main thread is stuck in a page fault of the mapping.

A page that has to come from a slow disk blocks the thread that writes it, and with it every waiting client. The main
thread holds a lock except inside an append, where it has published when the append began. The stall responder checks
that every CHECK_MS. When an append lasts too long it takes the lock and with it the socket, stamps what arrives,
answers questions, and from `os_page_cache_busy_time_out_mills` on refuses every put that is not in the log yet (spec
5.1, 6).

ZeroMQ allows a socket to move between threads behind a full fence, which the lock is. Kernels, populate and system
calls run without the GIL. A page fault in interpreted code would block both threads: there is none.
"""

import threading
import time
from typing import Final

from towline.link.poller import Poller
from towline.link.server import Server
from towline.runtime.positions import DutyLine, State

from .admission import page_cache_busy
from .request_queue import RequestQueue

CHECK_MS: Final = 100
IDLE_MS: Final = 1000  # without an append: then the thread sleeps until the next one
STEP_MS: Final = 5  # how long the main thread may have to wait for the socket when its turn is over
_MS: Final = 1_000_000  # ns
_S: Final = 1000  # ms


class StallResponder:
    """Serves the socket while the main thread is between `enter` and `exit` for too long.

    The main thread calls `begin`; from then on it holds the socket outside of `enter` ... `exit`.
    """

    def __init__(self, line: DutyLine, *, busy_ms: int, waited_ms: int) -> None:
        self._duty_line = line
        self.adjust(busy_ms=busy_ms, waited_ms=waited_ms)
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._turns = 0
        self._idles = False
        self._woken = threading.Event()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="stall-responder", daemon=True)

    def adjust(self, *, busy_ms: int, waited_ms: int) -> None:
        """Other times from now on."""
        self._busy_ms = busy_ms
        # Early enough that what arrives during a stall is stamped before it has waited too long.
        self._check_ms = max(STEP_MS, min(CHECK_MS, busy_ms, waited_ms // 2))

    def begin(self, server: Server, request_queue: RequestQueue) -> None:
        self._requests = request_queue
        self._poller = Poller(server)
        self._lock.acquire()
        self._thread.start()

    def enter(self, now_ns: int) -> None:
        """Releases the lock: the main thread begins to use the mapping, at CLOCK_MONOTONIC `now_ns`."""
        self._duty_line.turn_began_ns = now_ns
        self._turns += 1
        if self._idles:  # read after the count was stored, as the thread reads the count after it sets `_idles`
            self._woken.set()
        self._lock.release()

    def exit(self) -> None:
        """Takes the lock back. Raises the error that ended the stall responder."""
        self._duty_line.turn_began_ns = 0
        self._lock.acquire()
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        """Ends the thread; to be called before the server is closed."""
        self._closed.set()
        self._woken.set()
        if self._thread.is_alive():
            self._thread.join()

    # --- the thread

    def _run(self) -> None:
        pause_ms = self._check_ms
        seen = checks = 0
        while not self._closed.wait(pause_ms / _S):
            checks = 0 if seen != self._turns else checks + 1
            seen = self._turns
            if checks * self._check_ms >= IDLE_MS:
                self._idle(seen)
                checks = 0
            began = self._duty_line.turn_began_ns
            lasted_ms = _since_ms(began)
            if began and lasted_ms >= self._check_ms:
                self._respond(began)
            # A turn that is under way now may become a long one: look again when it does.
            pause_ms = self._check_ms - lasted_ms if began and lasted_ms < self._check_ms else self._check_ms

    def _idle(self, seen: int) -> None:
        """Sleeps until another append begins: an idle node is not woken for this check."""
        self._idles = True
        if self._turns == seen and not self._closed.is_set():
            self._woken.wait()
        self._idles = False
        self._woken.clear()

    def _respond(self, began: int) -> None:
        """Serves the socket until the append that began at `began` is over."""
        if not self._lock.acquire(blocking=False):
            return  # it is over
        state = self._duty_line.state
        try:
            while self._duty_line.turn_began_ns == began and not self._closed.is_set():
                self._duty_line.say(State.KERNEL)
                self._requests.socket_table.recall()
                self._requests.receive()
                self._refuse(_since_ms(began))
                self._requests.answer()
                if self._requests.full:
                    self._closed.wait(STEP_MS / _S)  # the socket stays readable: a poll would not wait
                else:
                    self._poller.poll(STEP_MS)
        except Exception as error:  # the main thread raises it: an ended thread must not go unnoticed
            self._error = error
        finally:
            self._duty_line.say(state)
            self._lock.release()

    def _refuse(self, lasted_ms: int) -> None:
        refusal = page_cache_busy(lasted_ms, self._busy_ms)
        if refusal is None:
            return
        while len(self._requests):
            self._requests.refuse_next(refusal)
        self._requests.refuse_rings(refusal)


def _since_ms(began_ns: int) -> int:
    return (time.monotonic_ns() - began_ns) // _MS
