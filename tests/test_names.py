"""`from towline import ...`: the names of the client, loaded when they are asked for."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import towline

SOURCE = Path(towline.__file__).read_text(encoding="utf-8")


def loaded_by(program: str) -> set[str]:
    said = subprocess.run(
        [sys.executable, "-c", f"{program}\nimport sys\nprint(*sys.modules)"],
        cwd=Path(towline.__file__).parents[1],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(said.stdout.split())


@pytest.mark.parametrize("name", towline.__all__)
def test_every_name_is_there_and_is_what_its_module_has(name):
    found = getattr(towline, name)
    assert name == "__version__" or found.__name__ == name


def test_what_an_editor_is_told_is_what_a_program_gets():
    named = re.findall(r"^    from (\S+) import (\w+) as \2$", SOURCE, re.MULTILINE)
    assert named
    assert {name: module for module, name in named} == towline._MODULES


def test_an_import_of_the_package_loads_nothing_else():
    assert not {name for name in loaded_by("import towline") if name.startswith(("towline.", "numpy", "zmq"))}


def test_a_name_loads_its_module_alone():
    assert "zmq" not in loaded_by("from towline import Message, SendResult")


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="'towline' has no attribute 'Consmer'"):
        towline.Consmer  # noqa: B018
    assert set(towline.__all__) <= set(dir(towline))
