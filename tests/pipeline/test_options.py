"""Options of jobs: one dataclass, from which every command line is made and by which every value is judged."""

import re
import sys
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Literal

import pytest

from towline.errors import MissingPackage
from towline.pipeline import registry
from towline.pipeline.arguments import parser_of
from towline.pipeline.errors import IllegalOption, UnknownJob
from towline.pipeline.options import facts_of, made, option, store_option


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    store: str = store_option()
    topic: tuple[str, ...] = option("Topics.", default=(), metavar="NAME")
    by: Literal["a", "b"] = option("How.", default="a")
    out: Path | None = option("Where.", default=None)
    most: int = option("How many.", default=3, least=1)
    share: float | None = option("How much.", default=None, least=0.5)
    deep: bool = option("Everything.", default=False)


def test_facts_are_what_a_command_line_needs():
    facts = {one.name: one for one in facts_of(Options)}
    assert [name for name, one in facts.items() if one.required] == ["store"]
    assert (facts["by"].choices, facts["by"].type) == (("a", "b"), str)
    assert (facts["topic"].many, facts["topic"].type) == (True, str)
    assert (facts["out"].type, facts["share"].type, facts["deep"].type) == (Path, float, bool)
    assert facts["most"].flag == "--most"


def test_values_become_options_of_their_types_and_nothing_given_is_the_default():
    values = {"store": "s", "topic": ["x", "y"], "out": "o", "most": "7", "share": None, "deep": True}
    assert made(Options, values) == Options(store="s", topic=("x", "y"), out=Path("o"), most=7, deep=True)
    assert made(Options, {"store": "s", "topic": []}) == Options(store="s")


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({}, "--store: the job needs it"),
        ({"store": "s", "by": "c"}, "--by: 'c' is none of a, b"),
        ({"store": "s", "most": "many"}, "--most: 'many' is not of type int"),
        ({"store": "s", "most": 0}, "--most: 0 is below 1"),
        ({"store": "s", "share": 0.25}, "--share: 0.25 is below 0.5"),
        ({"store": "s", "strore": "s"}, "--strore: the job has no such option"),
    ],
)
def test_a_wrong_value_is_refused_by_the_name_of_its_option(values, told):
    with pytest.raises(IllegalOption, match=told):
        made(Options, values)


@pytest.mark.parametrize("name", registry.JOBS)
class TestEveryJob:
    def test_documents_its_options_and_columns(self, name):
        job = registry.load(name)
        assert [one.name for one in facts_of(job.options)] == [one.name for one in fields(job.options)]
        assert all(len(one.help.split()) > 1 for one in facts_of(job.options))
        assert job.columns
        assert all(column.type and column.meaning for column in job.columns)
        assert len({column.name for column in job.columns}) == len(job.columns)

    def test_has_a_command_line_without_typer(self, name):
        told = parser_of(name).format_help()
        assert all(one.flag in told for one in facts_of(registry.load(name).options))


def test_the_jobs_are_in_order_and_a_wrong_name_leads_to_the_nearest():
    assert list(registry.JOBS) == sorted(registry.JOBS)
    with pytest.raises(UnknownJob, match="the nearest is 'stats'"):
        registry.load("statz")


def test_a_job_whose_package_is_missing_names_the_extras_that_bring_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "towline.pipeline.kafka_import", None)
    with pytest.raises(MissingPackage, match=re.escape("pip install 'towline[spark,kafka]'")):
        registry.load("kafka-import")
