"""``capbench models``: which weights are known, where to get them, taking them in, and several networks as one."""

from __future__ import annotations

import dataclasses
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol, TypeVar

import typer

from capbench.cli import common
from capbench.core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from capbench.core.plugins import Plugin

__all__ = ["app"]

app = typer.Typer(
    name="models",
    help="Weights of detectors and metrics: what is known and here, where to get the rest, taking a file in, and "
    "several networks as one.\n\n"
    "Example: capbench models list",
    no_args_is_help=True,
    rich_markup_mode=None,
)


class _Model(Protocol):
    """A trained network, of whatever kind."""

    @property
    def path(self) -> Path: ...

    @property
    def sha256(self) -> str: ...

    def summary(self) -> dict[str, object]: ...


M = TypeVar("M", bound=_Model)

_Name = Annotated[
    str, typer.Argument(metavar="NAME", help="A name of 'capbench models list', or grid:BACKBONE.", show_default=False)
]
_Networks = Annotated[
    list[Path], typer.Argument(metavar="MODEL...", help="Trained models, two or more.", show_default=False)
]
_Out = Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="Where to write.", show_default=False)]
_Replace = Annotated[bool, typer.Option("--replace", help="Replace FILE if it is there.")]


def _facts(name: str) -> dict[str, Any]:
    from capbench.weights.registry import entry, status

    facts = entry(name).model_dump(exclude_none=True)
    facts["for"] = list(facts.pop("used_by"))
    file = dataclasses.asdict(status(name))
    shown = {key: file[key] for key in ("state", "path", "expected", "official", "remark")}
    return facts | shown | {"found": file["sha256"]}


@app.command("list")
def list_(json_output: common.JsonOption = False) -> None:
    """List the weights that are known, and which of them are here; and the detectors.

    Weights that are here are read and compared with their SHA-256. Exit code 1 if a file is not the right one.

    Example: capbench models list
    """
    from capbench.core import plugins
    from capbench.weights.registry import entries, models_dir

    models = [_facts(name) for name in entries()]
    detectors = plugins.registered("capbench.detectors")
    if json_output:
        listed = [{"name": detector.name, "package": detector.package} for detector in detectors]
        common.print_json({"folder": str(models_dir()), "models": models, "detectors": listed})
    else:
        from rich.table import Table

        table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
        for column in ("model", "state", "for"):
            table.add_column(column, no_wrap=True)
        table.add_column("what", overflow="fold")
        for model in models:
            table.add_row(model["name"], model["state"], ", ".join(model["for"]), model["title"])
        common.out().print(table)
        print("and grid:BACKBONE for every classification backbone of torchvision (grid:resnet50)")
        print("'sample', a detector and a grounding model of the embedded sample's scenes, comes with capbench")
        print(f"detectors: {', '.join(map(_detector, detectors))}")
        common.note("Where to get one: capbench models info NAME")
    if any(model["state"] == "wrong" for model in models):
        raise typer.Exit(1)


def _detector(detector: Plugin) -> str:
    if not detector.is_built_in:
        return f"{detector.name} (of {detector.package})"
    return "grid:BACKBONE" if detector.name == "grid" else detector.name


@app.command()
def info(name: _Name, json_output: common.JsonOption = False) -> None:
    """Tell where weights come from, under which terms, their SHA-256, and where they lie or should lie.

    Exit code 1 if the file that is here is not the right one.

    Example: capbench models info torchvision-frcnn
    """
    facts = _facts(name)
    if json_output:
        common.print_json(facts)
    else:
        expected = facts["expected"]
        observed = facts.get("sha256_observed")
        if expected is None:
            digest = "not stated by the publisher; recorded when the file is added"
        elif facts["official"]:
            digest = expected if len(expected) == 64 else f"begins with {expected} (in the official file's name)"
        else:
            digest = f"{expected} (recorded when the file was added)"
        if observed is not None:
            digest += f"; copies of others have {observed} (unverified)"
        lines = {
            "for": ", ".join(facts["for"]),
            "page": facts["page"],
            "file": facts["file"] + (f", {facts['megabytes']} MB" if "megabytes" in facts else ""),
            "address": facts.get("url", "none; see the page"),
            "SHA-256": digest,
            "terms": facts["terms"],
            "note": facts.get("note"),
            "state": facts["state"],
            "path": facts["path"],
            "found": facts["found"],
            "remark": facts["remark"],
        }
        print(f"{facts['name']}: {facts['title']}")
        for label, value in lines.items():
            if value:
                print(f"  {label + ':':<9}{value}")
        if facts["state"] != "here":
            print(f"{facts['manual']}, then: capbench models add {name} FILE")
    if facts["state"] == "wrong":
        raise typer.Exit(1)


@app.command()
def add(
    name: _Name,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The downloaded file.", show_default=False)],
    replace: Annotated[bool, typer.Option("--replace", help="Replace other weights that are there.")] = False,
    json_output: common.JsonOption = False,
) -> None:
    """Check a downloaded file of weights and copy it to where capbench finds it.

    A file whose SHA-256 is not the official one is refused. Where no official one is known, the file's own is recorded,
    and a file that differs later is refused; where others report one of their copies, a difference is said, and no
    error. The folder is $CAPBENCH_MODELS, else the user's data folder.

    Example: capbench models add torchvision-frcnn ~/Downloads/fasterrcnn_resnet50_fpn_v2_coco-dd69338a.pth
    """
    from capbench.weights import registry

    if "tiger" in registry.entry(name).used_by:  # SCAN's checkpoints hold two lists of tensors
        from capbench.metrics.grounding.scan_files import read_tensors

        status = registry.add(name, file, replace=replace, read=read_tensors)
    else:
        status = registry.add(name, file, replace=replace)
    if json_output:
        common.print_json(dataclasses.asdict(status))
        return
    origin = "no official one is known; recorded"
    if status.official:
        origin = "official"
    elif registry.entry(name).sha256_observed == status.sha256:
        origin = "as others report it, which the publisher was not seen to state; recorded"
    print(f"{name}: kept in {status.path}")
    print(f"SHA-256 {status.sha256} ({origin})")
    if status.remark is not None:
        common.warn(status.remark)


@app.command()
def ensemble(models: _Networks, out: _Out, replace: _Replace = False, json_output: common.JsonOption = False) -> None:
    """Make several trained models one: metrics then take the mean of what each of them finds.

    FILE is a small JSON file with the models' paths, relative to it, and SHA-256; it is given wherever a model is.
    TIGEr takes the mean of the grounding vectors, REO, FAIEr, LEIC and ViLBERTScore the mean of the scores.
    Vocabularies and sizes may differ; features may not, nor FAIEr's variant, nor the number of ViLBERT's layers. With
    networks of several seeds, scores depend less on the seed.

    Example: capbench models ensemble seed1.safetensors seed2.safetensors seed3.safetensors --out ensemble.json
    """
    from capbench.metrics.loading import load_network
    from capbench.weights.ensembles import write_ensemble

    loaded = _networks(models, out, replace, load_network)
    written = write_ensemble(out, loaded)
    summaries = [model.summary() for model in loaded]
    for name in ("lambda_softmax", "feature_norm"):
        values = dict.fromkeys(str(summary.get(name)) for summary in summaries)
        if len(values) > 1:
            option = name.replace("feature_", "")
            common.warn(f"{name} is {' and '.join(values)}: say which to use (--option tiger.{option}=...)")
    order = {network.sha256: place for place, network in enumerate(written.parts)}
    networks = sorted(map(_network, loaded), key=lambda network: order[network["sha256"]])
    _tell("ensemble", out, networks, json_output, {})


@app.command()
def merge(models: _Networks, out: _Out, replace: _Replace = False, json_output: common.JsonOption = False) -> None:
    """Merge several SCAN networks into one network of the summed sizes, which is a model like any other.

    They must have one vocabulary, one kind of features and the same options; word and embedding sizes may differ. Their
    similarities of words and regions are averaged before the attention, and so not those of 'capbench models ensemble'.

    Example: capbench models merge seed1.safetensors seed2.safetensors seed3.safetensors --out merged.safetensors
    """
    from capbench.core.files import sha256_file
    from capbench.metrics.grounding.scan_files import load_scan, merge_scan, merged_facts, save_scan

    loaded = _networks(models, out, replace, load_scan)
    save_scan(out, merge_scan(loaded), loaded[0].vocabulary, merged_facts(loaded))
    _tell("merged network", out, [_network(model) for model in loaded], json_output, {"sha256": sha256_file(out)})


def _networks(models: list[Path], out: Path, replace: bool, load: Callable[[Path], M]) -> list[M]:
    """Load the models once it is clear that the result may be written."""
    from capbench.weights.registry import locate

    paths = [locate(model) for model in models]
    if out.exists():
        if any(out.samefile(path) for path in paths):
            raise UsageError("is one of the models itself", path=out, hint="Write to another file")
        if not replace:
            raise UsageError("is there already", path=out, hint="Choose another file, or use --replace")
    loaded = [load(path) for path in paths]
    by_digest: dict[str, Path] = {}
    for model in loaded:
        if model.sha256 in by_digest:
            common.warn(f"{model.path} is the same network as {by_digest[model.sha256]}, which so counts twice")
        by_digest[model.sha256] = model.path
    return loaded


def _network(model: _Model) -> dict[str, Any]:
    return {"path": str(model.path), "sha256": model.sha256, **model.summary()}


def _tell(what: str, out: Path, networks: list[dict[str, Any]], json_output: bool, facts: dict[str, Any]) -> None:
    if json_output:
        common.print_json({"path": str(out), "kind": what, **facts, "networks": networks})
        return
    print(f"{out}: {what} of {len(networks)}" + "".join(f", {key} {value}" for key, value in facts.items()))
    for network in networks:
        print(
            f"  {network['path']}: sha256 {network['sha256'][:16]}, {network['words']:,} words, {network['embed_dim']}d"
        )
    metric = networks[0].get("metric", "faier" if "variant" in networks[0] else "tiger")
    common.note(f"use it: capbench score --metric {metric} --features STORE --model {shlex.quote(f'{metric}={out}')}")
