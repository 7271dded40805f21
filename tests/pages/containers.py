"""Dockerfile and compose.yaml as this repository writes them, and where their steps are followed without Docker."""

import json
import re
from dataclasses import dataclass
from typing import Any, Final

import yaml

from tests.repo.trees import ROOT

DOCKERFILE: Final = ROOT / "Dockerfile"
COMPOSE: Final = ROOT / "compose.yaml"
_STEP: Final = re.compile(r"^([A-Z]+) (.+)$")


@dataclass(frozen=True)
class Step:
    """An instruction of a Dockerfile with its words; lines that go on are joined."""

    name: str
    words: str

    @property
    def list(self) -> list[str]:
        """Of one that is written as JSON."""
        found: list[str] = json.loads(self.words)
        return found


def steps() -> list[Step]:
    text = DOCKERFILE.read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    found = [_STEP.fullmatch(line) for line in lines]
    assert all(found), lines
    return [Step(each[1], each[2]) for each in found if each]


def named(name: str) -> list[Step]:
    return [step for step in steps() if step.name == name]


def runs() -> list[tuple[str, Step]]:
    """Each RUN with the directory it is typed in."""
    found, where = [], "/"
    for step in steps():
        if step.name == "FROM":
            where = "/"
        elif step.name == "WORKDIR":
            where = step.words
        elif step.name == "RUN":
            found.append((where, step))
    return found


def services() -> dict[str, dict[str, Any]]:
    """Of compose.yaml, with what they share put in."""
    found: dict[str, dict[str, Any]] = yaml.safe_load(COMPOSE.read_text(encoding="utf-8"))["services"]
    return found
