"""Views and tables in SQL: read from, and written into by INSERT."""

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.processes.nodes import TestNode
from tests.processes.waiting import await_

WAIT_S = 60.0


def bodies(spark: SparkSession, view: str, count: int) -> list[bytes]:
    """The bodies of a view when so many can be read."""

    def read() -> list[bytes]:
        return [bytes(row.body) for row in spark.sql(f"SELECT body FROM {view}").collect()]

    await_(lambda: len(read()) >= count, WAIT_S, "all can be read")
    return sorted(read())


def refused(spark: SparkSession, statement: str) -> str:
    with pytest.raises(PySparkException) as error:
        spark.sql(statement).collect()
    return str(error.value)


def test_a_view_of_a_topic_is_written_into_and_read(spark: SparkSession, node: TestNode) -> None:
    spark.sql(f"""
        CREATE OR REPLACE TEMPORARY VIEW packets USING towline
        OPTIONS (path '{node.store.root}', topic 'sqlParcels', columns 'body,tags,keys', compression 'none')
    """)
    spark.sql("INSERT INTO packets VALUES (binary('a'), 'red', 'k1'), (binary('b'), NULL, NULL)")
    spark.sql("INSERT INTO packets (keys, body) SELECT 'k2', binary('c')")
    assert bodies(spark, "packets", 3) == [b"a", b"b", b"c"]
    rows = spark.sql("SELECT string(body) AS body, tags, keys FROM packets ORDER BY body").collect()
    assert [tuple(row) for row in rows] == [("a", "red", "k1"), ("b", None, None), ("c", None, "k2")]


def test_a_view_with_columns_of_its_own_reads_and_writes_them(spark: SparkSession, node: TestNode) -> None:
    spark.sql(f"""
        CREATE OR REPLACE TEMPORARY VIEW letters (topic STRING, body BINARY) USING towline
        OPTIONS (path '{node.store.root}', subscribePattern 'sqlLetters.*')
    """)
    spark.sql("INSERT INTO letters VALUES ('sqlLettersA', binary('x')), ('sqlLettersB', binary('y'))")
    assert bodies(spark, "letters", 2) == [b"x", b"y"]


def test_a_write_that_is_run_again_stores_nothing_twice(spark: SparkSession, node: TestNode) -> None:
    spark.sql(f"""
        CREATE OR REPLACE TEMPORARY VIEW once USING towline
        OPTIONS (path '{node.store.root}', topic 'sqlOnce', columns 'body', txnAppId 'sql', txnVersion '1')
    """)
    for _ in range(2):
        spark.sql("INSERT INTO once SELECT binary(string(id)) FROM range(0, 50, 1, 2)")
    assert bodies(spark, "once", 50) == sorted(str(number).encode() for number in range(50))


def test_a_topic_is_not_overwritten(spark: SparkSession, node: TestNode) -> None:
    spark.sql(f"""
        CREATE OR REPLACE TEMPORARY VIEW kept USING towline
        OPTIONS (path '{node.store.root}', topic 'sqlKept', columns 'body')
    """)
    assert "NotAppendable" in refused(spark, "INSERT OVERWRITE kept VALUES (binary('x'))")


def test_a_misspelt_option_of_either_side_is_refused(spark: SparkSession, node: TestNode) -> None:
    create = f"CREATE OR REPLACE TEMPORARY VIEW wrong USING towline OPTIONS (path '{node.store.root}', "
    assert "did you mean compression?" in refused(spark, f"{create} compresion 'none')")
    assert "did you mean subscribe?" in refused(spark, f"{create} subscibe 'a')")


def test_a_table_with_options_is_refused_with_what_works(spark: SparkSession, node: TestNode) -> None:
    said = refused(spark, f"CREATE TABLE sqlTable USING towline OPTIONS (path '{node.store.root}', topic 'sqlTable')")
    assert "CREATE TEMPORARY VIEW" in said
    assert "WITH (path = " in said


def test_a_table_takes_its_options_from_each_statement(spark: SparkSession, node: TestNode) -> None:
    spark.sql("DROP TABLE IF EXISTS sqlBare")
    spark.sql("CREATE TABLE sqlBare (body BINARY, tags STRING) USING towline")
    try:
        assert "CREATE TEMPORARY VIEW" in refused(spark, "SELECT * FROM sqlBare")
        assert "CREATE TEMPORARY VIEW" in refused(spark, "INSERT INTO sqlBare VALUES (binary('x'), 'red')")
        options = f"WITH (path = '{node.store.root}', topic = 'sqlBare')"
        spark.sql(f"INSERT INTO sqlBare {options} VALUES (binary('x'), 'red')")
        assert bodies(spark, f"sqlBare {options}", 1) == [b"x"]
    finally:
        spark.sql("DROP TABLE sqlBare")
