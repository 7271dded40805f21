"""Shows how far a first start is: the kernels are compiled once on each machine, for a minute."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from towline.node.supervise.launch import Compiling

from .output import progress_console

TEXT: Final = "compiling for this processor, once for this installation"


@contextmanager
def shown_compiling() -> Iterator[Compiling]:
    """What draws a bar once there is something to compile; where nobody watches, a line."""
    console = progress_console()
    columns = (TextColumn(TEXT), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    bar = Progress(*columns, console=console, transient=True)
    task = bar.add_task("")
    said = False

    def compiling(done: int, of: int) -> None:
        nonlocal said
        if not said:
            said = True
            if console.is_terminal:
                bar.start()
            else:
                console.print(f"{TEXT}; this takes a minute or two", markup=False, soft_wrap=True)
        bar.update(task, completed=done, total=of)

    try:
        yield compiling
    finally:
        if bar.live.is_started:
            bar.stop()
