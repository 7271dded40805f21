"""What a test says of the faults that it injected: a line of JSON in the file that FAULTS_NOTED names, if it is set.

Of a test that says nothing the runner counts one fault for each case that passed.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

VARIABLE: Final = "FAULTS_NOTED"  # no TOWLINE_...: nodes take those for settings
_CURRENT: Final = "PYTEST_CURRENT_TEST"  # set by pytest: "tests/x.py::test_y[case] (call)"


def note(
    injected: int,
    *,
    acknowledged: int | None = None,
    lost: int = 0,
    given_up: int = 0,
    doubled: int = 0,
    wrong_bytes: int | None = None,
    outage_s: float | None = None,
    seed: int | None = None,
) -> None:
    """At the end of a test, or where its counts are known.

    `given_up`: acknowledged and gone, within what the settings say may go. `wrong_bytes`: bodies that are not what was
    sent. `outage_s`: the longest time without the service. What is None is not counted, nor what is lost or doubled
    where nobody counts acknowledgements.
    """
    if (path := os.environ.get(VARIABLE)) is None:
        return
    facts: dict[str, Any] = {"injected": injected, "outage_s": outage_s, "seed": seed, "wrong_bytes": wrong_bytes}
    if acknowledged is not None:
        facts |= {"acknowledged": acknowledged, "lost": lost, "given_up": given_up, "doubled": doubled}
        facts["wrong_bytes"] = wrong_bytes or 0
    with Path(path).open("a", encoding="utf-8") as file:
        file.write(json.dumps({"test": os.environ[_CURRENT].rpartition(" ")[0], **facts}) + "\n")


def note_drill(injected: int, result: Mapping[str, Any]) -> None:
    """What the judge of a drill counted."""
    judged = result["verdict"]
    note(
        injected,
        **{name: judged[name] for name in ("acknowledged", "lost", "doubled")},
        wrong_bytes=judged["changed"],
        outage_s=judged["without_service_s"],
        seed=result["seed"],
    )
