"""The answer to one scrape while it is put together: a family for each declared metric, filled with samples."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric

from .declared import COUNTER, DECLARED, GAUGE, ROCKETMQ, Declared

_TOTAL: Final = "_total"
_ROCKETMQS: Final = frozenset(each.name for each in ROCKETMQ)


class Families:
    """Samples by the name of their metric. `broker`: the values of RocketMQ's labels of this node."""

    def __init__(self, declared: Iterable[Declared], broker: Sequence[str]) -> None:
        self._broker = tuple(broker)
        self._families = {each.name: _family(each) for each in declared}

    def add(self, name: str, value: float, *labels: str) -> None:
        """One sample; `labels` are the values of those that the metric is declared with, but for RocketMQ's."""
        family, declared = self._families[name], DECLARED[name]
        values = (*self._broker, *labels) if name in _ROCKETMQS else labels
        family.add_sample(name, dict(zip(declared.labels, values, strict=True)), float(value))

    def add_each(self, name: str, values: Mapping[str, float]) -> None:
        """Samples of a metric with one label, by its value."""
        for label, value in values.items():
            self.add(name, value, label)

    def add_histogram(
        self, name: str, bounds: Sequence[float], counts: Sequence[int], total: float, *labels: str
    ) -> None:
        """`counts`: one for each bound, of what is below it and not below the one before, and of all that is above."""
        family = self._families[name]
        assert isinstance(family, HistogramMetricFamily)
        below, buckets = 0, []
        for bound, count in zip((*map(str, bounds), "+Inf"), counts, strict=True):
            below += count
            buckets.append((bound, float(below)))
        family.add_metric(labels, buckets, total)

    def all(self) -> list[Metric]:
        return list(self._families.values())


def _family(declared: Declared) -> Metric:
    if declared.kind == GAUGE:
        return GaugeMetricFamily(declared.name, declared.meaning, labels=declared.labels)
    if declared.kind == COUNTER:
        return CounterMetricFamily(declared.name.removesuffix(_TOTAL), declared.meaning, labels=declared.labels)
    return HistogramMetricFamily(declared.name, declared.meaning, labels=declared.labels)
