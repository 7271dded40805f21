"""What Towline wrote, read and continued by the real store, and taken back."""

import pytest

from .checks import check_read, mixed_specs, mixture
from .releases import NEWEST_RELEASE

COUNT = 1500


@pytest.mark.parametrize("release", NEWEST_RELEASE, ids=str)
@pytest.mark.parametrize("killed", [False, True], ids=["stopped", "killed"])
def test_the_real_store_reads_and_continues_it_and_towline_takes_it_back(release, real, towline, killed):
    messages = mixture(1, release)
    towline.start()
    sent = messages.take(COUNT)
    towline.send(sent)
    if killed:
        towline.kill(seed=1)
    else:
        mine = towline.read()
        towline.stop()
    assert len(list((towline.root / "commitlog").iterdir())) > 2

    # Without it an unclean start deletes the newest index file and indexes only what its walk of the log passes.
    real.configure(messageIndexSafe=killed)
    real.open()
    found = check_read(real, sent)
    if not killed:
        assert found == mine
    put, specs = mixed_specs(messages, 300, 30)
    real.put(specs)
    sent += put
    found = real.read()
    real.close()

    with towline.running():
        assert check_read(towline, sent) == found
        more = messages.take(300)
        towline.send(more)
        sent += more
        mine = towline.read()

    real.open()
    assert check_read(real, sent) == mine
    real.close()
