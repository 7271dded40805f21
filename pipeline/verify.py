"""`verify`: every file of a store, segment by segment by many tasks; and its log against that of another store.

The findings are those of `towline store verify`, whose code the tasks run. A node may run on either store.
"""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from towline.log.files.segment_files import segment_name
from towline.log.repair.verify import Verified, verify
from towline.log.repair.verify_report import Findings, Weight
from towline.node.store.store_access import node_kept_away, verify_beside_node
from towline.node.store.store_shape import shape_of
from towline.places import Store
from towline.spark.stores import StoreView

from .comparing import Compared, compare_logs, report
from .job import Column, Job, Plot, Result
from .options import option, store_option
from .progress import Progress
from .tasks import SparkTasks, Tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_WORDS: Final = {Weight.NOTE: "sound", Weight.HEALS: "to be healed", Weight.DAMAGE: "damaged"}
SAME, DIFFERS, GONE, NOT_COMPARED = "same", "differs", "gone", ""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyOptions:
    store: str = store_option("Store directory of a node, live or stopped, or of a real broker.")
    against: str | None = option(
        "A second store, as a slave's or a backup: the bytes that both logs hold are compared.",
        default=None,
        metavar="DIR",
    )
    config: str | None = option("The node's configuration, where the files do not show its sizes.", default=None)


COLUMNS: Final = (
    Column("segment", "bigint", "log offset of the segment's first byte"),
    Column("verdict", "string", "sound, torn (the log ends there), damaged, missing or unused"),
    Column("records", "bigint", "whole records"),
    Column("bytes", "bigint", "bytes of records and blank"),
    Column("findings", "int", "what is wrong with the segment's file, more than a note"),
    Column("other", "string", "the same bytes in the other store: same, differs, gone; empty where not compared"),
)


@dataclass(frozen=True, slots=True)
class Checked:
    """`findings` are of both; `compared` is None without another store."""

    verified: Verified
    findings: Findings
    compared: Compared | None

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        wrong = Counter(row.path for row in self.findings.rows if row.weight)
        size, found = self.verified.segment_size, []
        for one in sorted(self.verified.log.segments, key=lambda segment: segment.base):
            count = wrong[f"commitlog/{segment_name(one.base)}"]
            found.append((one.base, one.verdict, one.records, one.used, count, self._other(one.base, size)))
        return found

    def _other(self, base: int, size: int) -> str:
        differences = self.compared.differences if self.compared is not None else ()
        found = [each for each in differences if base <= each.start < base + size]
        if not found:
            return NOT_COMPARED
        return DIFFERS if any(each.count for each in found) else GONE if any(each.gone for each in found) else SAME


def check(options: VerifyOptions, tasks: Tasks) -> Checked:
    """Raises NotInLog, PositionsUnusable, and what opening either store raises."""
    store = Store(Path(options.store).resolve())
    settings, delays_ms = shape_of(store, Path(options.config) if options.config is not None else None)
    with node_kept_away(store) as limit:
        verified = verify_beside_node(lambda: verify(store, settings, delays_ms=delays_ms, limit=limit, run=tasks.run))
    findings, compared = verified.findings, None
    if options.against is not None:
        with StoreView.open(store.root) as one, StoreView.open(options.against) as other:
            compared = compare_logs(one.facts(), other.facts(), tasks)
            report(compared, one.facts(), other.facts(), findings)
    return Checked(verified, findings, compared)


def run(spark: "SparkSession", options: VerifyOptions, progress: Progress) -> Result:
    checked = check(options, SparkTasks(spark, progress))
    return result_of(checked)


def result_of(checked: Checked) -> Result:
    """The exit status is the worst weight: 0 sound, 1 to be healed, 2 damaged."""
    verified, findings, compared = checked.verified, checked.findings, checked.compared
    log, rules = verified.log, Counter(row.rule for row in findings.rows)
    for (_, rule), count in findings.dropped.items():
        rules[rule] += count
    summary = {
        "verdict": _WORDS[findings.worst],
        "up_to": verified.limit,
        "log": {"min": log.log_min, "end": log.end, "records": log.records},
        "compared": None if compared is None else {"start": compared.start, "end": compared.end, "same": compared.same},
        "rules": dict(sorted(rules.items())),
        "findings": [row.row() for row in findings.rows],
        "not_shown": [{"file": path, "rule": rule, "count": n} for (path, rule), n in findings.dropped.items()],
        "bytes_per_s": round(verified.bytes / verified.seconds),
    }
    plots = []
    if rules:
        names = sorted(rules)
        found = {"findings": [float(rules[name]) for name in names]}
        plots.append(Plot(title="What was found, by rule", kind="bars", x=names, series=found, y_label="findings"))
    return Result(
        rows=checked.rows, summary=summary, sentence=_sentence(checked), plots=plots, status=int(findings.worst)
    )


def _sentence(checked: Checked) -> str:
    log, findings, compared = checked.verified.log, checked.findings, checked.compared
    said = f"{log.records:,} records: the store is {_WORDS[findings.worst]}"
    if findings.worst is not Weight.NOTE:
        worst = next(row for row in findings.rows if row.weight is findings.worst)
        said += f" ({worst.path} byte {worst.at}: {worst.rule}, {worst.sentence}; {worst.remedy})"
    if compared is not None:
        size = max(0, compared.end - compared.start)
        said += f"; {size:,} bytes are in both logs, and they {'are the same' if compared.same else 'differ'}"
    return said


JOB: Final = Job(options=VerifyOptions, columns=COLUMNS, run=run)
