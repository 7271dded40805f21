"""What users of the client need not install must not be imported by it."""

import subprocess
import sys

SERVER_ONLY = ("numba", "pyspark", "pyarrow", "locust", "pydantic", "pydantic_settings", "psutil", "typer")
PROGRAM = """
import sys
import towline.client.admin, towline.client.consumer, towline.client.producer, towline.client.transaction
print(*sorted(name for name in sys.modules if "." not in name or name.startswith("towline.")))
"""
ALLOWED = (
    *("towline.client", "towline.errors", "towline.format", "towline.limits", "towline.fence"),
    *("towline.clock", "towline.link", "towline.route"),
)


def test_the_client_imports_nothing_that_only_a_server_needs() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=True)
    imported = set(done.stdout.split())
    assert not imported & set(SERVER_ONLY)
    own = {name for name in imported if name.startswith("towline.")}
    assert not {name for name in own if not name.startswith(ALLOWED)}
    assert not imported & {"urllib3", "towline.client.rocketmq.link", "towline.format.remoting.headers"}
