"""What the real store wrote, read and continued by Towline, and taken back."""

import json
import subprocess
import sys

import pytest

from towline.format.files.topics import TopicConfig, TopicTable, topics_content

from .checks import check_read, divided, mixed_specs, mixture
from .jvm import RealStore
from .model import QUEUES, RETRY_V2, TOPICS
from .releases import NEWEST_RELEASE
from .towlines import REAL_SETTINGS

COMMAND = "from towline.start import main; main()"
SINGLES = 900
BATCHES = 60


def topics_file(store, release) -> None:
    """As a broker writes it; a bare DefaultMessageStore has none."""
    names = (*TOPICS, RETRY_V2) if release.knows_v2 else TOPICS
    topics = {name: TopicConfig(topic_name=name, read_queue_nums=QUEUES, write_queue_nums=QUEUES) for name in names}
    (store.root / "config").mkdir(parents=True, exist_ok=True)
    (store.root / "config" / "topics.json").write_text(json.dumps(topics_content(TopicTable(topics=topics))))


@pytest.mark.parametrize("release", NEWEST_RELEASE, ids=str)
@pytest.mark.parametrize("end", ["closed", pytest.param("halted", marks=pytest.mark.slow), "killed"])
def test_towline_reads_and_continues_it_and_the_real_store_takes_it_back(
    release, real, start_jvm, tmp_path, towline, end
):
    messages = mixture(2, release)
    sent, specs = mixed_specs(messages, SINGLES, BATCHES)
    unpromised = []
    if end == "closed":
        real.open()
        real.put(specs)
        found = real.read()
        real.close()
        check_sound(real)
    else:
        jvm = start_jvm(release)
        dying = RealStore(jvm, real.root, **REAL_SETTINGS)
        dying.open()
        sent, unpromised = (halted if end == "halted" else killed)(jvm, dying, sent, specs)
        assert (real.root / "abort").exists()
    if end != "halted":  # then Towline finds the topics by itself
        topics_file(real, release)

    with towline.running():
        mine = check_read(towline, sent, unpromised)
        if end == "closed":
            assert mine == found
        sent += [message for message in unpromised if message.key in {each["properties"]["UNIQ_KEY"] for each in mine}]
        more = messages.take(300)
        towline.send(more)
        sent += more
        mine = towline.read()

    real.open()
    assert check_read(real, sent) == mine
    real.close()


def halted(jvm, dying, sent, specs):
    """Runtime.halt right behind the last acknowledgement."""
    dying.put(specs)
    jvm.tell(op="halt")
    jvm.await_end()
    return sent, []


def killed(jvm, dying, sent, specs):
    """kill -9 in the middle of a stream of puts: what was acknowledged, and what was not."""
    return divided(sent, specs, jvm.stream_until_killed(specs, len(specs) * 2 // 3))


def check_sound(real):
    """`towline store verify` finds nothing wrong in it; its configuration is a broker's."""
    configuration = real.root.parent / "broker.conf"
    configuration.write_text("".join(f"{name}={value}\n" for name, value in REAL_SETTINGS.items()))
    words = ("store", "verify", "--store", str(real.root), "--config", str(configuration), "--json")
    done = subprocess.run([sys.executable, "-c", COMMAND, *words], capture_output=True, text=True, check=False)
    found = json.loads(done.stdout)
    assert done.returncode == 0, found
    assert {row["rule"] for row in found["findings"]} <= {"INDEX_OTHERS"}
