"""What docs/kafka-exchange.md types for an import works as it stands there."""

import re
from pathlib import Path

from tests.kafka.exchange.imports import directory, messages_of
from tests.kafka.samples import rows_in, write_plain
from towline.cli.main import run
from towline.kafka.exchange import names
from towline.limits import GIB

PAGE = Path(__file__).parents[3] / "docs" / "kafka-exchange.md"


def typed(section: str) -> list[list[str]]:
    """The commands of a section's first block."""
    text = PAGE.read_text().partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    block = re.search(r"```sh\n(.*?)```", text, re.DOTALL)
    assert block is not None
    return [line.split() for line in block[1].splitlines()]


def test_an_import_is_typed_as_the_page_says(tmp_path):
    source = directory(tmp_path / "kafka-logs")
    write_plain(source)
    first, start = typed("Import")
    places = {"/tmp/kafka-logs": str(source), "/tmp/shop": str(tmp_path / "shop")}
    assert run([places.get(word, word) for word in first[1:]]) == 0
    assert [message.row for message in messages_of(tmp_path / "shop", "topic", size=GIB)] == rows_in(source / "topic-0")
    assert start == ["towline", "master", "start", "--store", "/tmp/shop"]


def test_the_page_and_the_module_name_the_same_properties():
    wanted = {value for name, value in vars(names).items() if name.isupper() and str(value).startswith(names.PREFIX)}
    table = PAGE.read_text().partition("## Names of properties")[2].partition("\n## ")[0]
    named = {row.split("|")[1].strip() for row in table.splitlines() if row.startswith("| KAFKA_")}
    assert named == wanted - {names.PREFIX}
    assert names.__doc__ is not None
    assert all(name in names.__doc__ for name in named)
