"""Results in a directory are listed, shown and given out, and nothing outside of it is."""

import json
import os
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from tests.web.asked import MadeUp
from towline.web import reports as module
from towline.web.app import Parts, app_of
from towline.web.errors import NothingFound
from towline.web.hub import Hub
from towline.web.questions import Questions
from towline.web.reports import Reports

DRILL = {
    "drill": "kill-master",
    "passed": True,
    "acknowledged": 12_345,
    "lost": 0,
    "events": [{"what": "kill", "t": 1.5}],
}
FAILED = DRILL | {"passed": False, "faults": ["2 lost"], "lost": 2}
PEERS = {
    "rows": [{"name": "put 100 B", "systems": {"towline": {"per_s": 4_480_000.0}, "kafka": {"per_s": 1_000.0}}}],
    "goals": [{"goal": "T1", "reached": 3.2}],
    "versions": {"towline": "0.1.0", "kafka": "4"},
    "machine": {"cpus": 2},
}
LOAD = {"rows": [{"kind": "PUT", "p99_ms": 3.0}], "errors": {}, "seconds": 10.0, "broken": ["p99 is 3 ms"]}
ROW = {"row": "F1", "injected": 20, "acknowledged": 1_000, "lost": 0, "failed": [], "missing": []}
FAULTS = {"faults": "short", "machine": {"cpus": 2}, "rows": [ROW, ROW | {"row": "F2", "lost": None}]}
PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "reports"
    (made / "kill-master").mkdir(parents=True)
    (made / "kill-master" / "result.json").write_text(json.dumps(DRILL))
    (made / "kill-master" / "timeline.png").write_bytes(PNG)
    (made / "kill-master" / "report.html").write_text("<script>alert(1)</script>")
    (made / "failed.json").write_text(json.dumps(FAILED))
    (made / "peers.json").write_text(json.dumps(PEERS))
    (made / "summary.json").write_text(json.dumps(LOAD))
    (made / "stores.json").write_text("{}")
    (made / "broken.json").write_text("{")
    (tmp_path / "secret.json").write_text(json.dumps(DRILL))
    (made / "link.json").symlink_to(tmp_path / "secret.json")
    (made / "loop.json").symlink_to("loop.json")
    return made


def page(root: Path | None) -> TestClient:
    parts = Parts(Hub(MadeUp()), Questions(dict), Reports(root))
    return TestClient(app_of(parts), base_url="http://127.0.0.1")


def test_results_are_told_by_their_members_with_whether_they_passed(root: Path) -> None:
    found = {row["path"]: (row["kind"], row["passed"]) for row in page(root).get("/api/reports").json()["reports"]}
    assert found == {
        "kill-master/result.json": ("drill", True),
        "failed.json": ("drill", False),
        "peers.json": ("comparison", None),
        "summary.json": ("load test", False),
    }


def test_a_result_is_shown_as_facts_and_tables_with_the_files_beside_it(root: Path) -> None:
    said = page(root).get("/api/report", params={"path": "kill-master/result.json"}).json()
    assert said["title"] == "kill-master: 12,345 acknowledged, 0 lost"
    assert ["acknowledged", "12,345"] in said["facts"]
    assert said["tables"] == [{"caption": "events", "columns": ["what", "t"], "rows": [["kill", "1.5"]]}]
    assert said["files"] == [f"kill-master/{name}" for name in ("report.html", "result.json", "timeline.png")]


def test_a_comparison_has_a_column_for_each_system(root: Path) -> None:
    first, goals = Reports(root).one("peers.json")["tables"]
    assert first["columns"] == ["work", "towline", "kafka"]
    assert first["rows"] == [["put 100 B", "4,480,000", "1,000"]]
    assert goals["rows"] == [["T1", "3.2"]]


def test_a_fault_matrix_has_a_row_for_each_fault_and_passes_where_none_failed_or_was_missed(tmp_path: Path) -> None:
    for name, row in {"whole": ROW, "failed": ROW | {"failed": ["x"]}, "missed": ROW | {"missing": ["root"]}}.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(FAULTS | {"rows": [row, FAULTS["rows"][1]]}))
    passed = {row["path"]: row["passed"] for row in Reports(tmp_path).all()["reports"]}
    assert passed == {"whole.json": True, "failed.json": False, "missed.json": False}
    shown = Reports(tmp_path).one("whole.json")
    assert (shown["kind"], shown["title"]) == ("fault matrix", "fault matrix: 2 rows, 40 faults, 0 lost")
    assert [row[0] for row in shown["tables"][0]["rows"]] == ["F1", "F2"]


def test_a_picture_is_shown_and_any_other_file_is_a_download(root: Path) -> None:
    client = page(root)
    picture = client.get("/api/file", params={"path": "kill-master/timeline.png"})
    assert (picture.headers["content-type"], picture.content) == ("image/png", PNG)
    other = client.get("/api/file", params={"path": "kill-master/report.html"})
    assert other.headers["content-type"] == "application/octet-stream"
    assert other.headers["content-disposition"].startswith("attachment")


@pytest.mark.parametrize(
    "path",
    [
        "../secret.json",
        "link.json",
        "loop.json",
        "/etc/passwd",
        "kill-master/../../secret.json",
        "none.json",
        "",
        "\0",
        "kill-master",
    ],
)
@pytest.mark.parametrize("question", ["report", "file"])
def test_nothing_outside_of_the_directory_is_given_out(root: Path, path: str, question: str) -> None:
    answer = page(root).get(f"/api/{question}", params={"path": path})
    assert answer.status_code == 404
    assert answer.json()["error"] == "NothingFound"


UNREADABLE = [
    PEERS | {"versions": 3},
    PEERS | {"versions": [1, "a"]},
    {"figures": 1, "machines": {}},
]
LISTED_ALONE = [
    PEERS | {"rows": [{}]},
    PEERS | {"rows": 1},
    PEERS | {"rows": [{"name": "put", "systems": {"towline": 1}}]},
    {"figures": [1], "machines": {}},
    {"figures": [{"results": []}], "machines": {}},
]


@pytest.mark.parametrize("odd", UNREADABLE + LISTED_ALONE)
def test_a_result_with_odd_members_hides_no_other_one_and_is_refused_by_name(root: Path, odd: object) -> None:
    (root / "odd.json").write_text(json.dumps(odd))
    client = page(root)
    rows = {row["path"]: row for row in client.get("/api/reports").json()["reports"]}
    assert len(rows) == 5
    if odd in UNREADABLE:
        assert (rows["odd.json"]["kind"], rows["odd.json"]["passed"]) == ("unreadable", None)
        assert "cannot be shown" in rows["odd.json"]["title"]
    answer = client.get("/api/report", params={"path": "odd.json"})
    assert (answer.status_code, answer.json()["error"]) == (422, "UnreadableReport")
    assert "odd.json" in answer.json()["sentence"]


@pytest.mark.parametrize(
    ("odd", "title", "passed"),
    [
        (FAILED | {"acknowledged": None}, "kill-master: null acknowledged, 2 lost", False),
        (DRILL | {"acknowledged": [1]}, "kill-master: [1] acknowledged, 0 lost", True),
        (LOAD | {"seconds": "10"}, "load test of 10 s", False),
        (LOAD | {"seconds": None}, "load test of null s", False),
        (DRILL | {"drill": "\udcff"}, "\udcff: 12,345 acknowledged, 0 lost", True),
    ],
)
def test_a_drill_without_a_figure_still_says_whether_it_passed(
    root: Path, odd: dict[str, object], title: str, passed: bool
) -> None:
    (root / "odd.json").write_text(json.dumps(odd))
    client = page(root)
    rows = {row["path"]: (row["title"], row["passed"]) for row in client.get("/api/reports").json()["reports"]}
    assert rows["odd.json"] == (title, passed)
    assert client.get("/api/report", params={"path": "odd.json"}).json()["title"] == title


def test_a_file_whose_name_is_no_text_is_left_out(root: Path) -> None:
    for name in (b"\xff.json", b"\xff.png"):
        (root / os.fsdecode(name)).write_text(json.dumps(DRILL))
    client = page(root)
    assert len(client.get("/api/reports").json()["reports"]) == 4
    files = client.get("/api/report", params={"path": "failed.json"}).json()["files"]
    assert files == [f"{name}.json" for name in ("broken", "failed", "link", "peers", "stores", "summary")]
    (root / "in.json").symlink_to(os.fsdecode(b"\xff.json"))
    for question in ("report", "file"):
        assert client.get(f"/api/{question}", params={"path": "in.json"}).status_code == 404


def test_no_more_files_are_looked_at_than_a_person_waits_for(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(100):
        (root / "kill-master" / f"{number}.json").write_text(json.dumps(DRILL))
    monkeypatch.setattr(module, "LOOKED_MAX", 20)
    client = page(root)
    assert 0 < len(client.get("/api/reports").json()["reports"]) <= 20
    said = client.get("/api/report", params={"path": "kill-master/result.json"}).json()
    assert 0 < len(said["files"]) <= 20


def test_results_lie_so_deep_and_no_deeper(root: Path) -> None:
    deep = root
    for name in ("a", "b", "c", "d"):
        deep /= name
        deep.mkdir()
        (deep / "result.json").write_text(json.dumps(DRILL))
    paths = {row["path"] for row in page(root).get("/api/reports").json()["reports"]}
    assert {path for path in paths if path.startswith("a/")} == {
        f"{name}/result.json" for name in ("a", "a/b", "a/b/c")
    }


def test_without_a_directory_there_are_none(root: Path) -> None:
    assert page(None).get("/api/reports").json() == {"directory": None, "reports": []}
    with pytest.raises(NothingFound):
        Reports(None).one("failed.json")


def test_the_results_of_this_repository_are_shown() -> None:
    recorded = Reports(Path(__file__).parents[2] / "loadtest" / "results")
    kinds = {row["kind"] for row in recorded.all()["reports"]}
    assert kinds == {"comparison", "fault matrix", "figures", "layouts"}
    assert all(recorded.one(row["path"])["tables"] for row in recorded.all()["reports"])
    [layouts] = recorded.one("layouts.json")["tables"]
    assert {"system", "queues", "flush", "per_s", "p99_us"} <= set(layouts["columns"])
