"""`towline pipeline`: the jobs of `pipeline/` as commands, made from the options that each job documents."""

import inspect
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console
from typer.core import TyperCommand, TyperGroup

from towline.pipeline.options import OptionFacts, facts_of
from towline.pipeline.registry import JOBS

from .output import Json, add_row, load_module, show, table

EXTRA = "spark"

Master = Annotated[
    str, typer.Option("--master", metavar="URL", help="Spark's master: local[*], spark://HOST:PORT, yarn, k8s://...")
]
Conf = Annotated[
    list[str] | None, typer.Option("--conf", metavar="KEY=VALUE", help="A setting of Spark; give it several times.")
]
Report = Annotated[
    Path | None, typer.Option("--report", metavar="FILE", dir_okay=False, help="Write an HTML report with plots, too.")
]
Shown = Annotated[int, typer.Option("--show", min=1, help="Rows of the table shown to people; JSON has them all.")]


class JobCommand(TyperCommand):
    """The job's module, which may need Spark's packages, is loaded when its options are asked for, and no sooner."""

    def get_params(self, ctx: Any) -> list[Any]:
        if self.callback is None:
            assert self.name is not None
            made = _command_of(self.name)
            self.params, self.callback = made.params, made.callback
        return super().get_params(ctx)


class Jobs(TyperGroup):
    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for name, entry in JOBS.items():
            self.add_command(JobCommand(name, help=entry.summary, rich_markup_mode=None))


app = typer.Typer(
    cls=Jobs, help="Jobs on Spark over a store: run `towline pipeline NAME --help` for one.", no_args_is_help=True
)


@app.command("list")
def list_jobs(as_json: Json = False) -> None:
    """List the jobs there are."""

    def render(console: Console) -> None:
        made = table("job", "what it does")
        for name, entry in JOBS.items():
            add_row(made, name, entry.summary)
        console.print(made)

    show({"jobs": [{"job": name, "summary": entry.summary} for name, entry in JOBS.items()]}, as_json, render)


@app.command("ship")
def ship(
    file: Annotated[Path, typer.Argument(metavar="FILE", dir_okay=False, help="The zip to write.")],
    as_json: Json = False,
) -> None:
    """Pack Towline into a zip for `spark-submit --py-files FILE pipeline/__main__.py NAME ...`."""
    path = load_module("towline.pipeline.ship", EXTRA).ship(file)
    size = path.stat().st_size
    show({"file": path, "bytes": size}, as_json, lambda console: console.print(f"{path}: {size:,} bytes", markup=False))


def _command_of(name: str) -> TyperCommand:
    """A command with an option for each field of the job's dataclass, and those that all jobs have."""
    job = load_module(JOBS[name].module, EXTRA).JOB

    def command(
        *,
        master: Master = "local[*]",
        conf: Conf = None,
        report: Report = None,
        show: Shown = 40,
        as_json: Json = False,
        **values: Any,
    ) -> int:
        status: int = load_module("towline.cli.pipeline_run", EXTRA).run(
            name, values, master, conf or [], report, show, as_json
        )
        return status

    common = [one for one in inspect.signature(command).parameters.values() if one.kind is not one.VAR_KEYWORD]
    parameters = [_parameter(facts) for facts in facts_of(job.options)]
    # Typer reads both.
    command.__signature__ = inspect.Signature([*parameters, *common])  # type: ignore[attr-defined]
    command.__annotations__ = {one.name: one.annotation for one in [*parameters, *common]}
    alone = typer.Typer(add_completion=False, rich_markup_mode=None)
    alone.command(name)(command)
    made = typer.main.get_command(alone)
    assert isinstance(made, TyperCommand)
    return made


def _parameter(facts: OptionFacts) -> inspect.Parameter:
    kind: Any = Literal[facts.choices] if facts.choices else facts.type
    flag = f"{facts.flag}/--no-{facts.flag[2:]}" if facts.type is bool and facts.default else facts.flag
    declared = typer.Option(flag, help=facts.help, metavar=facts.metavar, min=facts.least)
    wanted: Any = list[kind] | None if facts.many else kind | None if facts.default is None else kind
    default = inspect.Parameter.empty if facts.required else None if facts.many else facts.default
    return inspect.Parameter(
        facts.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[wanted, declared]
    )
