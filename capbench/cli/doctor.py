"""``capbench doctor``: report which components work or are missing, with the commands that fix them; install one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from capbench.cli import common
from capbench.core.arguments import Help


def doctor(
    ctx: typer.Context,
    install: Annotated[Literal["spice"] | None, Help("Install SPICE's parser (390 MB).")] = None,
    source: Annotated[Path | None, Help("With --install: copy the files from this folder.", ("--from",), "DIR")] = None,
    data: common.DataOption = None,
    no_java: Annotated[bool, Help("Do not start Java.")] = False,
    json_output: common.JsonOption = False,
) -> None:
    """Check the installation and show how to fix problems.

    Exit code 0: all required components work; 1: one fails; 2: --data is not a folder.

    --install spice downloads Stanford CoreNLP 3.6.0, its English models and Rhino into the cache folder, and checks
    their SHA-256. Valid files are not downloaded again; repeat an interrupted run.

    Example: capbench doctor --install spice
    """
    if install is not None:
        common.check_applies(ctx, ["data", "no_java"], f"--install {install}")
        from capbench.text.spice.parser import install_spice, missing_files, spice_folder

        added, folder = install_spice(source, common.bytes_progress), spice_folder()
        result = {"folder": str(folder), "added": [p.name for p in added], "ready": not missing_files()}
        ready = f"SPICE's parser is ready in {folder}" + ("" if added else " (no file was missing)")
        common.answer(json_output, result, [*(f"added {path.name}" for path in added), ready])
        return
    common.check_applies(ctx, ["source"], "'capbench doctor' without --install")
    import dataclasses

    from capbench.datasets.root import find_root
    from capbench.studies.health import examine

    checks = examine(data, start_java=not no_java)
    failed = [check for check in checks if check.state == "fail"]
    width, lines = max(len(check.name) for check in checks), []
    for name, state, detail, remedy in map(dataclasses.astuple, checks):
        lines.append(f"{'–' if state == 'missing' else state:<4}  {name:<{width}}  {detail}")
        lines += [f"      {'':<{width}}→ {remedy}"] if remedy else []
    verdict = f"{len(failed)} of {len(checks)} checks failed" if failed else "all required components work"
    result = {"ok": not failed, "checks": list(map(dataclasses.asdict, checks))}
    common.answer(json_output, result, [*lines, verdict])
    if data is not None:
        find_root(data)  # raises the error of an invalid --data
    if failed:
        raise typer.Exit(1)
