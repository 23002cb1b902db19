"""``capbench models``: list, describe, download and add weights of detectors and metrics, and combine networks."""

from __future__ import annotations

import dataclasses
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from capbench.cli import common
from capbench.cli.commands import group
from capbench.cli.options import argument
from capbench.core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import torch

    from capbench.weights.registry import Status

app = group("List, download, add and combine weights of networks.", "capbench models list")


_Name = Annotated[str, argument("NAME", "Name from 'capbench models list', or grid:BACKBONE.")]


def _facts(name: str) -> dict[str, Any]:
    from capbench.weights.registry import entry, status

    facts = entry(name).model_dump(exclude_none=True)
    facts |= {"for": list(facts.pop("used_by")), "beside": facts.pop("companions")}
    file = dataclasses.asdict(status(name))
    shown = {key: file[key] for key in ("state", "path", "expected", "official", "remark")}
    return facts | shown | {"found": file["sha256"]}


@app.command("list")
def list_(
    *,
    name: Annotated[str | None, argument("[NAME]", "Describe these weights: source, terms, SHA-256 and path.")] = None,
    json_output: common.JsonOption = False,
) -> None:
    """List detectors and known weights with their state, or describe one.

    The SHA-256 of installed weights is checked. Exit code 1: a file differs.

    Example: capbench models list torchvision-frcnn
    """
    from capbench.core import plugins
    from capbench.weights.registry import entries, entry, models_dir

    if name is not None:
        facts = _facts(name)
        shown = facts | {"for": ", ".join(facts["for"]), "with": ", ".join(facts["beside"]), "SHA-256": _digest(facts)}
        shown["file"] += f", {facts['megabytes']} MB" if "megabytes" in facts else ""
        shown["address"] = facts.get("url", "none; see the page")
        labels = "for page steps file with address SHA-256 terms note state path found remark"
        lines = [f"{facts['name']}: {facts['title']}"]
        lines += [f"  {label + ':':<9}{shown[label]}" for label in labels.split() if shown.get(label)]
        if facts["state"] != "here":
            lines += [*([f"capbench models download {name}"] if "url" in facts else []), entry(name).by_hand]
        common.answer(json_output, facts, lines)
        if facts["state"] == "wrong":
            raise typer.Exit(1)
        return
    models = [_facts(name) for name in entries()]
    detectors = plugins.registered("capbench.detectors").values()
    listed = [{"name": detector.name, "package": detector.package} for detector in detectors]
    names = [plugin.name if plugin.point is None else f"{plugin.name} (of {plugin.package})" for plugin in detectors]

    def show() -> None:
        rows = [[model["name"], model["state"], ", ".join(model["for"]), model["title"]] for model in models]
        common.print_list(["model", "state", "for", "what"], rows)
        print("also: grid:BACKBONE for every classification backbone of torchvision (grid:resnet50)")
        print("also: 'sample', a detector and a grounding model for the embedded sample")
        print(f"detectors: {', '.join(names)}")
        common.note("to get weights: capbench models list NAME")

    common.answer(json_output, {"folder": str(models_dir()), "models": models, "detectors": listed}, show)
    if any(model["state"] == "wrong" for model in models):
        raise typer.Exit(1)


def _digest(facts: dict[str, Any]) -> str:
    expected, observed = facts["expected"], facts.get("sha256_observed")
    if expected is None:
        digest = "not stated by the publisher; recorded when the file is added"
    elif not facts["official"]:
        digest = f"{expected} (recorded when the file was added)"
    else:
        digest = expected if len(expected) == 64 else f"begins with {expected} (in the official file's name)"
    return digest if observed is None else f"{digest}; others report {observed} (unverified)"


@app.command()
def add(
    *,
    name: _Name,
    file: Annotated[Path, argument("FILE", "Downloaded file.")],
    replace: common.ReplaceOption = False,
    json_output: common.JsonOption = False,
) -> None:
    """Check downloaded weights and install them.

    A file whose SHA-256 differs from the official one is rejected. Without an official SHA-256, that of the first file
    is recorded, and later files must match it. Weights are stored in $CAPBENCH_MODELS, by default in the user's data
    folder.

    Example: capbench models add torchvision-frcnn ~/Downloads/fasterrcnn_resnet50_fpn_v2_coco-dd69338a.pth
    """
    from capbench.weights import registry

    status = registry.add(name, file, replace=replace, read=_tensor_reader(name))
    origin = "recorded; the publisher states none"
    if status.official:
        origin = "official"
    elif registry.entry(name).sha256_observed == status.sha256:
        origin = "recorded; others report the same, the publisher states none"
    common.answer(json_output, dataclasses.asdict(status), _installed(status, origin))


def _tensor_reader(name: str) -> Callable[[Path], Mapping[str, torch.Tensor]] | None:
    """The reader of an entry's tensors; None for the usual one."""
    from capbench.weights.registry import entry

    if "tiger" in entry(name).used_by:  # SCAN's checkpoints hold two lists of tensors
        from capbench.metrics.scan.files import read_tensors

        return read_tensors
    return None


def _installed(status: Status, origin: str) -> list[str]:
    if status.remark is not None:
        common.warn(status.remark)
    return [f"{status.name}: installed as {status.path}", f"SHA-256 {status.sha256} ({origin})"]


@app.command()
def download(
    *,
    names: Annotated[list[str], argument("NAME...", "Names from 'capbench models list'.")],
    replace: common.ReplaceOption = False,
    json_output: common.JsonOption = False,
) -> None:
    """Download weights and install them.

    Prints size and terms first. Interrupted downloads resume. A file gets its name after its SHA-256, or, without a
    known one, its tensors are checked. For weights without an address, prints how to train or add them.

    Example: capbench models download torchvision-frcnn
    """
    from capbench.weights.download import announcement, downloadable
    from capbench.weights.download import download as install

    wanted = [downloadable(name) for name in dict.fromkeys(names)]
    for weights in wanted:
        common.note(announcement(weights))
    installed, lines = [], []
    for weights in wanted:
        read = _tensor_reader(weights.name)
        status, new = install(weights, replace=replace, read=read, progress=common.bytes_progress)
        installed.append({**dataclasses.asdict(status), "downloaded": new, "url": weights.url})
        known = "as expected" if weights.expected else "recorded; the publisher states none"
        kept = [f"{weights.name}: already installed as {status.path}, unchanged"]
        lines += _installed(status, known) if new else kept
    common.answer(json_output, installed, lines)


@app.command()
def combine(
    *,
    models: Annotated[list[Path], argument("MODEL...", "Two or more trained models.")],
    out: Annotated[Path, common.output("Output file.")],
    replace: common.ReplaceOption = False,
    json_output: common.JsonOption = False,
) -> None:
    """Combine trained models into an ensemble.

    Writes a JSON file with the SHA-256 and the paths of the models relative to it; pass it as a model. TIGEr
    averages grounding vectors; REO, FAIEr, LEIC and ViLBERTScore average scores. Features, FAIEr's variant and
    ViLBERT's number of layers must be the same; vocabularies and sizes may differ.

    Example: capbench models combine seed1.safetensors seed2.safetensors seed3.safetensors --out ensemble.json
    """
    from capbench.weights.ensembles import write_ensemble

    loaded = _networks(models, out, replace)
    write_ensemble(out, loaded)
    summaries = [model.summary() for model in loaded]
    for name in ("lambda_softmax", "feature_norm"):
        values = dict.fromkeys(str(summary.get(name)) for summary in summaries)
        if len(values) > 1:
            option = name.replace("feature_", "")
            common.warn(f"{name} is {' and '.join(values)}: choose one with --option tiger.{option}=VALUE")
    networks = [{"path": str(model.path), "sha256": model.sha256, **model.summary()} for model in loaded]
    networks.sort(key=lambda network: str(network["sha256"]))
    lines = [f"{out}: ensemble of {len(networks)}"]
    for network in networks:
        size = f"{network['words']:,} words, {network['embed_dim']}d"
        lines.append(f"  {network['path']}: sha256 {network['sha256'][:16]}, {size}")
    common.answer(json_output, {"path": str(out), "kind": "ensemble", "networks": networks}, lines)
    metric = networks[0].get("metric", "faier" if "variant" in networks[0] else "tiger")
    common.note(f"next: capbench score --metric {metric} --features STORE --model {shlex.quote(f'{metric}={out}')}")


def _networks(models: list[Path], out: Path, replace: bool) -> list[Any]:
    from capbench.metrics.registry import load_network
    from capbench.weights.registry import locate

    paths = [locate(model, "") for model in models]  # of any kind
    if out.exists():
        if any(out.samefile(path) for path in paths):
            raise UsageError("is one of the input models", code="conflict", path=out, hint="Choose another file")
        if not replace:
            raise UsageError("already exists", code="exists", path=out, hint="Choose another file, or use --replace")
    loaded: list[Any] = [load_network(path) for path in paths]
    by_digest: dict[str, Path] = {}
    for model in loaded:
        if model.sha256 in by_digest:
            common.warn(f"{model.path} is the same network as {by_digest[model.sha256]}, which counts twice")
        by_digest[model.sha256] = model.path
    return loaded
