"""`towline web`: the live page of a cluster."""

from pathlib import Path
from typing import Annotated

import typer

from .lazy import load_module
from .options import Endpoint, Json, LocalStore


def web(
    endpoint: Endpoint = None,
    store: LocalStore = None,
    file: Annotated[
        Path | None,
        typer.Option("--file", "-f", help="The cluster file, as --endpoint cluster:FILE.", dir_okay=False),
    ] = None,
    host: Annotated[
        str, typer.Option(help="Address to listen at. One that others reach needs a token, which is made and printed.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="TCP port of the page; 0 takes any that is free.")] = 8088,
    token_file: Annotated[
        Path | None,
        typer.Option(help="A file of one line: browsers have to show it, also on this machine.", dir_okay=False),
    ] = None,
    reports: Annotated[
        Path | None,
        typer.Option(help="Directory with results of drills and benchmarks to show.", exists=True, file_okay=False),
    ] = None,
    as_json: Json = False,
) -> None:
    """Serve a live page of a cluster until Ctrl-C: nodes, topics, groups, messages, segments, refusals, reports.

    `--endpoint` names one node, several with commas, or a cluster (`cluster:FILE`). The nodes are asked while a browser
    looks, and the page changes nothing.
    """
    work = load_module("towline.cli.web_work", "web")
    work.web(endpoint, store, file, host, port, token_file, reports, as_json)
