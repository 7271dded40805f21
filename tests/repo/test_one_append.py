"""One function stores: nothing else on a master makes bytes behind the log's end part of the log (decision 0058)."""

import ast
from collections import defaultdict

from tests.repo.trees import sources

APPEND = "towline/kernels/put/append.py"


def callers() -> dict[str, set[str]]:
    """Name of a function -> files of the product that call it, by that name or as an attribute."""
    found = defaultdict(set)
    for source in sources():
        if source.is_test:
            continue
        for node in ast.walk(source.tree):
            if isinstance(node, ast.Call):
                name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
                found[name].add(str(source.path))
    return found


def writers_of(position: str) -> set[str]:
    """Files of the product that ask for the right to write a position; benchmarks and the simulation stand in for
    processes."""
    found = set()
    for source in sources():
        stands_in = source.path.parts[0] == "loadtest" or source.path.parts[:2] == ("towline", "simulation")
        for node in ast.walk(source.tree) if not (source.is_test or stands_in) else ():
            is_call = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "writer"
            if is_call and any(isinstance(each, ast.Attribute) and each.attr == position for each in node.args):
                found.add(str(source.path))
    return found


def test_requests_are_validated_and_stamped_for_one_function_alone():
    assert callers()["append_whole"] == {APPEND}


def test_that_function_is_called_for_rows_of_the_socket_and_for_entries_of_rings():
    assert callers()["append_row"] == {APPEND, "towline/kernels/put/put_ring.py"}


def test_the_kernels_that_store_are_called_by_the_appender_and_the_rings_alone():
    found = callers()
    benches = {"loadtest/bench/kernel.py", "peers/layouts/one_log.py"}
    put = {"master/put/append.py", "master/put/rings.py", "master/put/service.py"}
    assert found["append_rows"] == put | benches
    assert found["serve_ring"] == {"master/put/rings.py"}


def test_the_end_of_a_log_has_one_writer_on_a_master_and_one_on_a_slave():
    assert writers_of("APPENDED") == {"master/put/append.py", "slave/receive.py"}
    assert callers()["open_tail"] == {"master/put/append.py", "slave/receive.py"}


def test_what_stores_the_first_word_of_a_record_or_blank_is_known():
    """Index files use the same store for their entries; a log's segment is ended by a blank."""
    assert callers()["store_first_word"] == {"towline/log/commitlog/commit_log.py", "towline/log/queues/index_file.py"}
