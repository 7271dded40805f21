"""What a supervisor and a zygote load, and what not."""

import subprocess
import sys

from towline import start


def test_a_supervisor_loads_no_kernel():
    """It would be the same work twice, on the way to the first acknowledgement: kernels are the zygote's to load."""
    program = "import sys, towline.node.supervise.bootstrap; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], cwd=start.home(), capture_output=True, text=True, check=True)
    loaded = {name.split(".")[0] for name in done.stdout.split()} | set(done.stdout.split())
    assert "towline.node.supervise.supervisor" in loaded
    assert not loaded & {"numba", "llvmlite", "zmq", "towline.kernels"}


def test_a_zygote_loads_numpy_with_the_kernels_and_nothing_before_it():
    """What stands before its first line is waited for by recover, which needs the kernels first."""
    program = "import sys, towline.node.process.zygote; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], cwd=start.home(), capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "towline.node.process.zygote" in loaded
    assert not loaded & {"numpy", "zmq", "pydantic", "towline.kernels"}
