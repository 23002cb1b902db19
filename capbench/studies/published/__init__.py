"""Numbers printed in papers, as data with their sources: one YAML file next to this module for each table."""

from __future__ import annotations

from capbench.studies.published.tables import (
    PublishedColumn,
    PublishedRow,
    PublishedTable,
    load_published,
    names,
    parse_table,
)

__all__ = ["PublishedColumn", "PublishedRow", "PublishedTable", "load_published", "names", "parse_table"]
