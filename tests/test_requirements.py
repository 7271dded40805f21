"""What is skipped, what fails instead, and how it is told."""

from pathlib import Path

import pytest

from .requirements import VARIABLE, Verdict, judge, names_in, need, told

pytest_plugins = ["pytester"]


@pytest.mark.parametrize(
    ("required", "missing", "verdict"),
    [
        ([], [], Verdict.RUN),
        (["java"], [], Verdict.RUN),
        ([], ["java"], Verdict.SKIP),
        (["maven"], ["java"], Verdict.SKIP),
        (["java"], ["java"], Verdict.FAIL),
        (["java", "maven"], ["maven", "strace"], Verdict.FAIL),
    ],
)
def test_what_is_missing_is_skipped_unless_it_is_required(required, missing, verdict):
    assert judge(required, missing) is verdict


def test_names_are_separated_by_commas():
    assert names_in("") == []
    assert names_in(" java,maven ,,") == ["java", "maven"]


def test_the_variable_decides(monkeypatch):
    monkeypatch.setenv(VARIABLE, "maven")
    need({})
    with pytest.raises(pytest.skip.Exception, match="no java here"):
        need({"java": "no java here"})
    with pytest.raises(pytest.fail.Exception, match="no maven here, and TOWLINE_REQUIRE asks for it"):
        need({"maven": "no maven here"})


def test_reasons_are_counted():
    assert told([]) == "skipped: nothing"
    assert told(["b", "Skipped: a", "b"]) == "skipped: 2 (b), 1 (a)"


def test_the_last_line_of_a_run_names_them(pytester, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent.parent))
    pytester.makeconftest("from tests.conftest import pytest_unconfigure as pytest_unconfigure")
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.skip(reason="no moon")
        def test_marked(): ...

        def test_at_run_time():
            pytest.skip("no sun")

        @pytest.fixture
        def stars():
            pytest.skip("no sun")

        def test_in_a_fixture(stars): ...
        """
    )
    assert pytester.runpytest_subprocess("-p", "no:cacheprovider").outlines[-1] == "skipped: 2 (no sun), 1 (no moon)"
