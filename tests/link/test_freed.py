"""A process that takes large frames uses its memory again, and gives it back when it is at rest."""

import json
import subprocess
import sys

import pytest

from towline.limits import MIB, PAGE
from towline.link import poller as poller_module
from towline.link.memory_limit import FreedMemory
from towline.link.poller import Poller
from towline.start import home

from .taking import AT_ONCE, FRAMES


def taken(how: str) -> dict[str, int]:
    command = [sys.executable, "-m", "tests.link.taking", how]
    facts: dict[str, int] = json.loads(subprocess.run(command, cwd=home(), check=True, capture_output=True).stdout)
    return facts


def test_frames_cost_no_new_pages_where_freed_memory_is_kept() -> None:
    pages = FRAMES * MIB // PAGE
    assert taken("keeps")["faults"] < pages // 8 < taken("does not")["faults"]


def test_a_process_at_rest_gives_back_what_it_kept() -> None:
    keeps = taken("keeps")
    assert keeps["kept"] - keeps["left"] > AT_ONCE * MIB // 2


def test_only_who_was_busy_and_is_no_more_is_at_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    rests: list[int] = []
    monkeypatch.setattr(FreedMemory, "release", lambda: rests.append(1))
    monkeypatch.setattr(poller_module, "REST_MS", 2)
    monkeypatch.setattr(poller_module, "BUSY", 2)
    poller = Poller()
    found: list[list[tuple[object, int]]] = []
    monkeypatch.setattr(poller, "_poller", type("Found", (), {"poll": lambda _, __: found.pop(0) if found else []})())

    def sleeps(times: int) -> None:
        for _ in range(times):
            poller.poll(1)

    sleeps(4)
    assert not rests
    found += [[("a", 1)]] * 3
    sleeps(3 + 2)
    assert not rests, "it was busy until now"
    found += [[("a", 1)]]
    sleeps(1 + 2)
    assert len(rests) == 1
    sleeps(6)
    assert len(rests) == 1
