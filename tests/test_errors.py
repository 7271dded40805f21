"""Errors cross process borders and always say what to do."""

import ast
import pickle
import re
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest

from towline.errors import Remedy, TowlineError
from towline.link.put_ring import Cut
from towline.serve.groups.errors import Refusal

from .repo.trees import Source, sources

_FACTS = {int: 7, float: 7.5, str: "a plain fact", bytes: b"fact", bool: True, tuple[str, ...]: ("a", "fact")}
_FACTS |= {Refusal: Refusal.STARTING, Cut: Cut.LENGTH, dict[str, Any]: {"put": "tcp://b:1"}}


class _Torn(TowlineError, remedy=Remedy.FIX_DISK):
    path: str
    at: int = 0
    template = "{path!r} is torn at {at:03d}"


class _TornTwice(_Torn):
    again: int = 9


class _Plain(TowlineError):
    """What an error without a template says."""

    path: str
    key: str
    why: str


def _own_sources() -> list[Source]:
    return [source for source in sources() if not source.is_test]


def _errors_of(source: Source, known: set[str]) -> Iterator[str]:
    for node in source.tree.body:
        if isinstance(node, ast.ClassDef) and {ast.unparse(base) for base in node.bases} & known:
            yield node.name


def _every_error() -> list[type[TowlineError]]:
    """Every error of the packages. What has a constructor of its own stays within its process."""
    found: dict[str, str] = {"TowlineError": "towline.errors"}
    size = 0
    while size != len(found):
        size = len(found)
        found |= {name: source.module for source in _own_sources() for name in _errors_of(source, set(found))}
    kinds = [getattr(import_module(module), name) for name, module in sorted(found.items())]
    return [kind for kind in kinds if kind is not TowlineError and kind.__init__ is TowlineError.__init__]


def _example(kind: type[TowlineError]) -> TowlineError:
    kinds: dict[str, Any] = {}
    for base in reversed(kind.__mro__):
        kinds |= vars(base).get("__annotations__", {})
    return kind(*(_FACTS[kinds[name]] for name in kind.fields))


every_error = pytest.mark.parametrize("kind", _every_error(), ids=lambda kind: kind.__name__)


def test_there_are_errors_to_look_at():
    assert len(_every_error()) > 150


@every_error
def test_an_error_pickles_to_an_equal_copy(kind):
    error = _example(kind)
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is kind
    assert copy.args == error.args
    assert vars(copy) == vars(error)
    assert str(copy) == str(error)


@every_error
def test_an_error_names_its_facts_and_ends_with_its_advice(kind):
    error = _example(kind)
    assert error.describe() or not kind.fields
    assert str(error).startswith(error.describe())
    if kind.__str__ is TowlineError.__str__:
        assert str(error) == f"{error.describe()}; {error.advice}"


@every_error
def test_an_error_has_a_remedy_and_an_advice_of_at_least_three_words(kind):
    assert isinstance(kind.remedy, Remedy)
    assert len(_example(kind).advice.split()) >= 3


@every_error
def test_an_error_explains_itself_in_its_docstring_or_its_sentence(kind):
    if kind.__doc__ == kind.template:
        assert len(re.sub(r"{.*?}", "", kind.template).split()) >= 2
    else:
        assert kind.__doc__


def test_facts_are_attributes_and_arguments_however_they_are_given():
    for error in (_Torn("a", 7), _Torn("a", at=7), _Torn(at=7, path="a")):
        assert (error.path, error.at, error.args) == ("a", 7, ("a", 7))
        assert vars(pickle.loads(pickle.dumps(error))) == vars(error)


def test_a_fact_that_is_left_out_has_its_default():
    assert _Torn("a").args == ("a", 0)


def test_the_facts_of_the_class_above_come_first_and_its_remedy_and_sentence_stay():
    error = _TornTwice("a", 7)
    assert error.args == ("a", 7, 9)
    assert error.remedy is Remedy.FIX_DISK
    assert error.describe() == "'a' is torn at 007"


@pytest.mark.parametrize(
    ("values", "named"),
    [((), {}), (("a", 1, 2), {}), (("a",), {"size": 1})],
    ids=["a fact is missing", "a fact too many", "no such fact"],
)
def test_what_does_not_fit_the_facts_is_refused(values, named):
    with pytest.raises(TypeError, match=r"_Torn takes \(path, at\)"):
        _Torn(*values, **named)


def test_braces_in_a_fact_are_printed_as_they_are():
    assert _Torn("{at}").describe() == "'{at}' is torn at 000"


def test_without_a_template_the_facts_that_are_not_empty_stand_between_colons():
    assert _Plain("cluster.toml", "", "no groups").describe() == "cluster.toml: no groups"


def test_errors_are_equal_only_to_themselves():
    assert _Torn("a") != _Torn("a")
    assert len({_Torn("a"), _Torn("a")}) == 2
