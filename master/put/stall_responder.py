"""Put's front: a thread that never touches the mapping, and answers while the main thread is stuck in it.

A page that has to come from a slow disk holds the thread that writes it, and with it everybody who waits. The main
thread holds a lock, except inside an append; there it has published the begin of its turn. The front looks up now and
then. When it finds a turn that lasts too long, it takes the lock and with it the socket, stamps what arrives, answers
questions, and from `os_page_cache_busy_time_out_mills` on refuses every put that is not in the log yet (spec 5.1, 6).

ZeroMQ allows a socket to move between threads behind a full fence, which the lock is. Kernels, populate and system
calls run without the interpreter's lock. A page fault of an interpreted store would hold both threads: there is none.
"""

import threading
import time
from typing import Final

from towline.link.poller import Poller
from towline.link.server import Server
from towline.runtime.positions import DutyLine, State

from .admission import page_cache_busy
from .request_queue import Intake

LOOK_MS: Final = 100
REST_MS: Final = 1000  # without a turn: then the front sleeps until the next one begins
STEP_MS: Final = 5  # how long the main thread may have to wait for the socket when its turn is over
_MS: Final = 1_000_000  # ns
_S: Final = 1000  # ms


class Front:
    """`begin` in the main thread; from then on it holds the socket outside of `enter` ... `leave`."""

    def __init__(self, line: DutyLine, *, busy_ms: int, waited_ms: int) -> None:
        self._line = line
        self._busy_ms = busy_ms
        # Early enough that what arrives during a stall is stamped before it has waited too long.
        self._look_ms = max(STEP_MS, min(LOOK_MS, busy_ms, waited_ms // 2))
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._turns = 0
        self._rests = False
        self._woken = threading.Event()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="front", daemon=True)

    def begin(self, server: Server, intake: Intake) -> None:
        self._intake = intake
        self._poller = Poller(server)
        self._lock.acquire()
        self._thread.start()

    def enter(self, now_ns: int) -> None:
        """The main thread goes into the mapping, at CLOCK_MONOTONIC `now_ns`."""
        self._line.turn_began_ns = now_ns
        self._turns += 1
        if self._rests:  # read after the count was stored, as the front reads the count after it says that it rests
            self._woken.set()
        self._lock.release()

    def leave(self) -> None:
        """It is back. Raises what the front failed with."""
        self._line.turn_began_ns = 0
        self._lock.acquire()
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        """Before the server is closed."""
        self._closed.set()
        self._woken.set()
        if self._thread.is_alive():
            self._thread.join()

    # --- the thread

    def _run(self) -> None:
        pause_ms = self._look_ms
        seen = looks = 0
        while not self._closed.wait(pause_ms / _S):
            looks = 0 if seen != self._turns else looks + 1
            seen = self._turns
            if looks * self._look_ms >= REST_MS:
                self._rest(seen)
                looks = 0
            began = self._line.turn_began_ns
            lasted_ms = _since_ms(began)
            if began and lasted_ms >= self._look_ms:
                self._stand_in(began)
            # A turn that is under way now may become a long one: look again when it does.
            pause_ms = self._look_ms - lasted_ms if began and lasted_ms < self._look_ms else self._look_ms

    def _rest(self, seen: int) -> None:
        """Until a turn begins that was not seen yet: a node to which nothing is put wakes nobody for it."""
        self._rests = True
        if self._turns == seen and not self._closed.is_set():
            self._woken.wait()
        self._rests = False
        self._woken.clear()

    def _stand_in(self, began: int) -> None:
        """Until the turn that began then is over."""
        if not self._lock.acquire(blocking=False):
            return  # it is over
        state = self._line.state
        try:
            while self._line.turn_began_ns == began and not self._closed.is_set():
                self._line.say(State.KERNEL)
                self._intake.arrivals.recall()
                self._intake.take()
                self._refuse(_since_ms(began))
                self._intake.answer()
                if self._intake.full:
                    self._closed.wait(STEP_MS / _S)  # the socket stays readable: a poll would not wait
                else:
                    self._poller.poll(STEP_MS)
        except Exception as error:  # the main thread raises it: a front that is gone must not go unnoticed
            self._error = error
        finally:
            self._line.say(state)
            self._lock.release()

    def _refuse(self, lasted_ms: int) -> None:
        refusal = page_cache_busy(lasted_ms, self._busy_ms)
        while refusal is not None and len(self._intake):
            arrived = self._intake.next()
            if arrived is not None:
                self._intake.refuse(arrived, refusal)
                self._intake.done(arrived)
        self._intake.rings.wake()


def _since_ms(began_ns: int) -> int:
    return (time.monotonic_ns() - began_ns) // _MS
