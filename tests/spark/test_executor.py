"""What a task needs on its machine: numpy and pyarrow, nothing of a server or of a client; and what it leaves there."""

import pickle
import subprocess
import sys

from pyspark.sql.datasource import CaseInsensitiveDict

from pyspark_towline import DefaultSource

from .stores import MadeStore

TASK = """
import pickle, sys

MISSING = {"numba", "llvmlite", "psutil", "pydantic", "zmq", "orjson", "lark", "mmh3", "lz4", "backports", "urllib3"}

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in MISSING:
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Blocked())
source, reader, partitions = pickle.load(sys.stdin.buffer)
print(sum(batch.num_rows for partition in partitions for batch in reader.read(partition)))
"""


WORKER = """
import gc, sys
from importlib.machinery import ModuleSpec

import pyspark_towline
from towline.spark.daemons import keep_loaded

keep_loaded()
assert gc.get_freeze_count() == 0, "this is no worker"
sys.modules["__main__"].__spec__ = ModuleSpec("pyspark.daemon", None)
keep_loaded()
kept = gc.get_freeze_count()
assert kept > 10_000, kept
later = [[] for _ in range(kept)]
keep_loaded()
assert len(later) == kept >= gc.get_freeze_count(), "once is enough"
"""


def test_numpy_and_pyarrow_are_enough(tmp_path):
    """Spark sends the data source, a copy of the reader and the partition."""
    made = MadeStore(tmp_path / "store").whole(200)
    source = DefaultSource(CaseInsensitiveDict({"path": str(made.root)}))
    for options in ({"readMode": "scan"}, {"readMode": "queue"}):
        source.options.update(options)
        reader = source.reader(source.schema())
        sent = pickle.dumps((source, reader, reader.partitions()))
        done = subprocess.run([sys.executable, "-c", TASK], input=sent, capture_output=True, check=False)
        assert done.stdout.decode().strip() == "200", done.stderr.decode()


def test_what_reads_beside_a_running_node_loads_no_compiler():
    """Each start of a stream is a process of its own, and each plan of a read may be one."""
    modules = ("towline.spark.streaming", "towline.spark.live", "towline.spark.sink")
    code = f"import sys, {', '.join(modules)}; print('numba' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert done.stdout == b"False\n", done.stderr.decode()


def test_a_worker_of_the_daemon_keeps_what_it_has_loaded_out_of_its_collections():
    done = subprocess.run([sys.executable, "-c", WORKER], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
