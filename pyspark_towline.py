"""Spark looks for modules whose names begin with `pyspark_` and registers the DefaultSource that it finds in each."""

from towline.spark.source import TowlineDataSource


class DefaultSource(TowlineDataSource):
    """The format `towline`."""
