"""Which module does which duty, by name: the library may not import a process folder, it hands over."""

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Final, cast

from towline.runtime.positions import Duty

if TYPE_CHECKING:  # the supervisor names duties before it imports what it takes to do them
    from towline.runtime.agent import Agent

    from .context import Node

MODULES: Final = {
    Duty.PUT: "master.put",
    Duty.RECEIVE: "ha.receive",
    Duty.ALLOCATE: "allocate.service",
    Duty.FLUSH: "flush.service",
    Duty.REPUT: "reput.service",
    Duty.SERVE: "serve.service",
    Duty.SEND: "ha.send",
    Duty.FOLLOW: "slave.follow",
    Duty.SCHEDULE: "master.schedule",
}

# In the order of starting, stopped in the order of `STOP_ORDER`. First those that clients wait for: flush and allocate
# may begin with much work, and take the CPUs for it.
MASTER: Final = (Duty.PUT, Duty.SERVE, Duty.SEND, Duty.REPUT, Duty.FLUSH, Duty.ALLOCATE, Duty.SCHEDULE)
SLAVE: Final = (Duty.RECEIVE, Duty.SERVE, Duty.FOLLOW, Duty.REPUT, Duty.FLUSH, Duty.ALLOCATE)
ROLES: Final = {"master": MASTER, "slave": SLAVE}

# Who puts, then writers; then reput, which needs flush and the ha sender to confirm what it still has to dispatch.
STOP_ORDER: Final = (
    Duty.SCHEDULE,
    Duty.PUT,
    Duty.RECEIVE,
    Duty.FOLLOW,
    Duty.REPUT,
    Duty.SERVE,
    Duty.SEND,
    Duty.FLUSH,
    Duty.ALLOCATE,
)
assert set(STOP_ORDER) == set(MODULES) == set(MASTER) | set(SLAVE)


def builder(duty: Duty) -> "Callable[[Node], Agent]":
    """`build(node) -> Agent` of the duty's module; importing it is what a zygote does before it forks."""
    return cast("Callable[[Node], Agent]", import_module(MODULES[duty]).build)
