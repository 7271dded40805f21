"""What is registered for a fork and for a program's end is called, whatever the others do."""

import subprocess
import sys

import pytest

from tests.repo.trees import ROOT
from towline.link import unclosed

COUNT = 20
PROGRAM = f"""
import os, sys
from towline.link import unclosed


class Registered:
    def __init__(self, number):
        self.number = number

    def forked(self):
        self.leave(0.0)

    def leave(self, deadline):
        if self.number % 2:
            raise RuntimeError("an odd one")
        print(self.number, flush=True)


kept = [Registered(number) for number in range({COUNT})]
"""
FORKS = "for each in kept:\n    unclosed.call_in_child(each)\nif os.fork():\n    os.wait()\n"
ENDS = "for each in kept:\n    unclosed.call_at_exit(each)\n"


@pytest.mark.parametrize("way", [FORKS, ENDS], ids=["fork", "end"])
def test_one_that_raises_keeps_no_other_from_being_called(way: str) -> None:
    words = [sys.executable, "-c", PROGRAM + way]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False, cwd=ROOT)
    assert done.returncode == 0
    assert sorted(map(int, done.stdout.split())) == list(range(0, COUNT, 2))
    assert done.stderr.count("RuntimeError: an odd one") == COUNT // 2


def test_one_that_is_registered_while_they_are_counted_is_no_harm() -> None:
    class Registered:
        def leave(self, deadline: float) -> None:
            left.append(self)

    class Counted(type(unclosed._leaving)):  # type: ignore[misc]
        def __iter__(self):
            for each in super().__iter__():
                yield each
                if len(kept) == 1:
                    kept.append(Registered())
                    self.add(kept[1])

    left: list[Registered] = []
    kept = [Registered()]
    counted = Counted(kept)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(unclosed, "_leaving", counted)
        unclosed._leave()
    assert set(left) == set(kept)
    assert len(left) == 2
