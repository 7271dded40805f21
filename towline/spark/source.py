"""The format `towline` of Spark: the options are read, the plan is made on the driver, tasks run it.

Thin on purpose: what is decided stands in `planning`, what a task does in `reading`, and neither needs Spark. Every
task imports this module, because Spark sends it the data source: so streams and sinks, which need the client's
libraries, are loaded by those who use them.
"""

import importlib
from types import ModuleType
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
)
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from towline.arrow.columns import COLUMNS, schema_of

from .batch import TowlineReader
from .errors import WrongColumnType
from .options import SourceOptions

FORMAT: Final = "towline"
_SINK: Final = "towline.spark.sink"
_STREAMING: Final = "towline.spark.streaming"


class TowlineDataSource(DataSource):
    """`spark.read.format("towline").load(store)`; see docs/spark.md."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        """Every column, or those of the option `columns`."""
        options = SourceOptions.parse(self.options)
        return from_arrow_schema(schema_of(options.columns or COLUMNS), prefer_timestamp_ntz=False)

    def reader(self, schema: StructType) -> DataSourceReader:
        return TowlineReader(SourceOptions.parse(self.options), wanted(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        made: DataSourceStreamReader = _loaded(_STREAMING).TowlineStreamReader(
            SourceOptions.parse(self.options), wanted(schema)
        )
        return made

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        made: DataSourceArrowWriter = _loaded(_SINK).batch_writer(self.options, schema, overwrite)
        return made

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        made: DataSourceStreamArrowWriter = _loaded(_SINK).stream_writer(self.options, schema, overwrite)
        return made


def _loaded(name: str) -> ModuleType:
    return importlib.import_module(name)


def wanted(schema: StructType) -> pa.Schema:
    """The user's schema as Arrow has it: a choice of columns. Raises UnknownColumn, WrongColumnType."""
    asked = to_arrow_schema(schema, timezone="UTC")
    for field, ours in zip(asked, schema_of(asked.names), strict=True):
        if field.type != ours.type:
            raise WrongColumnType(field.name, str(field.type), str(ours.type))
        if ours.nullable and not field.nullable:
            raise WrongColumnType(field.name, "not null", "null for messages without it")
    return asked
