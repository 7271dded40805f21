"""A power cut takes every name and entry that no sync has kept: nothing that was promised stood on one of them.

`tests/soak/test_power_cut.py` does the same at many more syncs.
"""

import pytest

from tests.faults.noting import note
from tests.processes.name_cuts import NameCuts
from tests.processes.nodes import ended
from tests.processes.tracing import strace


@pytest.fixture
def cuts(tmp_path):
    made = NameCuts(tmp_path)
    ending = ended(made.node)
    next(ending)
    yield made
    next(ending, None)


@strace
@pytest.mark.timeout(300)
def test_names_that_were_not_synced_cost_nothing_that_was_promised(cuts):
    kinds = ((1, cuts.a_roll), (2, cuts.a_new_queue), (3, cuts.a_unit_file))
    for at, wanted in kinds:
        cuts.cut(at, wanted)
    note(len(kinds), acknowledged=cuts.finish())
