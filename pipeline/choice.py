"""Options by which jobs choose messages; the data source has the same ones."""

from dataclasses import dataclass
from datetime import UTC, datetime

from towline.arrow.decode import OnCorruption
from towline.filter.errors import BadExpression
from towline.filter.tags import parse as parse_tags
from towline.spark.options import SourceOptions

from .errors import IllegalOption
from .options import option, store_option


@dataclass(frozen=True, slots=True, kw_only=True)
class Care:
    """What becomes of messages of a store that are not what was stored, as the data source's options say it."""

    check_crcs: bool = option("Compare the CRC of every body that is read of a store.", default=True)
    on_corruption: OnCorruption = option(
        "At a damaged record fail, stop reading its segment there, or skip to the next one.", default="fail"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageChoice(Care):
    """Of a store's files. System topics and half messages are hidden unless `system`."""

    store: str = store_option()
    topic: tuple[str, ...] = option("Only this topic; give it several times.", default=(), metavar="NAME")
    tags: str = option("Only messages with one of these tags, as a subscription has them: a || b.", default="*")
    since: str | None = option("Stored then or later; 2026-01-31T12:00, UTC unless it says.", default=None)
    until: str | None = option("Stored before then.", default=None)
    system: bool = option("The broker's own topics and half messages, too.", default=False)

    def __post_init__(self) -> None:
        self.source()

    def source(self) -> SourceOptions:
        """Raises IllegalOption."""
        try:
            parse_tags(self.tags)
        except BadExpression as error:
            raise IllegalOption("tags", error.describe()) from None
        return SourceOptions(
            path=self.store,
            subscribe=self.topic or None,
            sub_expression=self.tags,
            starting_timestamp=time_ms("since", self.since),
            ending_timestamp=time_ms("until", self.until),
            include_system_topics=self.system,
            include_halves=self.system,
            check_crcs=None if self.check_crcs else False,
            on_corruption=self.on_corruption,
        )


def time_ms(name: str, text: str | None) -> int | None:
    """Milliseconds since 1970 of a time in ISO 8601. Raises IllegalOption, which names the option."""
    if text is None:
        return None
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise IllegalOption(name, f"{text!r} is not a time as 2026-01-31T12:00") from None
    found = round((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000)
    if found < 0:
        raise IllegalOption(name, f"{text} lies before 1970")
    return found
