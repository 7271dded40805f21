"""A first start on a machine: nothing is compiled yet, and that takes far longer than a start may."""

import os

import pytest

from tests.processes.nodes import TestNode
from towline.node.supervise.launch import Launched, spawn_node
from towline.places import Store

SOON_S = 10.0  # a small part of what the compiler takes


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_nodes_that_start_first_compile_once_outside_of_any_time_limit(tmp_path):
    cache = tmp_path / "cache"
    environment = os.environ | {"NUMBA_CACHE_DIR": str(cache)}
    told: list[list[tuple[int, int]]] = [[], []]
    launched: list[Launched] = []
    try:
        for name in ("a", "b"):
            flags = TestNode("master", tmp_path / name).flags
            launched.append(spawn_node("master", tmp_path / name, flags, tied=True, environment=environment))
        for node, said in zip(launched, told, strict=True):
            node.await_ready(SOON_S, lambda *place, said=said: said.append(place))
    finally:
        stopped = [node.end() for node in launched]
    assert stopped == [True, True]
    waited, compiled = sorted(told, key=len)
    total = compiled[0][1]
    assert compiled == [(done, total) for done in range(total + 1)]
    assert waited == [(0, total)], "one of them compiles, the other waits for it"
    assert len(list(cache.glob("kernels-*/machine-*"))) == 1
    for name in ("a", "b"):
        assert "compiling" not in Store(tmp_path / name).node_log.read_text()
