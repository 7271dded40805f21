"""The page of metrics, the dashboard and the alerts name what a node exports; `test_metrics` asks a node for it."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.repo.trees import ROOT
from towline.metrics.declared import DECLARED, HISTOGRAM
from towline.metrics.metrics_doc import render

PAGE = ROOT / "docs" / "metrics.md"
DASHBOARD = ROOT / "docs" / "grafana" / "towline.json"
ALERTS = ROOT / "docs" / "grafana" / "alerts.yaml"
NAME = re.compile(r"\b(?:towline|rocketmq)_\w+")
OF_A_HISTOGRAM = ("_bucket", "_sum", "_count")


def exported() -> set[str]:
    """Names of samples."""
    plain = {name for name, each in DECLARED.items() if each.kind != HISTOGRAM}
    return plain | {
        f"{name}{suffix}" for name, each in DECLARED.items() if each.kind == HISTOGRAM for suffix in OF_A_HISTOGRAM
    }


def expressions(path: Path) -> list[str]:
    """Queries of a dashboard or of a file of alerts."""
    if path.suffix == ".yaml":
        rules: list[dict[str, Any]] = [
            rule for group in yaml.safe_load(path.read_text())["groups"] for rule in group["rules"]
        ]
        return [rule["expr"] for rule in rules]
    dashboard = json.loads(path.read_text())
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
    return queries + [each["query"] for each in dashboard["templating"]["list"]]


def labels_in(expression: str) -> set[str]:
    """Labels by which a query selects or groups; those of the scrape itself are everywhere."""
    selected = re.findall(r"[{,]\s*(\w+)\s*(?:=|!=|=~|!~)\"", expression)
    grouped = [name for names in re.findall(r"\b(?:by|on)\s*\(([^)]*)\)", expression) for name in names.split(",")]
    return {name.strip() for name in (*selected, *grouped)} - {"instance", "job", "le"}


def test_the_page_is_made_from_the_declarations() -> None:
    command = "python -m towline.metrics.metrics_doc docs/metrics.md"
    assert PAGE.read_text(encoding="utf-8") == render(), f"run: {command}"


def test_the_page_has_a_row_for_every_metric() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (?:gauge|counter|histogram) \|", PAGE.read_text(), re.MULTILINE)
    assert rows == list(DECLARED)


@pytest.mark.parametrize("path", [DASHBOARD, ALERTS], ids=lambda path: path.name)
def test_every_name_in_a_query_is_exported_with_the_labels_that_it_asks_for(path: Path) -> None:
    found = expressions(path)
    assert len(found) > 10
    for expression in found:
        names = set(NAME.findall(expression))
        assert names <= exported(), expression
        known = {label for name in names for label in _declared(name).labels}
        assert labels_in(expression) <= known | ({"job"} if not names else set()), expression


def _declared(name: str) -> Any:
    return DECLARED.get(name) or DECLARED[re.sub(f"({'|'.join(OF_A_HISTOGRAM)})$", "", name)]


def test_names_say_their_type_and_unit_as_prometheus_wants() -> None:
    for name, each in DECLARED.items():
        assert re.fullmatch(r"(towline|rocketmq)_[a-z_]+", name)
        assert name.endswith("_total") is (each.kind == "counter"), name
        assert each.meaning
        assert not each.meaning.endswith("."), name


def test_a_name_that_nobody_exports_is_told() -> None:
    assert not {"towline_no_such_name"} <= exported()
    assert labels_in('sum by (topic) (rate(x_total{a="1",b!="2"}[5m])) > 0') == {"topic", "a", "b"}
