"""Choose the members of the committee on dev images, save it, and evaluate it once on human ratings.

python scripts/committee.py select --arguments FILE --out results/committee     # dev images only
python scripts/committee.py judge --arguments FILE --out results/committee      # human ratings, afterwards

The committee is a combination with the learner ``mean-rank`` (capbench.stats.combination). Its candidates are all
networks trained here and all rule-based metrics. Members are chosen by backward elimination: the member without which
the criterion is highest is removed, until no removal raises it. The criterion is the mean of two numbers on the 1,000
dev images, which nobody rated: the share of pairs in which an image's own caption scores higher than one of another
image (``own-caption/own-ties-half``), and τ-c with pseudo-judgements from two captions that the metrics do not read
(``last-two-rate/tau-c``). No human rating is read.

FILE is YAML: ``metrics`` (names), and ``features``, ``models``, ``options`` by metric, as in a study. The data is read
from ``CAPBENCH_DATA``. ``select`` writes ``dev.json``, with every evaluation in its order, and ``members.json``, the
chosen members. ``judge`` writes ``results.json``, and ``committee.json`` and ``all-candidates.json`` with the quantile
function of each member.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402

import capbench  # noqa: E402
from capbench.core.errors import UsageError  # noqa: E402
from capbench.core.files import read_json, write_json  # noqa: E402
from capbench.core.progress import progress  # noqa: E402
from capbench.core.yaml import read_yaml  # noqa: E402
from capbench.datasets.opening import open_dataset  # noqa: E402
from capbench.datasets.root import find_root  # noqa: E402
from capbench.metrics.metric_request import Row  # noqa: E402
from capbench.metrics.needs import Resources  # noqa: E402
from capbench.metrics.requests import resolve_metrics  # noqa: E402
from capbench.stats.combination import mean_rank  # noqa: E402
from capbench.studies.combine import Input, inputs_of, matrix_of, row_of, with_column  # noqa: E402
from capbench.studies.compare import score_all  # noqa: E402
from capbench.studies.evaluate import evaluate  # noqa: E402
from capbench.studies.judged import Scored  # noqa: E402

OWN, PSEUDO = "own-caption/own-ties-half", "last-two-rate/tau-c"
JUDGED = {
    "expert": ("flickr8k-expert", None),
    "expert, within images": ("flickr8k-expert", "no-own-captions/within-image-tau-b"),
    "crowdflower": ("flickr8k-crowdflower", None),
    "composite-8k": ("composite@8k", "same-text-out/correctness-tau-c"),
    "composite-8k, machine captions": ("composite@8k", "no-human/correctness-tau-c"),
}
"""Data sets and protocols of the evaluation, by name; None is the default protocol."""


@dataclass(frozen=True)
class Arguments:
    """Content of the file of ``--arguments``."""

    metrics: list[str]
    features: dict[str, str]
    models: dict[str, str]
    options: dict[str, dict[str, Any]]

    @classmethod
    def read(cls, path: Path) -> Arguments:
        """Read the file. Raises UsageError if a key is missing or unknown."""
        raw = read_yaml(path, "a mapping with metrics, features, models and options")
        if set(raw) != {"metrics", "features", "models", "options"}:
            raise UsageError(f"{path} must have the keys metrics, features, models and options", code="wrong-format")
        return cls(**raw)


@dataclass(frozen=True)
class Dev:
    """Scores of the candidates on the dev images."""

    own: Scored
    pseudo: Scored
    inputs: tuple[Input, ...]

    def criterion(self, members: Sequence[Input]) -> dict[str, float]:
        """Both numbers of some members' mean rank, and their mean."""
        names = [entry.row.name for entry in members]
        fit = mean_rank(np.concatenate(matrix_of(self.own.tables, members)), names)
        values: dict[str, float] = {}
        for name, scored, statistic in (("own caption", self.own, OWN), ("pseudo tau-c", self.pseudo, PSEUDO)):
            row = row_of("committee")
            scores = np.stack([fit.scores(draw) for draw in matrix_of(scored.tables, members)])
            tables = with_column(scored.tables, row.key, scores, "committee")
            cells, _ = evaluate(scored.dataset.protocol(statistic), scored.draws, tables, [row])
            (values[name],) = (cell.value for cell in cells if not cell.group and cell.value is not None)
        return {**values, "criterion": sum(values.values()) / 2}


def select(arguments: Arguments, out: Path) -> None:
    """Choose the members on dev, and write dev.json and members.json."""
    root = find_root(None)
    given = Resources(data=str(root.path), features_of=arguments.features, models=arguments.models)
    requests = resolve_metrics(arguments.metrics, arguments.options, resources=given)
    dataset = open_dataset("flickr8k-pseudo", root)
    with progress("scores on dev", None):
        own, pseudo = (score_all(dataset, dataset.protocol(name), requests, given) for name in (OWN, PSEUDO))
    dev = Dev(own, pseudo, inputs_of([row for request in requests for row in request.rows], requests))
    steps: list[dict[str, Any]] = [{"single": entry.row.name, **dev.criterion([entry])} for entry in dev.inputs]
    members = list(dev.inputs)
    best = dev.criterion(members)
    steps.append({"members": [entry.row.name for entry in members], **best})
    while len(members) > 2:
        tried = []
        for entry in members:
            rest = [other for other in members if other is not entry]
            tried.append((dev.criterion(rest), entry))
            steps.append({"without": entry.row.name, **tried[-1][0]})
        found, worst = max(tried, key=lambda one: one[0]["criterion"])
        if found["criterion"] <= best["criterion"]:
            break
        members = [entry for entry in members if entry is not worst]
        best = found
        steps.append({"members": [entry.row.name for entry in members], **best})
    signatures = {**own.tables[0].signatures}
    write_json(out / "dev.json", {"capbench": capbench.__version__, "criterion": f"mean of {OWN} and {PSEUDO}",
                                  "evaluations": steps, "signatures": signatures})  # fmt: skip
    # As columns: the name of a metric alone stands for all its columns.
    write_json(out / "members.json", [_requested(entry.row) for entry in members])
    print(f"{len(members)} members: {', '.join(entry.row.name for entry in members)}; {best}")


def _requested(row: Row) -> str:
    """The request of a single column: ``METRIC.COLUMN``, or ``LABEL=METRIC.COLUMN``."""
    label = "" if row.key.label == row.metric else f"{row.key.label}="
    return f"{label}{row.metric}.{row.key.column}"


def judge(arguments: Arguments, out: Path) -> None:
    """Save the committee of the chosen members and that of all candidates, and evaluate both on human ratings."""
    members = read_json(out / "members.json")
    results: dict[str, Any] = {}
    for name, (data, protocol) in JUDGED.items():
        committees = [saved(arguments, members, out, "committee")]
        if name != "crowdflower":  # ten times the captions
            committees.append(saved(arguments, arguments.metrics, out, "all-candidates"))
        found = capbench.compare(
            data,
            [*members, *(f"combination:{path}" for path in committees)],
            protocol=protocol,
            resamples=1000,
            **_inputs(arguments, members if name == "crowdflower" else arguments.metrics)
            | {"options": _inputs(arguments, members)["options"]},
            progress=True,
        ).as_json()
        results[name] = found
        write_json(out / "results.json", {"capbench": capbench.__version__, "members": members, **results})
        print(name, found["table"]["values"], flush=True)


def saved(arguments: Arguments, members: Sequence[str], out: Path, name: str) -> Path:
    """The committee as a metric, in run/; and NAME.json, the same with names of files instead of their paths."""
    saved = out / "run" / f"{name}.json"
    if not saved.is_file():
        saved.parent.mkdir(parents=True, exist_ok=True)
        capbench.combine(
            "flickr8k-pseudo",
            members,
            protocol=OWN,
            learner="mean-rank",
            save=saved,
            resamples=100,
            **_inputs(arguments, members),
            progress=True,
        )
    raw = read_json(saved)
    for entry in raw["inputs"]:
        entry["options"] = {
            key: Path(value).name if isinstance(value, str) and "/" in value else value
            for key, value in entry["options"].items()
        }
    write_json(out / f"{name}.json", raw)
    return saved


def _inputs(arguments: Arguments, metrics: Sequence[str]) -> dict[str, Any]:
    """Options, features and weights of some metrics, by metric."""
    labels = {request.label for request in resolve_metrics(metrics)}
    given: dict[str, dict[str, Any]] = {
        "options": arguments.options,
        "features": arguments.features,
        "model": arguments.models,
    }
    return {key: {label: one for label, one in values.items() if label in labels} for key, values in given.items()}


def main() -> None:
    """Run one of the two steps."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=("select", "judge"))
    parser.add_argument("--arguments", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "committee")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    {"select": select, "judge": judge}[given.step](Arguments.read(given.arguments), given.out)


if __name__ == "__main__":
    main()
