"""Numbers printed in papers, as data with their sources: one YAML file next to this module for each table."""

from __future__ import annotations

from functools import cache
from importlib import resources

from capbench.core.errors import check_choice
from capbench.studies.published.tables import PublishedColumn, PublishedRow, PublishedTable, parse_table

__all__ = ["PublishedColumn", "PublishedRow", "PublishedTable", "load_published", "names", "parse_table"]


def names() -> tuple[str, ...]:
    """Names of all tables, sorted."""
    files = resources.files(__name__).iterdir()
    return tuple(sorted(f.name.removesuffix(".yaml") for f in files if f.name.endswith(".yaml")))


@cache
def load_published(name: str) -> PublishedTable:
    """A table by name. Raises UsageError, with the nearest name, if there is no such table."""
    check_choice("published table", name, names())
    text = resources.files(__name__).joinpath(f"{name}.yaml").read_text(encoding="utf-8")
    return parse_table(name, text, load_published)
