"""Numbers printed in papers, as data with their sources.

One YAML file a table lies beside this module. A file names the paper, describes each column (which protocol it
is, as far as that can be told) and lists rows of values exactly as printed, so that a comparison knows
how many digits there are. Values are facts taken from the papers' texts; where a text does not hold a table's
numbers the file has no rows and says why.

A file holds::

    schema: 1
    paper: {authors: ..., title: ..., venue: ..., year: 2019}
    where: Table 1
    description: one sentence
    draws: 5                                 # of references behind each number, their mean; left out for a single one
    missing: why there are no numbers        # only where there are none
    notes: [...]                             # remarks on the table as a whole
    columns:
      - key: composite-tau                   # unique in the table
        printed: Composite τ                 # head of the column
        protocol: composite/…/…              # ours, or null where none fits
        basis: reproduced                    # how the protocol is known: stated, reproduced, inferred
        group: HC                            # part of the protocol's result; left out for the overall value
        unit: fraction                       # fraction, percent, or score (a plain score of a metric)
        note: ...
      - key: composite-tau-b                 # the same numbers read under a second protocol
        reading_of: composite-tau            # whose numbers they are: a row's values leave this column out
        ...
    rows:
      - key: bleu-1                          # unique in the table
        printed: BLEU-1                      # as in the table, without citation marks
        metric: bleu-1                       # our column, or null for what is not ours
        variant: multi-task                  # left out for the metric as it is by default
        cited: true                          # copied by the paper from elsewhere
        label: fleur                         # of a metric that is not ours: scores with this label are its
        weights: scan-tiger                  # of a trained metric: the registry's name for the weights behind the row
        detectors: [bottom-up-caffe]         # of a metric over regions: whose features the row was computed with
        values: ["0.280", null, "50.9 ± 0.70", {value: "0.205", note: ...}]    # one for each column
"""

from __future__ import annotations

from functools import cache
from importlib import resources

from capbench.core.errors import UsageError, suggest
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
        UsageError: there is no such table; the nearest name and the choices are printed.
        DataError: its file does not hold what it should.
    """
    if name not in names():
        raise UsageError(f"unknown published table '{name}'", hint=suggest(name, list(names())))
    text = resources.files(__name__).joinpath(f"{name}.yaml").read_text(encoding="utf-8")
    return parse_table(name, text)
