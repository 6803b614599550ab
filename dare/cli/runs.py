"""``dare runs``: short for ``dare list runs``."""

from __future__ import annotations

from pathlib import Path

import click


@click.command(help="List the runs made here: the same as 'dare list runs'.")
@click.argument(
    "root", type=click.Path(file_okay=False, path_type=Path), default="runs", required=False
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(root: Path, as_json: bool) -> None:
    from dare.cli.list import show_kinds

    show_kinds(["runs"], root, as_json)
