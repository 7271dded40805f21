"""The largest messages that a default broker takes, from either side."""

from dataclasses import replace

from towline.format.record.properties import UNIQ_KEY
from towline.limits import MIB

from .checks import check_read
from .conftest import Started
from .jvm import RealStore
from .model import LONGEST, Sent
from .towlines import REAL_SETTINGS, TowlineStore

SEGMENT = 5 * MIB
BODY = 4 * MIB
PROPERTIES = 32_767


def largest(number: int) -> Sent:
    """A body of 4 MiB, properties of 32,767 bytes, a topic of 127 bytes."""
    message = Sent(LONGEST, 0, bytes([number]) * BODY, f"{number:032X}", born_host="fe80::1")
    name = "filled"
    taken = len(UNIQ_KEY) + len(message.key) + len(name) + 2 * len("\x01\x02")
    return replace(message, more={name: "v" * (PROPERTIES - taken)})


def test_each_reads_the_largest_messages_of_the_other(release, jvms: Started, tmp_path):
    real = RealStore(jvms(release), tmp_path / "store", **{**REAL_SETTINGS, "mappedFileSizeCommitLog": SEGMENT})
    towline = TowlineStore(tmp_path / "store", mapped_file_size_commit_log=SEGMENT, broker_ip1="fe80::2")
    try:
        with towline.running():
            towline.send([largest(1), largest(2)])
        real.open()
        check_read(real, [largest(1), largest(2)])
        specs = [largest(number).spec("fe80::2") for number in (3, 4)]
        real.put(specs)
        found = real.read()
        real.close()
        with towline.running():
            assert check_read(towline, [largest(number) for number in (1, 2, 3, 4)]) == found
    finally:
        towline.end()
