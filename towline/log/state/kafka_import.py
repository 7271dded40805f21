"""What an import from Kafka leaves in a store while it lasts: `kafka-import/`, and in it `begun.json` at its end."""

import shutil

from towline.log.errors import ImportUnfinished
from towline.log.files.config_file import ConfigFile
from towline.places import Store


def check_imported(store: Store) -> None:
    """Refuses the start of a store of whose import a part may stand in the log. Raises ImportUnfinished."""
    if store.kafka_import_begun.exists():
        content = ConfigFile(store.kafka_import_begun).load() or {}
        raise ImportUnfinished(str(store.root), str(content.get("source", "")), str(content.get("options", "")))


def clear_ended(store: Store) -> None:
    """Removes what is left of an import that has ended, or was taken away. Nobody else works on the store."""
    if store.kafka_import_ended.is_dir():
        shutil.rmtree(store.kafka_import_ended)
