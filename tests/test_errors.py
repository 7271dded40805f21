"""Errors cross process borders and always say what to do."""

import inspect
import pickle

import pytest

from loadtest.drill import errors as drill_errors
from loadtest.load import errors as load_errors
from pipeline import errors as pipeline_errors
from towline import errors, ha_errors, read_errors
from towline.arrow import errors as arrow_errors
from towline.client import errors as client_errors
from towline.errors import Remedy, TowlineError
from towline.filter import errors as filter_errors
from towline.format.record import body_errors
from towline.log import errors as store_errors
from towline.runtime import settings_errors
from towline.spark import errors as spark_errors
from towline.spark import sink_errors, stream_errors

_FACTS = {"int": 7, int: 7, "float": 7.5, float: 7.5, "str": "a fact", str: "a fact", "bytes": b"fact", bytes: b"fact"}

_MODULES = (
    errors,
    ha_errors,
    read_errors,
    body_errors,
    arrow_errors,
    store_errors,
    client_errors,
    filter_errors,
    settings_errors,
    spark_errors,
    sink_errors,
    stream_errors,
    pipeline_errors,
    load_errors,
    drill_errors,
)


def _every_error() -> list[type[TowlineError]]:
    named = {name: kind for module in _MODULES for name, kind in vars(module).items()}
    return [kind for kind in named.values() if isinstance(kind, type) and issubclass(kind, TowlineError)]


def _example(kind: type[TowlineError]) -> TowlineError:
    if kind.__init__ is Exception.__init__:
        return kind("a fact")
    parameters = list(inspect.signature(kind).parameters.values())
    return kind(*(_FACTS.get(parameter.annotation, "a fact") for parameter in parameters))


every_error = pytest.mark.parametrize("kind", _every_error(), ids=lambda kind: kind.__name__)


def test_there_are_errors_to_look_at():
    assert len(_every_error()) > 5


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
    assert error.describe()
    assert str(error) == f"{error.describe()}; {kind.advice}"


@every_error
def test_an_error_has_a_remedy_and_an_advice_of_at_least_three_words(kind):
    assert isinstance(kind.remedy, Remedy)
    assert len(kind.advice.split()) >= 3


@every_error
def test_an_error_explains_itself_in_its_docstring(kind):
    assert kind.__doc__
