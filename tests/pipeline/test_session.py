"""What is refused before a JVM is started, what a failure is told as, and what is shipped."""

from pathlib import Path

import pytest
from pyspark.errors import PySparkRuntimeError

from towline.pipeline import session as sessions
from towline.pipeline.errors import IllegalMaster, IllegalOption, JavaMissing
from towline.pipeline.running import execute


def java_home(path: Path, version: str) -> Path:
    (path / "bin").mkdir(parents=True)
    (path / "bin" / "java").touch(mode=0o755)
    (path / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return path


class TestJava:
    def test_is_missing_where_java_home_leads_nowhere(self, monkeypatch, tmp_path):
        monkeypatch.setenv("JAVA_HOME", str(tmp_path))
        assert sessions.java_missing() == f"JAVA_HOME is {tmp_path}, which has no bin/java"

    def test_is_missing_where_path_has_none(self, monkeypatch, tmp_path):
        monkeypatch.delenv("JAVA_HOME", raising=False)
        monkeypatch.setenv("PATH", str(tmp_path))
        assert sessions.java_missing() == "JAVA_HOME is not set, and PATH leads to no java"

    @pytest.mark.parametrize(
        ("version", "right"), [("17.0.15", True), ("21", True), ("11.0.2", False), ("1.8.0", False)]
    )
    def test_is_of_a_version_that_spark_takes(self, monkeypatch, tmp_path, version, right):
        monkeypatch.setenv("JAVA_HOME", str(java_home(tmp_path / "jdk", version)))
        problem = sessions.java_missing()
        assert (problem is None) == right
        assert right or f"is of version {version.split('.')[0]}" in problem


@pytest.mark.parametrize(
    "master",
    [
        "local",
        "local[2]",
        "local[*]",
        "local[2,3]",
        "spark://h:7077",
        "yarn",
        "k8s://https://h",
        "sc://h",
        "sc://h:15002/;use_ssl=true",
    ],
)
def test_masters_of_spark_are_taken(master):
    sessions.check_master(master)


@pytest.mark.parametrize("master", ["lokal", "local[two]", "spark://h", "sc://", "sc://h:port", "", "tcp://h:1"])
def test_other_masters_are_refused(master):
    with pytest.raises(IllegalMaster, match="spark-submit takes them"):
        sessions.check_master(master)


class TestSentences:
    def test_of_a_task_is_the_last_line_of_its_traceback(self):
        text = (
            'Job aborted\n  Traceback (most recent call last):\n  File "x.py", line 1, in f\n'
            "towline.errors.NotInLog: offset 1 is not in the log\n\n\tat org.apache.spark.X(Y.scala)"
        )
        assert sessions.sentence_of(RuntimeError(text)) == "NotInLog: offset 1 is not in the log"

    @pytest.mark.parametrize(
        ("module", "remedy"),
        [("towline", "pipeline ship FILE"), ("towline.pipeline.stats", "--py-files"), ("numpy", "install")],
    )
    def test_what_the_executors_lack_is_said_with_the_remedy(self, module, remedy):
        text = (
            'Job aborted\n  Traceback (most recent call last):\n  File "x.py", line 1, in f\n'
            f"ModuleNotFoundError: No module named '{module}'\n\n\tat org.apache.spark.X(Y.scala)"
        )
        said = sessions.sentence_of(RuntimeError(text))
        assert said.startswith(f"the executors have no {module.split('.')[0]}: ")
        assert remedy in said

    def test_of_spark_is_its_first_line(self):
        text = "[PATH_NOT_FOUND] Path does not exist: file:/x. SQLSTATE: 42K03\n\tat org.apache"
        assert (
            sessions.sentence_of(RuntimeError(text)) == "[PATH_NOT_FOUND] Path does not exist: file:/x. SQLSTATE: 42K03"
        )

    def test_of_nothing_is_the_error_itself(self):
        assert sessions.sentence_of(KeyError()) == "KeyError"

    def test_the_rest_is_kept_in_a_file(self, tmp_path, monkeypatch):
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
        path = Path(sessions.kept_log(PySparkRuntimeError("boom")))
        assert path.parent == tmp_path
        assert "boom" in path.read_text()


class TestRuns:
    """What is refused is refused before Spark is asked for anything."""

    @pytest.fixture
    def no_session(self, monkeypatch):
        monkeypatch.setattr(sessions.SparkSession, "getActiveSession", lambda: None)

    def test_without_java_a_job_is_refused(self, no_session, monkeypatch, tmp_path):
        monkeypatch.setenv("JAVA_HOME", str(tmp_path))
        with pytest.raises(JavaMissing, match="install a Java runtime 17"):
            execute("stats", {"store": str(tmp_path)})

    def test_with_a_wrong_master_too(self, no_session, monkeypatch, tmp_path):
        monkeypatch.setenv("JAVA_HOME", str(java_home(tmp_path / "jdk", "17")))
        with pytest.raises(IllegalMaster):
            execute("stats", {"store": str(tmp_path)}, master="lokal")

    @pytest.mark.parametrize("conf", ["spark.x", "x=1", ""])
    def test_settings_are_sparks(self, conf, tmp_path):
        with pytest.raises(IllegalOption, match=r"is not spark\.NAME=VALUE"):
            execute("stats", {"store": str(tmp_path)}, conf=[conf])

    def test_a_report_needs_its_directory(self, tmp_path):
        with pytest.raises(IllegalOption, match="does not exist"):
            execute("stats", {"store": str(tmp_path)}, report=tmp_path / "none" / "report.html")
