"""What a task is handed, and what it hands back."""

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

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
