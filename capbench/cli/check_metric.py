"""``capbench check-metric``: check that a class or function fulfils the metric contract."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from capbench.cli import common

__all__ = ["check_metric"]


def check_metric(
    metric: Annotated[str, typer.Argument(metavar="METRIC", help="module:Class, module:function, or a metric's name.")],
    option: Annotated[
        list[str] | None, typer.Option("--option", metavar="NAME=VALUE", help="Option of the metric; repeatable.")
    ] = None,
    features: Annotated[Path | None, typer.Option("--features", metavar="FILE", help="Region features.")] = None,
    model: Annotated[str | None, typer.Option("--model", metavar="FILE", help="Weights.")] = None,
    image_root: Annotated[
        Path | None, typer.Option("--image-root", metavar="DIR", help="Folder of the images. Default: the sample's.")
    ] = None,
    json_output: common.JsonOption = False,
) -> None:
    """Check that a metric fulfils the contract of metrics.

    The checks use ten captions of the embedded sample. Each prints one line; a failed check prints the observed
    behaviour and a remedy. Exit code 1: a check failed. See docs/extend.md.

    Example: capbench check-metric cider

    Example: capbench check-metric my_metric:MyMetric --option cap=2 --json
    """
    from capbench.api.check_metric import check_metric as check
    from capbench.cli.options import parse_options
    from capbench.core.files import check_folder

    options: dict[str, object] = {}
    for values in parse_options(option or []).values():
        options |= values
    if image_root is not None:
        check_folder(image_root, "--image-root")
    checks = check(metric, options=options, features=features, model=model, images=image_root)
    failed = [outcome for outcome in checks if outcome.state == "failed"]
    if json_output:
        common.print_json({"metric": metric, "checks": [dataclasses.asdict(outcome) for outcome in checks]})
    else:
        for outcome in checks:
            line = f"{outcome.state:7} {outcome.name}: {outcome.seen or outcome.promise}"
            print(f"{line}. {outcome.advice}" if outcome.advice else line)
        done = sum(outcome.state == "passed" for outcome in checks)
        print(f"{metric}: {done} of {len(checks)} checks passed, {len(failed)} failed")
    if failed:
        raise typer.Exit(1)
