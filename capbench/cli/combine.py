"""``capbench train combination``: learn a combination of metrics with nested cross-validation."""

from __future__ import annotations

from typing import Any

from capbench.api.arguments import CombinationChoices
from capbench.cli import common
from capbench.cli.options import ScoringInputs, Target


def combine(
    *,
    metric: common.MetricsOption = None,
    target: Target,
    choices: CombinationChoices,
    inputs: ScoringInputs,
    details: common.DetailsOption = False,
    json_output: common.JsonOption = False,
) -> None:
    """Learn a combination of metrics and test it.

    Nested cross-validation over images: each caption's score is learned from other images only. The output has weights
    and each metric's contribution with bootstrap intervals, and a test against every metric. See docs/combinations.md.

    Example: capbench train combination -m cider -m meteor -d composite --save text.json

    Example: capbench correlate -d flickr8k-expert -m cider -m combination:text.json
    """
    from capbench.api.comparing import combine as learn
    from capbench.reports.combination import print_combined

    caller = common.caller(json_output=json_output)
    values: Any = {**inputs.values(), **choices}
    result = learn(target.dataset, metric or [], protocol=target.protocol, progress=caller, **values)
    common.answer(json_output, result, lambda: print_combined(result, common.out(), details=details))
    common.wrote(*(values[name] for name in ("out", "save") if values.get(name)))
    common.leave_if_missing(result.comparison)
