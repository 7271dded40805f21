"""Every target, and where it stands."""

from importlib import import_module
from typing import Final

from .target import Target

MODULES: Final = (
    "records",
    "files",
    "state",
    "wire",
    "remoting",
    "filters",
    "kafka",
    "kernels",
)
_PACKAGE: Final = "tests.fuzz.targets"


def every_target() -> dict[str, str]:
    """Module by name of each target."""
    return {name: module for module in map(f"{_PACKAGE}.{{}}".format, MODULES) for name in targets_in(module)}


def targets_in(module: str) -> dict[str, Target]:
    """Those that a module declares, by their names."""
    declared: tuple[Target, ...] = import_module(module).TARGETS
    found = {target.name: target for target in declared}
    assert len(found) == len(declared), f"{module} names a target twice"
    return found


def target_of(module: str, name: str) -> Target:
    return targets_in(module)[name]
