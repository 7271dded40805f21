"""The site of docs/ builds strictly, and pages for users name errors, causes, settings and commands that there are."""

import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from tests.repo.test_named_commands import NAMED, path_of, wrong
from tests.repo.trees import ROOT
from towline.errors import TowlineError
from towline.format.wire.refusals import Cause
from towline.runtime.settings_model import GROUPS

DOCS = ROOT / "docs"
WRITTEN = (  # by hand, for who looks for a word
    "coming-from-kafka",
    "coming-from-redis",
    "coming-from-rocketmq",
    "concepts",
    "docker",
    "failures",
    "files",
    "sizing",
    "start",
)
ERRORS = (  # modules that declare what failures.md names
    "towline.client.errors",
    "towline.link.keys",
    "towline.log.errors",
    "towline.pipeline.errors",
    "towline.route.errors",
    "towline.spark.errors",
)
LINE_MAX = 140
CELL = re.compile(r"^\| (`\w+`(?:, `\w+`)*) \|", re.MULTILINE)


def page(name: str) -> str:
    return (DOCS / f"{name}.md").read_text(encoding="utf-8")


def test_the_site_builds_strictly_and_has_every_page(tmp_path: Path) -> None:
    """A link that leads nowhere, an anchor that is not there and a page without a place are errors."""
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    words = [Path(sys.executable).parent / "mkdocs", "build", "--strict", "--site-dir", tmp_path / "site"]
    done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    built = {path.parent.name for path in (tmp_path / "site").glob("*/index.html")}
    assert built >= {path.stem for path in DOCS.glob("*.md")} | {"ARCHITECTURE", "CONTRIBUTING", "SECURITY", "examples"}
    home = (tmp_path / "site" / "index.html").read_text(encoding="utf-8")
    assert "A message store in Python" in home
    assert not re.findall(r'(?:src|<link[^>]*href)="https?:', home), "a reader's browser asks nobody else"


@pytest.mark.parametrize("name", WRITTEN)
def test_a_page_names_commands_that_there_are(name: str) -> None:
    text = page(name)
    named = [*NAMED.findall(text), *re.findall(r"^towline (.*?)(?: +#.*)?$", text, re.MULTILINE)]
    unknown = [f"towline {line}: {what}" for line in named if (what := wrong(line))]
    assert not unknown
    assert not [line for line in named if not path_of(line)]


@pytest.mark.parametrize("name", WRITTEN)
def test_a_page_names_settings_that_there_are(name: str) -> None:
    """Words in snake_case of code are settings, fields, or arguments of clients."""
    settings = {key for group in GROUPS for key in group.model_fields}
    known = settings | set(re.findall(r"\w+", page("client") + page("groups") + page("spark") + page("operations")))
    known |= {cause.label for cause in Cause}
    words = {word for code in re.findall(r"`([a-z]+(?:_[a-z0-9]+)+)(?: = \w+|=\w+)?`", page(name)) for word in [code]}
    assert not sorted(words - known)


@pytest.mark.parametrize("name", WRITTEN)
def test_no_line_of_a_page_is_longer_than_one_reads(name: str) -> None:
    """Rows of tables aside."""
    assert not [line for line in page(name).splitlines() if len(line) > LINE_MAX and not line.startswith("|")]


def test_every_cause_of_a_refusal_stands_with_its_remedy() -> None:
    table = page("failures").partition("<!-- causes -->")[2].partition("<!-- end of causes -->")[0]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.strip().splitlines()[2:]]
    assert [(name, remedy) for name, _, remedy in rows] == [(f"`{cause.label}`", cause.remedy) for cause in Cause]


def test_every_error_that_a_row_names_is_one() -> None:
    for module in ERRORS:
        import_module(module)
    known, ahead = set[str](), [TowlineError]
    while ahead:
        kind = ahead.pop()
        known.add(kind.__name__)
        ahead += kind.__subclasses__()
    causes = {cause.label for cause in Cause}
    below = page("failures").partition("<!-- end of ten -->")[2]
    named = {name for cell in CELL.findall(below) for name in re.findall(r"\w+", cell)} - causes
    assert len(named) > 30
    assert not sorted(named - known)
