"""Says remedies as they are carried out in a cluster file: nobody passes options to the nodes of `cluster up`."""

import re
from pathlib import Path
from typing import Final

from towline.cluster.derived import FOLLOWS

from .remedies import completed

_SET: Final = re.compile(r"`--set (\w+)=([^`]*)`(, or in the settings file)?")
_STORE: Final = re.compile(r"--store(?=[);,]|$)")  # as an option that may be given, and not one of a command


def in_cluster_file(remedy: str, file: Path, store: Path) -> str:
    """The remedy for a node of the file that has this store, with commands as they are typed."""

    def written(option: re.Match[str]) -> str:
        key, value = option[1], option[2]
        return f"{FOLLOWS[key]} in {file}" if key in FOLLOWS else f"`{key} = {value}` in the settings of {file}"

    said = _STORE.sub(f"`store` of the node in {file}", _SET.sub(written, remedy))
    return completed(said, ("--store", str(store)))
