"""CPU time of NNEval, compared with that of the metrics it reads.

Run: python -m scripts.bench.nneval --weights FILE --vectors FILE [--data DIR] [--items N]

Items are those of Flickr8k Expert. Nothing comes from the score cache; captions that SPICE parsed before are not parsed
again, which makes the share of the network the larger.
"""

from __future__ import annotations

import argparse
import os
import platform
import time

from capbench import __version__
from capbench.core.records import FloatArray
from capbench.datasets.flickr8k import Flickr8kExpert
from capbench.datasets.root import find_root
from capbench.metrics.base import Resources
from capbench.metrics.nneval.metric import NNEval
from capbench.metrics.scoring import complete

_MOST = 0.05
_REPEATS = 5


def main() -> None:
    """Measure, and print a table."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--weights", required=True, help="the network's .npz or safetensors")
    arguments.add_argument("--vectors", required=True, help="word vectors for WMD")
    arguments.add_argument("--data", help="folder of the data sets; default: CAPBENCH_DATA")
    arguments.add_argument("--items", type=int, help="only the first N items")
    chosen = arguments.parse_args()
    root = find_root(chosen.data)
    dataset = Flickr8kExpert(root)
    judgements = dataset.load(dataset.selections[dataset.default[0]])[0]
    items = list(dict.fromkeys(judgements.items))[: chosen.items]
    resources = complete(Resources(model=chosen.weights, data=str(root.path)), cache=True)
    metric = NNEval(resources, vectors=chosen.vectors)
    metric.prepare(items)
    print(f"capbench {__version__}, {platform.machine()}, {os.cpu_count()} cores, {len(items):,} items")
    columns: dict[str, FloatArray] = {}
    inputs_s = 0.0
    for of_input in metric.inputs():
        begin = _cpu_s()
        columns |= of_input.scores(of_input.statistics(items, lambda _done: None))
        seconds = _cpu_s() - begin
        inputs_s += seconds
        print(f"{of_input.name:10}{seconds:8.2f} s CPU")
    begin = _cpu_s()
    for _ in range(_REPEATS):
        metric.combine(columns)
    seconds = (_cpu_s() - begin) / _REPEATS
    share = seconds / inputs_s
    print(
        f"{'network':10}{seconds:8.3f} s CPU, {share:.2%} of its inputs ({'within' if share <= _MOST else 'ABOVE'} 5 %)"
    )


def _cpu_s() -> float:
    """CPU seconds of this process and of those that it waited for."""
    times = os.times()
    return time.process_time() + times.children_user + times.children_system


if __name__ == "__main__":
    main()
