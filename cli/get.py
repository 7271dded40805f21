"""`towline get`: read messages of a topic."""

from typing import Annotated

import typer

from .lazy import load_module
from .options import Endpoint, Json, LocalStore

Format = Annotated[
    str | None,
    typer.Option(
        "--format",
        metavar="TEMPLATE",
        help="Print each message so: '%t %q %o %k %v\\n' is topic, queue, offset, key and body in a line.",
    ),
]


def get(
    topic: Annotated[str, typer.Argument(help="Topic to read.")],
    queue: Annotated[int | None, typer.Option(min=0, help="Only this queue.")] = None,
    start: Annotated[
        str, typer.Option("--from", metavar="first|last|OFFSET|TIME", help="Where to begin; TIME as 2026-01-31T12:00.")
    ] = "first",
    count: Annotated[
        int | None, typer.Option("--max", min=1, help="Messages at most; 10, or without end if --follow.")
    ] = None,
    tags: Annotated[str, typer.Option(help="One tag, or several as 'a || b'.")] = "*",
    sql: Annotated[
        str, typer.Option(help="An SQL92 expression on properties, such as \"price > 5 AND colour = 'red'\".")
    ] = "",
    follow: Annotated[
        bool, typer.Option("--follow", help="Wait for new messages, until Ctrl-C; one line for each.")
    ] = False,
    group: Annotated[
        str | None,
        typer.Option(
            "--group",
            metavar="NAME",
            help="With --follow: as a member of this consumer group, from where it stands; --from is for a new one.",
        ),
    ] = None,
    check_crcs: Annotated[
        bool, typer.Option("--check-crcs/--no-check-crcs", help="Stop at a body that is not what was stored.")
    ] = True,
    format_: Format = None,
    endpoint: Endpoint = None,
    store: LocalStore = None,
    as_json: Json = False,
) -> None:
    """Read messages of one queue or of all queues of a topic.

    With --follow, --json prints one document per message. A member of a group shares the topic's queues with the other
    members. What it has printed is committed every 5 seconds and when it ends; after a kill the rest comes again.
    """
    load_module("towline.cli.get_work", "cli").get(
        topic, queue, start, count, tags, sql, follow, group, check_crcs, format_, endpoint, store, as_json
    )
