"""``capbench protocols``: list the protocols of data sets."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from capbench.cli import common

__all__ = ["protocols"]


def protocols(
    dataset: Annotated[str | None, typer.Argument(metavar="[DATASET]", help="Only this data set.")] = None,
    data: common.DataOption = None,
    json_output: common.JsonOption = False,
) -> None:
    """List the protocols of data sets.

    A protocol is dataset/items/statistic, with any combination of items and statistic. If items have groups,
    dataset@group is one of them: composite@8k/same-text-out/correctness-tau-c.

    Example: capbench protocols composite

    Example: capbench protocols mine --data ~/captions
    """
    from capbench.datasets.base import dataset_names, load_dataset
    from capbench.datasets.opening import open_dataset, spelled
    from capbench.datasets.root import find_root

    root = find_root(data)
    entries: list[dict[str, Any]] = []
    # The protocols of imported judgements depend on their content.
    for cls in [open_dataset(dataset, root)] if dataset else map(load_dataset, dataset_names()):
        entries.append(
            {
                "dataset": cls.name,
                "title": cls.title,
                "default": str(cls.protocol()),
                "items": [
                    {"name": s.name, "description": s.description, "draws": s.draws, "seed": s.seed, "source": s.source}
                    for s in cls.selections.values()
                ],
                "statistics": [
                    {"name": s.name, "description": s.description, "source": s.source} for s in cls.statistics.values()
                ],
                "groups": [spelled(group) for group in cls.groups or ()],
                "beside": [f"{cls.name}@{name}" for name in cls.beside],
                "aliases": dict(cls.aliases),
                "version": cls.version,
                "versions": dict(cls.versions),
            }
        )
    if json_output:
        common.print_json(entries)
        return
    console = common.out()
    for entry in entries:
        console.print(f"{entry['title']}", style="bold", markup=False)
        console.print(f"  default: {entry['default']}", markup=False)
        for kind in ("items", "statistics"):
            console.print(f"  {kind}:", markup=False)
            width = max(len(choice["name"]) for choice in entry[kind])
            for choice in entry[kind]:
                source = f" ({choice['source']})" if choice["source"] else ""
                console.print(
                    f"    {choice['name']:<{width}}  {choice['description']}{source}", markup=False, soft_wrap=True
                )
        if entry["groups"]:
            names = ", ".join(f"{entry['dataset']}@{group}" for group in entry["groups"])
            console.print(f"  single groups: {names}", markup=False, soft_wrap=True)
        if entry["beside"]:
            console.print(f"  from other files: {', '.join(entry['beside'])}", markup=False, soft_wrap=True)
        known = {*(item["name"] for item in entry["items"]), *(s["name"] for s in entry["statistics"])}
        other = [
            f"{name} ({id_})" for name, id_ in entry["aliases"].items() if "/" in name and not _starts(name, known)
        ]
        if other:
            console.print(f"  other names: {', '.join(other)}", markup=False, soft_wrap=True)
        if entry["versions"]:
            versions = ", ".join(f"{entry['dataset']}:{name} ({text})" for name, text in entry["versions"].items())
            console.print(f"  versions: {versions}", markup=False, soft_wrap=True)
        console.print()


def _starts(alias: str, known: set[str]) -> bool:
    """True if an alias begins with the name of items or a statistic, so that the list already contains it."""
    return alias.partition("/")[0] in known
