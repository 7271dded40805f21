"""The fixtures for users' tests, in a run of pytest of its own."""

import subprocess
from pathlib import Path

from tests.repo.trees import ROOT

pytest_plugins = ["pytester"]
PLUGIN = ("-p", "towline.pytest_plugin", "-p", "no:cacheprovider")


def test_a_node_is_there_for_the_run_and_a_topic_for_each_test(pytester):
    pytester.makepyfile(
        """
        from pathlib import Path

        import pytest

        from towline import Consumer, Message, Producer

        @pytest.mark.parametrize("body", [b"one", b"two"])
        def test_it(towline_node, towline_topic, body):
            with Producer(towline_node.endpoint) as producer:
                assert producer.send(Message(towline_topic, body)).acknowledged
            with Consumer(towline_node.endpoint, towline_topic, start="first") as consumer:
                assert [message.body for message in consumer.poll(20_000)] == [body]
            Path("stores").open("a").write(f"{towline_node.store}\\n")
        """
    )
    pytester.runpytest_subprocess(*PLUGIN).assert_outcomes(passed=2)
    [store] = set((pytester.path / "stores").read_text().split())
    assert subprocess.run(["pgrep", "-f", store], capture_output=True, check=False).returncode == 1
    assert not Path(store).exists()


def test_the_block_of_the_page_runs(pytester):
    page = (ROOT / "docs" / "testing.md").read_text(encoding="utf-8")
    pytester.makepyfile(page.partition("```python\n")[2].partition("```")[0])
    pytester.runpytest_subprocess(*PLUGIN).assert_outcomes(passed=1)


def test_a_run_that_needs_no_node_starts_none(pytester):
    pytester.makepyfile("def test_it(towline_topic): assert towline_topic.startswith('test-')")
    pytester.runpytest_subprocess(*PLUGIN).assert_outcomes(passed=1)
