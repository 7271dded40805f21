"""What only a later version knows is refused by its name, or passed over and kept."""

import json
from pathlib import Path

import pytest

from .kept_stores import OPEN, names, unpack
from .versions import PRESENT, Version


def check_settings(version: Version, tmp_path: Path) -> None:
    """A start is refused with the setting's name; without it the node serves."""
    kept = unpack(names()[-1], tmp_path)
    (kept.store / "kept.toml").write_text("a_setting_of_tomorrow = 7\n")
    refused = version.towline("master", "start", "--store", str(kept.store), "--json")
    assert refused.returncode != 0
    assert "UnknownSetting" in refused.stdout + refused.stderr
    assert "a_setting_of_tomorrow" in refused.stdout + refused.stderr
    (kept.store / "kept.toml").unlink()
    with version.serving(kept.store) as endpoint:
        assert version.program("read", endpoint, str(OPEN))["topics"]


def check_files(version: Version, tmp_path: Path) -> None:
    """A file that only tomorrow's version knows is left where it is."""
    kept = unpack(names()[-1], tmp_path)
    file = kept.store / "config/tomorrow.json"
    file.write_text(json.dumps({"any": 1}))
    with version.serving(kept.store) as endpoint:
        assert version.program("read", endpoint, str(OPEN))["topics"]
    assert json.loads(file.read_text()) == {"any": 1}


@pytest.mark.parametrize("check", [check_settings, check_files])
def test_of_a_later_version_in_this_one(tmp_path: Path, check):
    check(PRESENT, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("check", [check_settings, check_files])
def test_of_a_later_version_in_the_version_before(before: Version, tmp_path: Path, check):
    check(before, tmp_path)
