"""``capbench explore retrieve``: rank images by captions and captions by images with a metric's scores."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from capbench.api.arguments import RetrievalChanges
from capbench.cli import common
from capbench.cli.options import Cached, LeftOut


def retrieve(
    *,
    study: common.StudyArgument = None,
    metric: common.MetricsOption = None,
    changes: RetrievalChanges,
    left_out: LeftOut,
    inputs: Cached,
    details: common.DetailsOption = False,
    json_output: common.JsonOption = False,
) -> None:
    """Measure image and caption retrieval with a metric.

    Samples images, uses the first captions of each as references, and scores all other captions against every image
    (FAIEr, Table 6). R@K is the percentage of queries with a correct result among the first K.

    Exit code 1: done, but requirements of a metric are missing (listed).

    Example: capbench explore retrieve -m cider,meteor --captions flickr8k --split test --images 200

    Example: capbench explore retrieve faier-table6 --features nocaps.h5 --model tiger=scan.safetensors
    """
    from capbench.api.tasks import retrieve as compute
    from capbench.reports.retrieval import retrieval_table

    hint = "Name a study file, or metrics: capbench explore retrieve -m cider"
    caller = replace(common.caller(json_output=json_output), no_metric=hint)
    values: Any = {**inputs.values(), **changes}
    found = compute(metric or (), study=study, without=left_out.names, progress=caller, **values)
    common.answer(json_output, found.rows(), [retrieval_table(found)], details=details)
    common.leave_if_waiting(found.missing)
