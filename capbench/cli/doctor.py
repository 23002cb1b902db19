"""``capbench doctor``: report which components work, which are missing, and the command that fixes each."""

from __future__ import annotations

from typing import Annotated

import typer

from capbench.cli import common

__all__ = ["doctor"]


def doctor(
    data: common.DataOption = None,
    no_java: Annotated[bool, typer.Option("--no-java", help="Do not start Java.")] = False,
    json_output: common.JsonOption = False,
) -> None:
    """Check the installation and show how to fix problems.

    Exit code 0: all required components work; 1: one fails; 2: --data is not a folder.

    Example: capbench doctor
    """
    import dataclasses

    from capbench.datasets.root import find_root
    from capbench.studies.health import examine

    checks = examine(data, start_java=not no_java)
    failed = [check for check in checks if check.state == "fail"]
    if json_output:
        # The second key is that of earlier versions.
        listed = [dataclasses.asdict(check) | {"mend": check.fix} for check in checks]
        common.print_json({"ok": not failed, "checks": listed})
    else:
        console = common.out()
        styles = {"ok": "green", "warn": "yellow", "fail": "red"}
        width = max(len(check.name) for check in checks)
        for name, state, detail, remedy in map(dataclasses.astuple, checks):
            console.print(f"{state:<4}", style=styles[state], end="  ")
            console.print(f"{name:<{width}}  {detail}", markup=False, soft_wrap=True)
            if remedy:
                console.print(f"      {'':<{width}}→ {remedy}", markup=False, soft_wrap=True)
        verdict = f"{len(failed)} of {len(checks)} checks failed" if failed else "all required components work"
        console.print(verdict, style="bold")
    if data is not None:
        find_root(data)  # raises the error of an invalid --data
    if failed:
        raise typer.Exit(1)
