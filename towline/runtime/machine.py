"""What the memory rules rest on, asked once at start."""

import platform
import sys
from pathlib import Path

from towline.errors import UnsupportedMachine


def check_machine() -> None:
    """Raises UnsupportedMachine unless stores become visible in the order they were made (x86-64 on Linux).

    "Bytes, then position" is two plain stores; an arm64 reader may see the second first. Whoever adds a release store
    for another machine removes this refusal.
    """
    if sys.platform != "linux" or platform.machine() != "x86_64":
        raise UnsupportedMachine(sys.platform, platform.machine())


def boot_id() -> str:
    """Changes with every boot of the machine: positions of another boot are of no worth."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
