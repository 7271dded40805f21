"""The tables of the page "Towline and Spark" are those of the code."""

from towline.arrow.columns import SCHEMA
from towline.loadtest.bench.spark_stream import LOW_LATENCY
from towline.pipeline.registry import JOBS
from towline.spark import sink
from towline.spark.options import NAMES, SourceOptions
from towline.spark.rows import COLUMNS, LEFT_OUT, REFUSED

from .pages import TEXT, rows

TYPES = {
    "string": "string",
    "int32": "int",
    "int64": "bigint",
    "binary": "binary",
    "timestamp[us, tz=UTC]": "timestamp",
    "map<string, string>": "map<string,string>",
}


def test_the_table_of_columns_is_the_schema():
    expected = [(f"`{each.name}`", TYPES[str(each.type)], "yes" if each.nullable else "no") for each in SCHEMA]
    assert [tuple(row[:3]) for row in rows(TEXT, "schema")] == expected


def test_the_table_of_options_has_every_option_and_its_default():
    table = {row[0].strip("`"): row[1] for row in rows(TEXT, "options")}
    assert list(table) == list(NAMES)
    for name, default in table.items():
        if default.startswith("`"):  # a value; otherwise words for what follows from the store or from the query
            given = {"path": "store", name: default.strip("`")}
            assert SourceOptions.parse(given) == SourceOptions.parse({"path": "store"}), name


def test_the_table_of_the_sinks_options_has_every_option_and_its_default():
    table = {row[0].strip("`"): row[1] for row in rows(TEXT, "sink")}
    assert list(table) == list(sink.NAMES)
    for name, default in table.items():
        if default.startswith("`"):
            given = {"path" if name == "endpoint" else "endpoint": "tcp://127.0.0.1:1"}
            assert sink.SinkOptions.parse(given | {name: default.strip("`")}) == sink.SinkOptions.parse(given), name


def test_the_page_has_every_column_that_is_written_and_every_property_that_is_not():
    assert [row[0].strip("`") for row in rows(TEXT, "written")] == list(COLUMNS)
    assert [name for name in (*LEFT_OUT, *REFUSED) if f"`{name}`" not in TEXT] == []


def test_the_settings_for_low_latency_are_those_that_the_benchmark_has():
    assert {row[0].strip("`"): row[1].strip("`") for row in rows(TEXT, "latency")} == dict(LOW_LATENCY)


def test_the_page_shows_every_job():
    assert [name for name in sorted(JOBS) if f"towline pipeline {name} " not in TEXT] == []
