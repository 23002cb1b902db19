"""Numbers printed in papers, as data with their sources.

Each table is a YAML file next to this module. It names the paper, describes each column (with its protocol, as far as
known) and lists rows of values exactly as printed, so that comparisons know the number of digits. Values are facts
taken from the papers' texts; a file without a table's numbers has no rows and gives the reason.

A file holds::

    schema: 1
    paper: {authors: ..., title: ..., venue: ..., year: 2019}
    where: Table 1
    description: one sentence
    draws: 5                                 # draws of references that each number is the mean of; default: one
    missing: why there are no numbers        # only where there are none
    notes: [...]                             # remarks on the table as a whole
    columns:
      - key: composite-tau                   # unique in the table
        head: Composite τ                    # column heading
        protocol: composite/…/…              # capbench's protocol, or null if none fits
        basis: reproduced                    # source of the protocol: stated, reproduced, inferred
        group: HC                            # group of the protocol's result; left out for the overall value
        unit: fraction                       # fraction, percent, or score (a plain score of a metric)
        note: ...
      - key: composite-tau-b                 # the same numbers under a second protocol
        reading_of: composite-tau            # key of the column with the numbers; rows have no values for this column
        ...
    rows:
      - key: bleu-1                          # unique in the table
        title: BLEU-1                        # as in the table, without citation marks
        metric: bleu-1                       # capbench's column, or null
        variant: multi-task                  # left out for the metric's default
        cited: true                          # copied by the paper from elsewhere
        label: fleur                         # for other metrics: label of scores that belong to this row
        weights: scan-tiger                  # for trained metrics: the registry's name of the row's weights
        detectors: [bottom-up-caffe]         # for metrics over regions: detectors of the row's features
        reads_references: true               # optional
        uses_ratings: false                  # optional: true if the metric was trained on human ratings
        second_hand: true                    # copied from a collection, not seen in the paper
        source: Pearl (AAAI 2026), Table 1   # optional: where the row is printed, if not in the paper above
        values: ["0.280", null, "50.9 ± 0.70", {value: "0.205", note: ...}]    # one for each column
    include:                                 # rows of other tables, with their sources
      - {table: tiger-table1, rows: [tiger], columns: [flickr8k-tau], reads_references: true, uses_ratings: false}
"""

from __future__ import annotations

from functools import cache
from importlib import resources

from capbench.core.errors import check_choice
from capbench.studies.published.tables import (
    Paper,
    PublishedColumn,
    PublishedRow,
    PublishedTable,
    PublishedValue,
    parse_table,
)

__all__ = [
    "Paper",
    "PublishedColumn",
    "PublishedRow",
    "PublishedTable",
    "PublishedValue",
    "load_published",
    "names",
    "parse_table",
]


def names() -> tuple[str, ...]:
    """Names of all tables, sorted."""
    files = resources.files(__name__).iterdir()
    return tuple(sorted(f.name.removesuffix(".yaml") for f in files if f.name.endswith(".yaml")))


@cache
def load_published(name: str) -> PublishedTable:
    """Load a table by name.

    Raises:
        UsageError: there is no such table; the error lists the nearest name and the choices.
        DataError: its file is invalid.
    """
    check_choice("published table", name, names())
    text = resources.files(__name__).joinpath(f"{name}.yaml").read_text(encoding="utf-8")
    return parse_table(name, text, load_published)
