"""The reader of a batch: Spark asks it for partitions on the driver and hands copies of it to the tasks.

Apart from the data source, so that a task needs nothing of a client or a sink.
"""

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from . import planning, reading
from .daemons import keep_loaded
from .options import SourceOptions
from .reading import Partition, Reading


class Part(InputPartition):
    """A partition and how it is read, as Spark hands them to a task. The reader itself is copied before it plans."""

    def __init__(self, partition: Partition, how: Reading) -> None:
        super().__init__(None)
        self.partition, self.how = partition, how


def typed(found: Iterator[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The batches under the schema that Spark compares them with: of nulls it may know less than we do."""
    if not schema.names:  # an array is what counts rows
        return found
    return (pa.RecordBatch.from_arrays(batch.columns, schema=schema) for batch in found)


class TowlineReader(DataSourceReader):
    """Made and asked for partitions on the driver, copied to the tasks.

    It takes no filters: what a query of a frame pushes down Spark 4.3 keeps for the next one of the same frame, and for
    both sides of a union, which then lack rows. The options say as much.
    """

    def __init__(self, options: SourceOptions, schema: pa.Schema) -> None:
        self._options, self._schema = options, schema

    def partitions(self) -> list[InputPartition]:
        plan = planning.plan(self._options, tuple(self._schema.names))
        keep_loaded()
        return [Part(partition, plan.reading) for partition in plan.partitions]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Spark asks for one partition of nothing where there is none."""
        if isinstance(partition, Part):
            yield from typed(reading.read(partition.partition, partition.how), self._schema)
            keep_loaded()
