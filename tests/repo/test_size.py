"""Nothing grows beyond what one reads in one go. The limits only tighten."""

from collections.abc import Iterator

from tests.repo.trees import Broken, Source, functions, sources, texts, told

FUNCTION_LINES_MAX = 60
FILE_LINES_MAX = 600

# Offenders of today: "path" or "path:function" -> lines. An entry may only shrink, and goes when it fits.
OFFENDERS: dict[str, int] = {}


def long_functions(source: Source) -> Iterator[tuple[str, int, Broken]]:
    for function in functions(source.tree):
        lines = (function.end_lineno or function.lineno) - function.lineno + 1
        if lines > FUNCTION_LINES_MAX:
            what = f"{function.name} has {lines} lines, above {FUNCTION_LINES_MAX}"
            broken = source.broken(function, what, "give its steps names of their own")
            yield f"{source.path}:{function.name}", lines, broken


def long_files(path: str, text: str) -> Iterator[tuple[str, int, Broken]]:
    lines = len(text.splitlines())
    if path.endswith(".py") and lines > FILE_LINES_MAX:
        what = f"the file has {lines} lines, above {FILE_LINES_MAX}"
        yield path, lines, Broken(path, FILE_LINES_MAX + 1, what, "split it where its reader would")


def too_long() -> list[tuple[str, int, Broken]]:
    in_files = [each for path, text in texts() for each in long_files(path, text)]
    return in_files + [each for source in sources() for each in long_functions(source)]


def test_no_function_is_above_60_lines_and_no_file_above_600():
    broken = [broken for name, lines, broken in too_long() if lines > OFFENDERS.get(name, 0)]
    assert not broken, told(broken)


def test_the_list_of_offenders_only_shrinks():
    today = {name: lines for name, lines, _ in too_long()}
    loose = [
        f"{name}: {today.get(name, 'within the limit')}" for name in OFFENDERS if today.get(name) != OFFENDERS[name]
    ]
    assert not loose, f"write these figures into OFFENDERS, or drop the entry: {loose}"


class TestTheCheckItself:
    def function(self, lines: int) -> Source:
        return Source.of("flush/x.py", "\n" + "def f():\n" + "    a = 1\n" * (lines - 1))

    def test_a_function_of_60_lines_passes_and_one_of_61_does_not(self):
        assert not list(long_functions(self.function(60)))
        ((name, lines, broken),) = long_functions(self.function(61))
        assert (name, lines) == ("flush/x.py:f", 61)
        assert str(broken).startswith("flush/x.py:2: f has 61 lines")

    def test_methods_and_nested_functions_count_too(self):
        body = "        a = 1\n" * 61
        source = Source.of("flush/x.py", f"class C:\n    def f(self):\n{body}")
        assert [lines for _, lines, _ in long_functions(source)] == [62]

    def test_a_file_of_600_lines_passes_and_one_of_601_does_not(self):
        assert not list(long_files("flush/x.py", "a = 1\n" * 600))
        ((_, lines, broken),) = long_files("flush/x.py", "a = 1\n" * 601)
        assert lines == 601
        assert "split it" in str(broken)
