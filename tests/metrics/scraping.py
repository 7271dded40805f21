"""Asks the port of metrics as Prometheus and probes do."""

import json
from http.client import HTTPConnection
from typing import Any

from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from tests.processes.nodes import TestNode, free_port

WAIT_S = 60.0


def metered(role: str, root: Any, **settings: object) -> TestNode:
    """A node with such a port."""
    return TestNode(role, root, metrics_port=free_port(), **settings)


def port_of(node: TestNode) -> int:
    return int(next(flag.partition("=")[2] for flag in node.flags if flag.startswith("metrics_port=")))


def ask(node: TestNode, path: str, accept: str = "text/plain") -> tuple[int, str]:
    """Status and body; (0, "") where nobody listens."""
    connection = HTTPConnection("127.0.0.1", port_of(node), timeout=WAIT_S)
    try:
        connection.request("GET", path, headers={"Accept": accept})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    except ConnectionError:
        return 0, ""
    finally:
        connection.close()


def families(node: TestNode) -> dict[str, Metric]:
    """By name, as declared: counters with their `_total`."""
    status, text = ask(node, "/metrics")
    assert status == 200, text
    found = text_string_to_metric_families(text)
    return {each.name + "_total" * (each.type == "counter"): each for each in found}


def value(of: TestNode, name: str, **labels: str) -> float | None:
    """Of the one sample of this name with these labels, and maybe more; None where there is none."""
    found = [
        sample.value
        for family in families(of).values()
        for sample in family.samples
        if sample.name == name and labels.items() <= sample.labels.items()
    ]
    assert len(found) < 2, f"{name} has {len(found)} samples with {labels}"
    return found[0] if found else None


def values(node: TestNode, name: str, label: str) -> dict[str, float]:
    """By one label."""
    return {sample.labels[label]: sample.value for sample in families(node)[name].samples if sample.name == name}


def ready(node: TestNode) -> tuple[int, list[str]]:
    """Status, and the reasons why it is not."""
    status, text = ask(node, "/ready")
    return status, [each["reason"] for each in json.loads(text)["not_ready"]] if text else []
