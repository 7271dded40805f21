"""`towline web` as people start and end it."""

import http.client
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.processes.nodes import TestNode, ending, free_port
from tests.web.asked import events
from tests.web.serving import ENDS_S, TOWLINE, Served, served
from towline.start import home

NOBODY = "tcp://127.0.0.1:1"


def refused(*words: str) -> str:
    done = subprocess.run([*TOWLINE, "web", *words], cwd=home(), capture_output=True, text=True, timeout=ENDS_S)
    assert done.returncode == 1
    assert not done.stdout
    return done.stderr


@contextmanager
def stream(page: Served, parts: str = "") -> Iterator[http.client.HTTPResponse]:
    place = urlsplit(page.url)
    with closing(http.client.HTTPConnection(str(place.hostname), place.port, timeout=ENDS_S)) as connection:
        connection.request("GET", f"/api/live?parts={parts}")
        with connection.getresponse() as heard:
            yield heard


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_ends_in_order_also_while_a_browser_listens(number: signal.Signals) -> None:
    with served("--endpoint", NOBODY) as page, stream(page) as heard:
        assert heard.readline() == b"event: state\n"
        page.process.send_signal(number)
        _, complaints = page.process.communicate(timeout=ENDS_S)
        assert page.process.returncode == 0
        assert not complaints


def test_of_a_store_on_this_machine_its_node_is_looked_at(tmp_path: Path) -> None:
    node = TestNode("master", tmp_path / "node")
    with ending(node), served("--store", str(node.store.root)) as page:
        node.start()
        said = b""
        with stream(page, "segments") as heard:
            while b"event: segments" not in said or not said.endswith(b"\n\n"):
                said += heard.readline()
        told = list(events(said))
        sections = next(document for event, document in told if event == "nodes" and document["nodes"])
        [found] = sections["nodes"].values()
        assert found["head"]["role"] == "master"
        [[label, facts]] = next(document for event, document in told if event == "segments")["all"]
        assert label == f"{found['head']['broker_name']}-{found['head']['broker_id']}"
        base, _, allocated, share, archived = facts["segments"][0]
        assert (base, archived) == (0, False)
        assert allocated > 0
        assert 0 <= share <= 1
        assert page.end() == 0


def test_beyond_this_machine_a_token_is_made_and_printed_once() -> None:
    with served("--endpoint", NOBODY, "--host", "0.0.0.0") as page:
        address, _, token = page.url.partition("?token=")
        assert len(token) >= 32
        page.url = address
        assert page.ask("reports")[0] == 401


def test_a_token_of_a_file_is_wanted_on_this_machine_too_and_not_printed(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("0123456789abcdef\n")
    file.chmod(0o600)
    with served("--endpoint", NOBODY, "--token-file", str(file)) as page:
        assert "0123456789abcdef" not in page.url
        assert page.ask("reports")[1]["error"] == "TokenMissing"


@pytest.mark.parametrize(
    ("text", "mode", "why"),
    [("short", 0o600, "16 characters"), ("0123456789abcdef", 0o644, "chmod 600"), (None, 0, "No such file")],
    ids=["short", "open", "missing"],
)
def test_a_token_file_that_is_none_is_refused_with_the_reason(
    tmp_path: Path, text: str | None, mode: int, why: str
) -> None:
    file = tmp_path / "token"
    if text is not None:
        file.touch(mode=0o600)
        file.write_text(text)
        file.chmod(mode)
    assert why in refused("--endpoint", NOBODY, "--token-file", str(file))


def test_a_port_that_is_taken_is_told_with_what_else_to_do() -> None:
    with socket.create_server(("127.0.0.1", free_port())) as taken:
        said = refused("--endpoint", NOBODY, "--port", str(taken.getsockname()[1]))
    assert "Address already in use" in said
    assert "--port 0" in said


def test_a_cluster_file_that_is_not_there_is_refused_before_anything_is_served(tmp_path: Path) -> None:
    assert "cluster.toml" in refused("-f", str(tmp_path / "cluster.toml"), "--port", "0")
