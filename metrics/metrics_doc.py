"""docs/metrics.md, made from the declarations: `python -m towline.metrics.metrics_doc docs/metrics.md`."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from towline.node.report.readiness import Reason

from .declared import BROKER, PARTS, Declared

HEAD: Final = """\
# Metrics and health

Made from the declarations by `python -m towline.metrics.metrics_doc docs/metrics.md`; a test keeps it true.

```sh
towline master start --store /tmp/m --set metrics_port=5557
curl http://127.0.0.1:5557/metrics
```

With `metrics_port` a node, master or slave, has one more process, which answers Prometheus and probes over HTTP. It
reads positions, statistics and files: it asks no other process, and a put does not notice. It answers from before the
store is recovered until the node stops, and stands on `metrics_address`, loopback unless it is set. Beyond loopback
whoever reaches the port can read the names of topics and groups; no message, and nothing can be changed there
([SECURITY.md](../SECURITY.md)).

| path | answer |
|---|---|
| `/metrics` | the figures below, as Prometheus reads them |
| `/live` | 200 while the supervisor runs and this process answers, 503 else; also 200 during recovery |
| `/ready` | 200, or 503 with the reasons: `{"ready": false, "not_ready": [{"reason", "sentence", "remedy"}]}` |

A node is **not ready** for these reasons. `towline master status` and `slave status` judge by the same function: their
exit status is 1 then, and their `--json` has the same `ready` and `not_ready`.

| reason | what it means |
|---|---|
"""
REASONS: Final = {
    Reason.RECOVERING: "the node starts: its store is recovered, or not every process runs yet",
    Reason.STANDING_STILL: "a process has done no turn for two seconds: it was stopped, or a sync does not return",
    Reason.DISPATCH_STOPPED: "a record cannot be dispatched",
    Reason.SYNC_FAILED: "a sync of the log failed",
    Reason.NO_MASTER: "a slave follows nobody",
    Reason.PUTS_REFUSED: "a master refuses every put: a full disk, too few slaves, no lease, read-only, ...",
}
TAIL: Final = f"""
In Kubernetes, where a recovery may take longer than a probe waits:

```yaml
livenessProbe: {{httpGet: {{path: /live, port: 5557}}, periodSeconds: 10, failureThreshold: 3}}
startupProbe: {{httpGet: {{path: /ready, port: 5557}}, periodSeconds: 5, failureThreshold: 720}}
readinessProbe: {{httpGet: {{path: /ready, port: 5557}}, periodSeconds: 5}}
```

[grafana/towline.json](grafana/towline.json) is a dashboard, [grafana/alerts.yaml](grafana/alerts.yaml) has rules of
alerts for Prometheus. A test compares their names with what a node exports.

**What has RocketMQ 5's names** has its labels too ({", ".join(f"`{label}`" for label in BROKER)}), but for
`message_type`, and for `consumer_group` of what goes out: statistics are by topic here. What it has beyond these
(thread pools, clients by language, messages in flight, sizes as a histogram) would have to be counted where messages
pass, and is not there.

**Series.** None is for a queue. `metrics_labels_max` topics have series of their own, those whose first message came
first since the start; so have as many groups, and topics of groups, those most behind. All other topics are summed as
`(others)`, and `towline_left_out` says how many they are. Counters begin at 0 with each start of the node.

**Lag** is exported by masters alone. Offsets are those that serve saves every `flush_consumer_offset_interval`. In
seconds it is the age of the oldest unread message, found for at most 64 queues of a scrape, the longest first; what was
found holds until the group moves on there, so a queue that stands still is found.
"""


def render() -> str:
    """The whole page."""
    reasons = "".join(f"| `{reason.value}` | {REASONS[reason]} |\n" for reason in Reason)
    tables = (_table(title, part) for title, part in PARTS.items())
    return HEAD + reasons + TAIL + "".join(tables)


def _table(title: str, part: Sequence[Declared]) -> str:
    rows = "".join(f"| `{each.name}` | {each.kind} | {_labels(each)} | {each.meaning} |\n" for each in part)
    return f"\n## {title}\n\n| name | type | labels | meaning |\n|---|---|---|---|\n{rows}"


def _labels(declared: Declared) -> str:
    own = [label for label in declared.labels if label not in BROKER or not declared.name.startswith("rocketmq_")]
    return ", ".join(f"`{label}`" for label in own) or "-"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(render(), encoding="utf-8")
