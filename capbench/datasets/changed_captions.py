"""Tables of the captions that were changed by rules, without a text: image, number and span (``changes/*.csv.gz``).

The first line of a table is a hash of the captions of all its images, so that the spans are those of the right words.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import importlib.resources

from capbench.core.errors import DataError
from capbench.datasets.user.caption_readers import Captions


def read_changes(name: str, captions: Captions) -> list[dict[str, str]]:
    """The rows of the table that was made from these captions: of the published ones, or of the embedded sample's."""
    folder = importlib.resources.files("capbench.datasets") / "changes"
    for table in (f"{name}-sample", name):
        digest, *lines = gzip.decompress((folder / f"{table}.csv.gz").read_bytes()).decode().splitlines()
        rows = list(csv.DictReader(lines))
        images = dict.fromkeys(row[key] for key in ("image", "other_image") if key in rows[0] for row in rows)
        text = "\x1f".join(text for image in images for text in (image, *captions.get(image, ())))
        if hashlib.blake2b(text.encode(), digest_size=16).hexdigest() == digest:
            return rows
    problem = "these are not the captions that the pairs were made from: one is missing or has another text or number"
    hint = "Download the published file again; 'capbench data info' shows its source"
    raise DataError(problem, code="wrong-version", path=captions.source, hint=hint)
