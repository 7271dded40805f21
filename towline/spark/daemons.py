"""Keeps what a worker of Spark's Python daemon has loaded out of its garbage collections."""

import gc
import sys
from typing import Final

_DAEMON: Final = "pyspark.daemon"


def keep_loaded() -> None:
    """To be called when a call has loaded what it needs: all of it stays out of the garbage collections from then on.

    The daemon collects after every call, which takes tens of ms of a core over 100,000 objects of loaded modules: four
    times for each micro-batch, in the source's and the sink's tasks, and where the sink is made and commits. Once is
    enough. In a process of another kind, such as a driver, nothing is done.
    """
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    if spec is not None and spec.name == _DAEMON and not gc.get_freeze_count():
        gc.collect()
        gc.freeze()
