"""`python -m peers.client SYSTEM` is a client process in Python. Its orders are those of `client_process.py`."""

import json
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from importlib import import_module
from typing import Final, Protocol, cast

import numpy as np
import numpy.typing as npt

from towline.errors import TowlineError

from .client_process import Client
from .plan import Answer, Kind, Work

Go = Callable[[], None]  # is called when all is prepared; the clock starts when it returns


class Program(Protocol):
    """What a client process does for one system."""

    def client(self) -> list[str]: ...

    def run(self, address: str, work: Work, go: Go) -> Answer:
        """Any work but TAIL. Raises BenchFailed."""

    def listen(self, address: str, work: Work, go: Go) -> npt.NDArray[np.int64]:
        """CLOCK_MONOTONIC ns at which each of the messages came that are put from now on, `work.expected` of them."""


# Modules of this package that have what a Program has. Only the one that is asked for is imported: starts are many.
PROGRAMS: Final = {
    "towline": "towlines",
    "towline-ring": "rings",
    "towline-tcp": "tcps",
    "towline-remoting": "remotings",
    "nats": "nats",
    "redis": "redis",
    "towline-python": "python_api",
    "kafka-python": "python_kafka",
    "nats-python": "python_nats",
    "redis-python": "python_redis",
}


def main() -> None:
    program = cast(Program, import_module(f"{__package__}.{PROGRAMS[sys.argv[1]]}"))
    while line := sys.stdin.readline():
        order = json.loads(line)
        address, work = order["address"], Work.read(order["work"])
        try:
            found = _tail(program, address, work) if work.kind is Kind.TAIL else program.run(address, work, _go)
            _say(asdict(found))
        except (TowlineError, OSError, ValueError) as error:
            _say({"error": f"{type(error).__name__}: {error}"})


def _tail(program: Program, address: str, work: Work) -> Answer:
    """A process of its own puts, this one listens: messages come in the order they were due."""
    with Client(program.client()) as producer:
        producer.prepare(address, replace(work, kind=Kind.RATE))
        producer.await_ready()

        def go() -> None:
            _go()
            producer.go()

        arrived = program.listen(address, work, go)
        began = producer.answer()["began_ns"]
    due = began + np.arange(work.expected) * (1e9 / work.rate)
    seconds = float(arrived[-1] - began) / 1e9
    return Answer.of(work.expected, seconds, (arrived - due) / 1e3, (arrived - began) / 1e9, began)


def _go() -> None:
    _say("ready")
    if not sys.stdin.readline():
        sys.exit(0)


def _say(value: object) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
