"""Does the work of `towline web`."""

from functools import partial
from pathlib import Path

import typer
from rich.console import Console

from towline.web.app import Parts
from towline.web.hub import Hub
from towline.web.questions import Questions, Ways, ways_of
from towline.web.reports import Reports
from towline.web.server import bound, serve, token_of, url_of
from towline.web.source import Source, Where, of_endpoint

from .endpoints import named_node, service_of
from .output import show


def web(
    endpoint: str | None,
    store: Path | None,
    file: Path | None,
    host: str,
    port: int,
    token_file: Path | None,
    reports: Path | None,
    as_json: bool,
) -> None:
    """Until Ctrl-C. Raises BadToken, NotServed, and what the endpoint is refused for."""
    where, ways = _nodes(endpoint, store, file)
    token, made = token_of(host, token_file)
    listening = bound(host, port)
    url = url_of(listening) + (f"?token={token}" if made else "")

    def parts() -> Parts:
        return Parts(Hub(Source(where)), Questions(ways), Reports(reports))

    def tell() -> None:
        def render(console: Console) -> None:
            console.print(f"the live page: {url}", markup=False, soft_wrap=True)
            if token is not None and not made:
                console.print(f"behind it write ?token= and the line of {token_file}", markup=False, soft_wrap=True)
            console.print("Ctrl-C ends it; nobody asks the nodes while no browser looks", markup=False)

        show({"url": url}, as_json, render)

    serve(parts, listening, token, tell)


def _nodes(endpoint: str | None, store: Path | None, file: Path | None) -> tuple[Where, Ways]:
    """Which nodes are looked at, and where each group of them is asked."""
    if file is not None:
        if endpoint is not None or store is not None:
            raise typer.BadParameter("give one of --file, --endpoint and --store")
        endpoint = f"cluster:{file}"
    else:
        endpoint, store = named_node(endpoint, store)
    if store is not None:
        local = partial(service_of, "serve", store)
        return (lambda: {local(): ""}), (lambda: {"": local()})
    assert endpoint is not None
    return of_endpoint(endpoint), ways_of(endpoint)
