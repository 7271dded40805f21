"""Which tests share a worker of `pytest -n`: those of one file, and all that share one of the costly sessions."""

from typing import Final

import pytest
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

SESSIONS: Final = {  # the longest first: the rest fills the gap at the end
    "spark": ("tests/session/",),
    "interop": ("tests/interop/",),
    "drivers": ("tests/drivers/",),
}


def scope_of(nodeid: str) -> str:
    """`tests/session/test_docs.py::test_x` -> `spark`; `tests/log/test_y.py::test_x` -> `tests/log/test_y.py`."""
    for session, places in SESSIONS.items():
        if nodeid.startswith(places):
            return session
    return nodeid.partition("::")[0]


def sessions_first(items: list[pytest.Item]) -> None:
    order = list(SESSIONS)
    items.sort(key=lambda item: order.index(scope) if (scope := scope_of(item.nodeid)) in order else len(order))


class Spreading(LoadScopeScheduling):
    def _split_scope(self, nodeid: str) -> str:
        return scope_of(nodeid)

    def remove_node(self, node: WorkerController) -> str | None:
        """What a dead worker had done whole is no work for others.

        xdist puts all that it had back into the queue. A worker that gets such a file has nothing new to run, keeps its
        last test back until it knows the next one, and so waits for ever.
        """
        work = self.assigned_work[node]
        for scope in [scope for scope, unit in work.items() if all(unit.values())]:
            del work[scope]
        return super().remove_node(node)
