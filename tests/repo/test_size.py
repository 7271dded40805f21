"""Nothing grows beyond what one reads in one go: a wall for functions, advice for files.

A file is one idea: one that is long and one idea may stay, and one idea is not cut into splinters to make it short.
"""

import warnings
from collections.abc import Iterator

import pytest

from .trees import Broken, Source, functions, sources, texts, told

FUNCTION_LINES_MAX = 60
FILE_LINES_MAX = 600


class LongFile(UserWarning):
    """Shown at the end of a run; it fails nothing."""


def long_functions(source: Source) -> Iterator[Broken]:
    for function in functions(source.tree):
        lines = (function.end_lineno or function.lineno) - function.lineno + 1
        if lines > FUNCTION_LINES_MAX:
            what = f"{function.name} has {lines} lines, above {FUNCTION_LINES_MAX}"
            yield source.broken(function, what, "give its steps names of their own")


def long_files(path: str, text: str) -> Iterator[Broken]:
    lines = len(text.splitlines())
    if path.endswith(".py") and lines > FILE_LINES_MAX:
        what = f"the file has {lines} lines, above {FILE_LINES_MAX}"
        yield Broken(path, FILE_LINES_MAX + 1, what, "split it if it is two ideas")


def test_no_function_is_above_60_lines():
    broken = [each for source in sources() for each in long_functions(source)]
    assert not broken, told(broken)


@pytest.mark.filterwarnings("default::tests.repo.test_size.LongFile")
def test_files_above_600_lines_are_named():
    for each in (each for path, text in texts() for each in long_files(path, text)):
        warnings.warn(LongFile(str(each)), stacklevel=1)


class TestTheCheckItself:
    def function(self, lines: int) -> Source:
        return Source.of("flush/x.py", "\n" + "def f():\n" + "    a = 1\n" * (lines - 1))

    def test_a_function_of_60_lines_passes_and_one_of_61_does_not(self):
        assert not list(long_functions(self.function(60)))
        (broken,) = long_functions(self.function(61))
        assert str(broken).startswith("flush/x.py:2: f has 61 lines")

    def test_methods_and_nested_functions_count_too(self):
        body = "        a = 1\n" * 61
        source = Source.of("flush/x.py", f"class C:\n    def f(self):\n{body}")
        assert ["f has 62 lines" in str(broken) for broken in long_functions(source)] == [True]

    def test_a_file_of_600_lines_passes_and_one_of_601_does_not(self):
        assert not list(long_files("flush/x.py", "a = 1\n" * 600))
        (broken,) = long_files("flush/x.py", "a = 1\n" * 601)
        assert "601 lines" in str(broken)
