"""A dispatcher of one's own, as the setting `dispatchers` names it: notes where each record stands that it is given."""

from pathlib import Path
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from towline.log.commitlog.dispatch import Batch
from towline.node.process.context import Node
from towline.places import Store

PLACE = "tests.processes.counting:Counted"


def counted(store: Store) -> npt.NDArray[np.int64]:
    """Log offsets, in the order in which they were given."""
    path = _path(store)
    return np.fromfile(path, dtype=np.int64) if path.exists() else np.zeros(0, dtype=np.int64)


class Counted:
    name: ClassVar[str] = "counted"

    def __init__(self, node: Node) -> None:
        self._path = _path(node.store)

    def put(self, batch: Batch) -> None:
        with self._path.open("ab") as file:
            file.write(batch.rows["phy"].astype(np.int64).tobytes())


def _path(store: Store) -> Path:
    return store.root.with_name("counted")
