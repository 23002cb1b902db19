from __future__ import annotations

from pathlib import Path

import pytest

from capbench.core.errors import DataError
from capbench.datasets.context import ContextBlv
from tests.datasets.native_files import root, write
from tests.errors import raises

HEADER = "img_id,context,description,participant,q_overall,q_relevance,q_irrelevance,q_reconstructivity,q_imgfit"


@pytest.mark.parametrize(
    ("text", "code", "row", "value"),
    [
        (f"{HEADER}\n1.jpg,Kites,a kite,ann,1,2,3,4,5\n1.jpg,Kites,a kite,ann,1,2,3,4,5\n", "duplicate", 3, "ann"),
        (f"{HEADER}\n1.jpg,Kites,a kite,ann,1,2,3,4,6\n", "out-of-range", 2, "6"),
        (f"{HEADER.replace('q_overall', 'q_all')}\n1.jpg,Kites,a,ann,1,2,3,4,5\n", "missing-column", 1, "q_overall"),
    ],
)
def test_rows_that_do_not_fit_are_refused(tmp_path: Path, text: str, code: str, row: int, value: str) -> None:
    path = write(tmp_path / ContextBlv.file_name, text)
    with raises(DataError, code, path=path, row=row, value=value):
        ContextBlv(root(tmp_path)).load(ContextBlv.selections["all-descriptions"])
