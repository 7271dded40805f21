"""`towline pipeline` where a session is: the job takes it, and leaves it."""

import json

from tests.pipeline.test_command import made
from towline.cli.main import run

__all__ = ["made"]


def test_a_job_is_a_command_with_table_json_and_report(spark, made, tmp_path, capfd):
    report = tmp_path / "report.html"
    call = ["pipeline", "stats", "--store", str(made.root), "--by", "topic", "--top-keys", "1"]
    assert run([*call, "--json", "--report", str(report)]) == 0
    document = json.loads(capfd.readouterr().out)
    assert [(row["topic"], row["count"]) for row in document["rows"]] == [
        ("TopicA", 100),
        ("TopicB", 100),
        ("TopicC", 100),
    ]
    assert document["report"] == str(report)
    assert "data:image/png;base64," in report.read_text()
    assert run([*call, "--show", "2"]) == 0
    shown = capfd.readouterr().out
    assert "TopicB" in shown
    assert "TopicC" not in shown
    assert "and 1 more rows" in shown
    assert spark.range(3).count() == 3, "the session was another's, and goes on"


def test_a_failing_task_is_told_in_one_sentence_with_the_file_that_has_the_rest(
    spark, made, tmp_path, capfd, monkeypatch
):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    made.write(made.rows[150]["commitLogOffset"] + 4, b"\1\2\3\4")
    assert run(["pipeline", "stats", "--store", str(made.root), "--json"]) == 1
    done = capfd.readouterr()
    error = json.loads(done.out)
    assert error["error"] == "JobFailed"
    assert str(made.rows[150]["commitLogOffset"]) in error["sentence"]
    assert "Traceback" not in done.err
    (kept,) = tmp_path.glob("towline-spark-*.log")
    assert str(kept) in error["sentence"]
    assert "Traceback" in kept.read_text()
