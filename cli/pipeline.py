"""`towline pipeline`: the jobs of `pipeline/` as commands, made from the options that each job documents."""

import inspect
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from towline.pipeline.options import OptionFacts, facts_of
from towline.pipeline.registry import JOBS

from .lazy import Command, Group, Pending, command_of, group, load_module
from .options import Json

EXTRA = "spark"

Master = Annotated[
    str,
    typer.Option(
        "--master", metavar="URL", help="Spark's master: local[*], spark://HOST:PORT, yarn, k8s://..., sc://HOST"
    ),
]
Conf = Annotated[
    list[str] | None, typer.Option("--conf", metavar="KEY=VALUE", help="A setting of Spark; give it several times.")
]
Report = Annotated[
    Path | None, typer.Option("--report", metavar="FILE", dir_okay=False, help="Write an HTML report with plots, too.")
]
Shown = Annotated[int, typer.Option("--show", min=1, help="Rows of the table shown to people; JSON has them all.")]


def _command_of(name: str) -> Command:
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
    command.__doc__ = JOBS[name].summary
    # Typer reads both.
    command.__signature__ = inspect.Signature([*parameters, *common])  # type: ignore[attr-defined]
    command.__annotations__ = {one.name: one.annotation for one in [*parameters, *common]}
    return command_of(name, command)


def _parameter(facts: OptionFacts) -> inspect.Parameter:
    kind: Any = Literal[facts.choices] if facts.choices else facts.type
    flag = f"{facts.flag}/--no-{facts.flag[2:]}" if facts.type is bool and facts.default else facts.flag
    declared = typer.Option(flag, help=facts.help, metavar=facts.metavar, min=facts.least)
    wanted: Any = list[kind] | None if facts.many else kind | None if facts.default is None else kind
    default = inspect.Parameter.empty if facts.required else None if facts.many else facts.default
    return inspect.Parameter(
        facts.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[wanted, declared]
    )


class Jobs(Group):
    """A job's module needs Spark's packages."""

    pending = tuple(Pending(name, entry.summary, partial(_command_of, name)) for name, entry in JOBS.items())


app = group("Jobs on Spark over a store: run `towline pipeline NAME --help` for one.", Jobs)


@app.command("list")
def list_jobs(as_json: Json = False) -> None:
    """List the jobs there are."""
    load_module("towline.cli.pipeline_work", "cli").list_jobs(as_json)


@app.command("ship")
def ship(
    file: Annotated[Path, typer.Argument(metavar="FILE", dir_okay=False, help="The zip to write.")],
    as_json: Json = False,
) -> None:
    """Pack Towline into a zip for `spark-submit --py-files FILE pipeline/__main__.py NAME ...`."""
    load_module("towline.cli.pipeline_work", "cli").ship(file, as_json)
