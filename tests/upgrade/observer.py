"""Tells what nodes of its own version do, whose positions in memory no other version reads.

Reads directories of stores from standard input, one a line, and answers each with a line of JSON: null for a node that
does not run, or is between two generations.
"""

import dataclasses
import json
import sys
from pathlib import Path

from towline.errors import TowlineError
from towline.loadtest.drill.nodes import DrillNode


def look(store):
    try:
        seen = DrillNode(0, Path(store), "master", []).observe()
    except TowlineError:
        return None
    return None if seen is None else dataclasses.asdict(seen)


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps(look(line.strip())), flush=True)
