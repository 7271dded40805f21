"""`towline pipeline` as its user meets it."""

import json
import sys
from pathlib import Path

import pytest

from tests.spark.stores import MadeStore
from towline.cli.main import run
from towline.pipeline import registry
from towline.pipeline.arguments import main
from towline.pipeline.options import facts_of

from .test_lag import with_offsets

COMMON = {"master", "conf", "report", "show", "json", "help"}
DEADLINE_S = 60.0


@pytest.fixture
def made(tmp_path: Path) -> MadeStore:
    return with_offsets(MadeStore(tmp_path / "store").whole(300))


def test_without_typer_the_same_job_prints_its_document(made, capfd):
    assert main(["lag", "--store", str(made.root), "--group", "late", "--fail-above", "0"]) == 1
    document = json.loads(capfd.readouterr().out)
    assert {row["group"] for row in document["rows"]} == {"late"}
    assert main(["lag", "--store", str(made.root / "none")]) == 1
    assert json.loads(capfd.readouterr().out)["error"] == "NotAStore"
    assert main(["lagg"]) == 1
    assert "the nearest is 'lag'" in capfd.readouterr().err
    assert main([]) == 2


@pytest.mark.parametrize("name", registry.JOBS)
def test_no_option_of_a_job_has_the_name_of_one_that_all_have(name):
    assert not COMMON & {one.name for one in facts_of(registry.load(name).options)}


def test_a_missing_package_is_named_with_the_extra_that_brings_it(made, capfd, monkeypatch):
    monkeypatch.setitem(sys.modules, "towline.pipeline.session", None)
    assert run(["pipeline", "stats", "--store", str(made.root), "--json"]) == 1
    assert "pip install 'towline[spark]'" in json.loads(capfd.readouterr().out)["sentence"]
    monkeypatch.setitem(sys.modules, "towline.pipeline.report", None)
    report = str(made.root / "report.html")
    assert run(["pipeline", "lag", "--store", str(made.root), "--json", "--report", report]) == 1
    assert "pip install 'towline[drill]'" in json.loads(capfd.readouterr().out)["sentence"]
