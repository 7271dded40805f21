"""A process of its own that takes frames of a megabyte; says on standard output, as JSON, what that cost it."""

import json
import resource
import sys

import zmq

from towline.limits import MIB
from towline.link import poller as poller_module
from towline.link.context import Context, close_context, new_context
from towline.link.memory_limit import FreedMemory, anonymous_bytes
from towline.link.poller import Poller

FRAMES, AT_ONCE = 128, 16


def faults() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def take(context: Context, frames: int) -> None:
    with context.socket(zmq.PULL) as pull, context.socket(zmq.PUSH) as push:
        push.connect(f"tcp://127.0.0.1:{pull.bind_to_random_port('tcp://127.0.0.1')}")
        frame = zmq.Frame(bytes(MIB), copy=False)
        for _ in range(frames // AT_ONCE):
            for _ in range(AT_ONCE):
                push.send(frame)
            held = [pull.recv(copy=False) for _ in range(AT_ONCE)]
            held.clear()


def main() -> None:
    if sys.argv[1] == "keeps":
        FreedMemory.keep()
    poller_module.REST_MS = 10  # type: ignore[misc]
    context = new_context()
    take(context, 2 * AT_ONCE)
    before = faults()
    take(context, FRAMES)
    facts = {"faults": faults() - before, "kept": anonymous_bytes()}
    poller = Poller()
    poller.busy = True
    poller.poll(10)
    facts["left"] = anonymous_bytes()
    close_context(context)
    sys.stdout.write(json.dumps(facts))


if __name__ == "__main__":
    main()
