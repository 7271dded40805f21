"""A role that cannot be read is not guessed: the node is a slave then, and forgets nothing that it confirmed."""

import json
from pathlib import Path

import pytest

from tests.log.sound import mend_all
from tests.log.stores import StoreMaker
from towline.format.files.epochs import number_of
from towline.log.state.role_file import load_role
from towline.node.roles.roles import wrote_as_sole_master


@pytest.mark.parametrize(
    ("before", "sole"),
    [(None, True), ("ASYNC_MASTER", True), ("SYNC_MASTER", False), ("SLAVE", False)],
    ids=["nobody knows", "it confirmed alone", "it waited for slaves", "it followed"],
)
def test_a_node_whose_role_is_lost_is_a_slave_and_what_it_confirmed_stays_so(
    maker: StoreMaker, before: str | None, sole: bool
) -> None:
    store = maker.store
    store.ha.mkdir()
    store.role.write_bytes(b"{")
    if before is not None:
        store.run.mkdir(exist_ok=True)
        store.settings.write_text(json.dumps({"broker_role": before}), encoding="utf-8")
    [step] = [step for step in mend_all(maker) if step.action == "role"]
    assert Path(step.kept).read_bytes() == b"{"
    found = load_role(store)
    assert found is not None
    assert found.role == "slave"
    own = number_of(1, 1)
    assert wrote_as_sole_master(store, 1, own) is sole
    assert not wrote_as_sole_master(store, 2, own), "another node wrote that"
