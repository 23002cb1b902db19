"""``capbench doctor``: report which components work or are missing, with the commands that fix them; install one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from capbench.cli import common


def doctor(
    ctx: typer.Context,
    install: Annotated[
        Literal["spice"] | None,
        typer.Option("--install", help="Install SPICE's parser (Java, 390 MB) instead of checking."),
    ] = None,
    source: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="DIR",
            help="With --install: copy the files from this folder instead of downloading them.",
            show_default=False,
        ),
    ] = None,
    data: common.DataOption = None,
    no_java: Annotated[bool, typer.Option("--no-java", help="Do not start Java.")] = False,
    json_output: common.JsonOption = False,
) -> None:
    """Check the installation and show how to fix problems.

    Exit code 0: all required components work; 1: one fails; 2: --data is not a folder.

    --install spice downloads Stanford CoreNLP 3.6.0, its English models and Rhino into the cache folder, and checks
    their SHA-256. Valid files are not downloaded again; repeat an interrupted run.

    Example: capbench doctor

    Example: capbench doctor --install spice

    Example: capbench doctor --install spice --from /media/usb/jars
    """
    if install is not None:
        common.check_applies(ctx, ["data", "no_java"], f"--install {install}")
        _install_spice(source, json_output=json_output)
        return
    common.check_applies(ctx, ["source"], "'capbench doctor' without --install")
    import dataclasses

    from capbench.datasets.root import find_root
    from capbench.studies.health import examine

    checks = examine(data, start_java=not no_java)
    failed = [check for check in checks if check.state == "fail"]
    if json_output:
        common.print_json({"ok": not failed, "checks": [dataclasses.asdict(check) for check in checks]})
    else:
        console = common.out()
        styles = {"ok": "green", "missing": "dim", "warn": "yellow", "fail": "red"}
        width = max(len(check.name) for check in checks)
        for name, state, detail, remedy in map(dataclasses.astuple, checks):
            console.print(f"{'–' if state == 'missing' else state:<4}", style=styles[state], end="  ")
            console.print(f"{name:<{width}}  {detail}", markup=False, soft_wrap=True)
            if remedy:
                console.print(f"      {'':<{width}}→ {remedy}", markup=False, soft_wrap=True)
        verdict = f"{len(failed)} of {len(checks)} checks failed" if failed else "all required components work"
        console.print(verdict, style="bold")
    if data is not None:
        find_root(data)  # raises the error of an invalid --data
    if failed:
        raise typer.Exit(1)


def _install_spice(source: Path | None, *, json_output: bool) -> None:
    """Install SPICE's parser from a folder, or download it."""
    from capbench.text.spice.parser import install_spice, missing_files, spice_folder

    added, folder = install_spice(source, common.progress), spice_folder()
    if json_output:
        common.print_json({"folder": str(folder), "added": [p.name for p in added], "ready": not missing_files()})
        return
    for path in added:
        print(f"added {path.name}")
    print(f"SPICE's parser is ready in {folder}" + ("" if added else " (no file was missing)"))
