"""What happens to each record of the log, in order: CalcBitMap, ConsumeQueue, Index, then those that a setting names.

A dispatcher is a class with a name and `put`. To add one, write a function that takes the Node and returns it, where
the node's Python finds it, and name it in the setting `dispatchers`: `package.module:function`, several with commas.
"""

from importlib import import_module
from typing import Protocol

from towline.errors import TowlineError
from towline.log.commitlog.dispatch import Batch
from towline.log.errors import NoDispatcher
from towline.node.process.context import Node
from towline.runtime.settings import Settings


class Dispatcher(Protocol):
    """One of those that see every record once it is confirmed, batch by batch and in the order of the log.

    After a kill batches come again from DISPATCHED on, cut otherwise: what was done with a record before must be
    harmless to do again. What `put` raises ends the process, and the batch comes again when it is started anew.
    """

    name: str

    def put(self, batch: Batch) -> None:
        """Rows, keys and the bytes of a batch; they are valid until it returns. No loop over single rows, please."""


def added(settings: Settings, node: Node) -> list[Dispatcher]:
    """Those that the setting names. Raises NoDispatcher."""
    return [_made(place.strip(), node) for place in settings.dispatchers.split(",") if place.strip()]


def _made(place: str, node: Node) -> Dispatcher:
    module, _, function = place.partition(":")
    try:
        made: Dispatcher = getattr(import_module(module), function)(node)
    except TowlineError:
        raise
    except (ImportError, AttributeError, ValueError, TypeError) as error:
        raise NoDispatcher(place, str(error)) from error
    return made
