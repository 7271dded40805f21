"""The process folders have common names; another package of such a name must not be started in their place."""

import os
import subprocess
import sys

import pytest

from towline import start
from towline.errors import ShadowedPackage


def test_our_folders_are_siblings_of_towline():
    start.check_siblings()


def test_a_strangers_package_is_named_with_both_paths(tmp_path, monkeypatch):
    (tmp_path / "flush").mkdir()
    (tmp_path / "flush" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "flush", raising=False)
    with pytest.raises(ShadowedPackage) as refused:
        start.check_siblings()
    assert refused.value.args == ("flush", str(tmp_path), str(start.home()))


def test_the_command_says_so_and_does_not_start(tmp_path):
    (tmp_path / "ha").mkdir()
    (tmp_path / "ha" / "__init__.py").touch()
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{start.home()}"}
    command = [sys.executable, "-P", "-c", "from towline.start import main; main()", "version"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("towline: the package 'ha' comes from")
    assert done.stdout == ""


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
