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
    """Receives every record once it is confirmed, in batches and in the order of the log.

    After a kill batches are sent again from DISPATCHED on, with other boundaries: repeating what was done with a record
    must be harmless. An error from `put` ends the process, and the batch is sent again after its restart.
    """

    name: str

    def put(self, batch: Batch) -> None:
        """Handles the rows, keys and bytes of a batch, which are valid until it returns. Please do not loop over single
        rows."""


def configured_dispatchers(settings: Settings, node: Node) -> list[Dispatcher]:
    """The dispatchers of the setting. Raises NoDispatcher."""
    return [_load(place.strip(), node) for place in settings.dispatchers.split(",") if place.strip()]


def _load(place: str, node: Node) -> Dispatcher:
    module, _, function = place.partition(":")
    try:
        made: Dispatcher = getattr(import_module(module), function)(node)
    except TowlineError:
        raise
    except (ImportError, AttributeError, ValueError, TypeError) as error:
        raise NoDispatcher(place, str(error)) from error
    return made
