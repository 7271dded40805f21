"""The client alone, installed in an environment of its own: no numba, no Spark, no locust."""

import pytest

import towline
from tests.pages.environment import Environment

NOT_A_CLIENTS = (
    "typer",
    "rich",
    "lark",
    "mmh3",
    "numba",
    "llvmlite",
    "psutil",
    "pydantic",
    "javaproperties",
    "pyspark",
    "locust",
    "pandas",
    "peers",
)
PROGRAM = """
import importlib.util, sys
import towline
from towline import *
print([name for name in sys.argv[1:] if importlib.util.find_spec(name)])
try:
    Producer("nonsense")
except TowlineError as error:
    print(type(error).__name__, towline.__version__)
"""


@pytest.mark.timeout(240)
def test_a_client_is_installed_alone_and_the_command_says_what_it_needs(tmp_path):
    environment = Environment(tmp_path)
    environment.install()
    said = environment.run("python", "-c", PROGRAM, *NOT_A_CLIENTS)
    assert said.returncode == 0, said.stderr
    assert said.stdout.splitlines() == ["[]", f"InvalidEndpoint {towline.__version__}"]
    assert {name for name in environment.names() if name != ".."} == {
        "towline",
        "pyspark_towline.py",
        f"towline-{towline.__version__}.dist-info",
        "__pycache__",
    }
    refused = environment.run("towline", "version")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "pip install 'towline[cli]'" in refused.stderr
    environment.install("[cli]")
    assert towline.__version__ in environment.run("towline", "version").stdout
    said = environment.run("towline", "bench", "peers")
    assert said.returncode == 1
    assert "clone Towline's repository, run `make .venv/ready` there" in said.stderr
