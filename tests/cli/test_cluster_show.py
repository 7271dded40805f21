"""What `towline cluster status` remarks below its tables."""

import io
from pathlib import Path

from rich.console import Console

from towline.cli.cluster_show import render_remarks


def test_a_slave_that_waits_for_the_operators_word_is_shown_with_the_command():
    why = "up to 500 it was confirmed here: give these bytes up with `towline slave accept-loss --store /stores/a-0`"
    nodes = [{"node": 0, "follows_nobody": why}, {"node": 1, "follows_nobody": ""}, {"node": 2}]
    shown = io.StringIO()
    render_remarks(Console(file=shown, width=400), {"group": "a", "nodes": nodes}, Path("cluster.toml"))
    assert shown.getvalue() == f"a-0 follows nobody: {why}\n"
