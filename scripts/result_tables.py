"""Write the tables of docs/results/*.md, docs/performance.md, docs/which-metric.md, and some of other pages of docs/.

python scripts/result_tables.py [--check]

A table of a page is replaced by the rendered table with the same head, and the marked numbers of its sentences by the
stored ones (``scripts/page_numbers.py``). Text and other tables stay unchanged.
``--check`` writes nothing and fails if a page differs. ``PAGES`` lists the pages and the functions that render their
tables.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402

from capbench.core.files import read_json, read_text, write_text  # noqa: E402
from scripts.bench.common import Row  # noqa: E402
from scripts.page_numbers import with_marked_numbers  # noqa: E402

Results = Mapping[str, Any]
_TABLE = re.compile(r"(?:^\|.*\n?)+", re.MULTILINE)
SETS = {"expert": "Flickr8k Expert", "composite-8k": "Composite (8k)"}


def table(rows: Mapping[str, Sequence[str]], head: Sequence[str]) -> str:
    """A Markdown table. On Composite (8k), the networks' results have CIDEr with the documents of this group alone."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    if SETS["composite-8k"] in head:
        rows = {name.replace("CIDEr", "CIDEr (df of each set)"): cells for name, cells in rows.items()}
    lines += ["| " + " | ".join((name, *cells)) + " |" for name, cells in rows.items()]
    return "\n".join(lines)


def spread(values: Sequence[float], digits: int = 4) -> str:
    """Mean and standard deviation over seeds."""
    deviation = f" ± {np.std(values, ddof=1):.{digits}f}" if len(values) > 1 else ""
    return f"{np.mean(values):.{digits}f}{deviation}"


def _interval(one: Mapping[str, float], digits: int = 4, scale: float = 1) -> str:
    return f"[{scale * one['low']:.{digits}f}, {scale * one['high']:.{digits}f}]"


def _value(one: Mapping[str, float] | None, digits: int = 4, scale: float = 1) -> str:
    """Value and interval; empty without a value."""
    return "" if one is None else f"{scale * one['value']:.{digits}f} {_interval(one, digits, scale)}"


def _results(file: str) -> Any:
    return read_json(ROOT / "results" / file)


def _agreement(results: Results, rows: Mapping[str, str], head: str) -> str:
    """Values with intervals and ranks on both sets, the best row on Flickr8k Expert first."""
    of_expert = results["expert"]["intervals"]
    cells = {
        rows[name]: [
            text
            for key in SETS
            for text in (_value(results[key]["intervals"][name]), str(results[key]["comparison"]["ranks"][name]))
        ]
        for name in sorted(rows, key=lambda name: -of_expert[name]["value"])
    }
    return table(cells, (head, *(text for title in SETS.values() for text in (title, "rank"))))


# What the image contributes

IMAGE_ROWS = {
    "ref-dual-encoder": "Dual encoder with references",
    "dual-encoder": "Dual encoder",
    "reo-relevance": "REO relevance",
    "grounding": "mean grounding",
    "tiger": "TIGEr",
    "faier": "FAIEr",
    "vilbertscore-f": "ViLBERTScore-F",
    "leic": "LEIC by sentence",
}


def _difference(one: Mapping[str, float]) -> str:
    """A difference with its interval; bold if the permutation test finds it significant (p ≤ .05)."""
    text = f"{one['difference']:+.3f}"
    return f"{f'**{text}**' if one['p'] <= 0.05 else text} {_interval(one, 3)}"


def images() -> list[str]:
    """Agreement with the image, and its differences from mean features and from another image, for three seeds."""
    results = _results("image-contribution/results.json")
    faier = _results("faier-flickr8k/results.json")
    measured = {
        key: {**results[key]["contributions"], "faier": faier[key]["contributions"]["faier, all references"]}
        for key in SETS
    }
    rows = {
        title: [
            text
            for key in SETS
            for one in (measured[key][name],)
            for text in (f"{one['seen']:.3f}", _difference(one["mean"]), _difference(one["shuffled"]))
        ]
        for name, title in IMAGE_ROWS.items()
    }
    head = (
        "τ-c, mean over seeds",
        *(f"{title}{what}" for title in SETS.values() for what in ("", ", − mean", ", − shuffled")),
    )
    return [table(rows, head)]


# TIGEr and REO


def flickr8k_grid() -> list[str]:
    """Agreement, and what each part of TIGEr's distance agrees with."""
    results = _results("flickr8k-grid/results.json")
    parts = {
        name: [spread([one[name] for one in results[key]["parts of the distance"]], 3) for key in SETS]
        for name in results["expert"]["parts of the distance"][0]
    }
    rows = {name: name for name in results["expert"]["intervals"] if not name.startswith("reo-image")}
    return [
        _agreement(results, rows, "τ-c, mean over seeds"),
        table(parts, ("part of the distance (τ-b with the mean rating)", *SETS.values())),
    ]


# NNEval

NNEVAL_ROWS = {
    "monotone": "NNEval, foreign captions, monotone ‡",
    "released": "NNEval, released weights †",
    "foreign": "NNEval, foreign captions",
    "coco, τ": "NNEval, chosen on Expert †",
    "coco": "NNEval",
    "paper": "NNEval, the paper's settings †",
    "wmd": "WMD",
    "spice": "SPICE",
    "cider": "CIDEr",
    "meteor": "METEOR",
    "bleu-4": "BLEU-4",
}
NNEVAL_SETS = {
    "composite/same-text-out/correctness-tau-c": "Composite",
    "composite/any-candidate-out/correctness-tau-c": "Composite, the literature's references",
    "flickr8k-expert/no-own-captions/unaggregated-tau-c": "Flickr8k Expert",
    "pascal-50s/json-5-refs/direct-strict": "PASCAL-50S, %",
    "distractions/own-caption-out/right-strict": "distractions, %",
}
EXPERT, COMPOSITE = "flickr8k-expert/no-own-captions/unaggregated-tau-c", "composite/same-text-out/correctness-tau-c"


def _digits(name: str) -> tuple[int, float]:
    """Digits and scale of a protocol's values."""
    return (2, 100) if name.endswith("strict") else (4, 1)


def nneval_agreement(results: Results) -> str:
    """Mean and standard deviation over seeds, with the interval of the mean."""
    names = [name for name in NNEVAL_SETS if name in results]
    rows: dict[str, list[str]] = {}
    for row in (row for row in NNEVAL_ROWS if row in results[names[0]]["values"]):
        rows[NNEVAL_ROWS[row]] = []
        for name in names:
            digits, scale = _digits(name)
            text = spread([scale * value for value in results[name]["values"][row]], digits)
            interval = results[name]["intervals"].get(row)
            rows[NNEVAL_ROWS[row]].append(f"{text} {_interval(interval, digits, scale)}" if interval else text)
    return table(rows, ("row", *(NNEVAL_SETS[name] for name in names)))


def nneval() -> list[str]:
    """Agreement."""
    return [nneval_agreement(_results("nneval/results.json"))]


# The dual encoder


def dual_encoder() -> list[str]:
    """Agreement with intervals, the best row on Flickr8k Expert first."""
    results = _results("dual-encoder-flickr8k/results.json")
    of_expert = results["expert"]["rows"]
    rows = {
        row: [
            f"{spread(results[key]['rows'][row]['tau-c'])} {_interval(results[key]['intervals'][row])}" for key in SETS
        ]
        for row in sorted(of_expert, key=lambda row: -np.mean(of_expert[row]["tau-c"]))
    }
    return [table(rows, ("τ-c", *SETS.values()))]


# ViLBERTScore


def vilbert() -> list[str]:
    """Agreement of F."""
    results = _results("vilbert-flickr8k/results.json")
    return [_agreement(results, {name: name for name in results["expert"]["intervals"]}, "τ-c, mean over seeds")]


# FAIEr

WAYS = {"one": "one reference", "all": "all references", "none": "no references"}
FAIER_ROWS = {
    "fier": "FIEr",
    "aier-4-ref": "AIEr-4 ref",
    "fier-aier-4-ref": "FIEr+AIEr-4 ref",
    "faier-rel-4-ref": r"FAIEr\rel-4 ref",
    "faier-4-ref": "FAIEr-4 ref",
    "faier-rel-1-ref": r"FAIEr\rel-1 ref",
    "faier-1-ref": "FAIEr-1 ref",
    "faier-rel-r-ref": r"FAIEr\rel-r ref",
    "faier-r-ref": "FAIEr-r ref",
}


def _faier_table4() -> str:
    """The rows of FAIEr's Table 4."""
    results = _results("faier-flickr8k/table4.json")
    rows = {
        f"{title} ({len(results['seeds'][row])})": [
            _value(results[key]["rows"][row].get(way, {}).get("tau-c"), 3) for key in SETS for way in WAYS
        ]
        for row, title in FAIER_ROWS.items()
    }
    return table(rows, ("row (seeds)", *(f"{title}, {way}" for title in SETS.values() for way in WAYS.values())))


def faier() -> list[str]:
    """Agreement, and the rows of Table 4."""
    results = _results("faier-flickr8k/results.json")
    shown = ("faier, ", "tiger, ", "reo-relevance, ", "reo-omission, ", "SPICE", "CIDEr", "METEOR")
    rows = {name: name for name in results["expert"]["intervals"] if name.startswith(shown)}
    return [_agreement(results, rows, "τ-c, mean over seeds"), _faier_table4()]


# VIFIDEL and LEIC


def vifidel_leic() -> list[str]:
    """Agreement of both; LEIC with the mean image vector, too."""
    vifidel, leic = _results("vifidel-leic/vifidel.json"), _results("vifidel-leic/leic.json")
    vectors = {
        "captions of training images": _results("vifidel-leic/vifidel-train.json"),
        "GloVe": _results("vifidel-leic/vifidel-glove.json"),
        "captions of all images": vifidel,
    }
    titles = {
        "WMD": "WMD",
        "VIFIDEL, references (negative)": "VIFIDEL with references",
        "VIFIDEL (negative)": "VIFIDEL",
    }
    rows = {
        title: [_value(results[key]["intervals"][name], 3) for key in SETS]
        for name, title, results in (
            *((name, name, vifidel) for name in ("SPICE", "CIDEr", "METEOR")),
            *((name, f"{title}, {words}", of) for name, title in titles.items() for words, of in vectors.items()),
        )
    }
    networks = {key: [leic[key]["intervals"][f"network {seed}"]["value"] for seed in (1, 2, 3)] for key in SETS}
    rows["LEIC by sentence, three networks"] = [_value(leic[key]["intervals"]["as one"], 3) for key in SETS]
    mean = {
        row: [leic[key]["rows"][row]["tau-c"] for key in SETS]
        for row in ("mean image vector", "as one, mean image vector")
    }
    rows["the same, mean image vector"] = [f"{value:.3f}" for (value,) in mean["as one, mean image vector"]]
    rows["LEIC by sentence, one network"] = [spread(networks[key], 3) for key in SETS]
    rows["the same, mean image vector (one network)"] = [spread(values, 3) for values in mean["mean image vector"]]
    rows["LEIC against twelve systems"] = [_value(leic[key]["intervals"]["systems, five parts"], 3) for key in SETS]
    return [table(rows, ("τ-c", *SETS.values()))]


# Combinations

COMBINED = {
    "flickr8k-expert": "Flickr8k Expert",
    "composite": "Composite",
    "pascal-50s": "PASCAL-50S, %",
    "pascal-50s/random-5-refs/direct-strict": "PASCAL-50S, five random samples, %",
    "flickr8k-expert+trained": "Flickr8k Expert, with trained metrics",
    "composite@8k+trained": "Composite (8k), with trained metrics",
    "composite+trained": "Composite, with other metrics that read text",
    "pascal-50s+trained": "PASCAL-50S, with other metrics that read text, %",
}
COMBINATION = "combination"


def _against_best(comparison: Results, percent: bool) -> list[str]:
    """Best single metric, combination, their difference and its corrected p."""
    digits, scale = (2, 100) if percent else (4, 1)
    values = {name: value for name, value in comparison["table"]["values"].items() if name != COMBINATION}
    best = max(values, key=lambda name: values[name])
    (pair,) = (one for one in comparison["table"]["pairs"] if {one["better"], one["worse"]} == {best, COMBINATION})
    sign = 1 if pair["better"] == COMBINATION else -1
    low, high = sorted((sign * scale * pair["low"], sign * scale * pair["high"]))
    difference = f"{sign * scale * pair['difference']:+.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"
    single = f"{best} {scale * values[best]:.{digits}f}"
    return [
        single,
        _value(comparison["intervals"][COMBINATION], digits, scale),
        difference,
        f"{pair['p_adjusted']:.3f}",
    ]


def combinations() -> list[str]:
    """Combinations against the best single metric, out of fold."""
    results = _results("reference/combinations.json")
    rows: dict[str, list[str]] = {}
    for label, title in COMBINED.items():
        for learner in ("ridge", "logistic", "monotone"):
            found = results.get(f"{label}/{learner}")
            if found is None:
                continue
            percent = found["on_pairs"]
            digits, scale = (2, 100) if percent else (4, 1)
            lost = [part for part in found["parts"] if part["drop_low"] > 0]
            drops = sorted(lost, key=lambda part: -part["drop"])[:3]
            shown = ", ".join(f"{part['title']} {scale * part['drop']:.{digits}f}" for part in drops)
            rows[f"{title}: {learner}"] = [*_against_best(found["comparison"], percent), shown]
    head = ("best single", "combination", "difference", "p", "largest losses without one metric")
    return [table(rows, ("data set: learner", *head))]


# With and without human captions

COMPOSITE_COLUMNS = {
    "all captions": "same-text-out/correctness-tau-c",
    "machine only": "no-human/correctness-tau-c",
    "within image": "same-text-out/correctness-within-image-tau-c",
    "within image, machine only": "no-human/correctness-within-image-tau-c",
    "within source": "same-text-out/correctness-within-source-tau-c",
    "systems, r": "same-text-out/correctness-system-pearson",
}
THUMB_COLUMNS = {
    "all captions": "all-systems/total-pearson",
    "machine only": "no-human/total-pearson",
    "within source": "all-systems/total-within-source-pearson",
    "systems": "all-systems/total-system-pearson",
    "systems, machine only": "no-human/total-system-pearson",
}


def study_table(results: Results, columns: Mapping[str, tuple[str, str]], head: str, percent: bool = False) -> str:
    """Values of a study with intervals, † if not significantly worse than the best; columns: protocol and group."""
    digits, scale = (1, 100) if percent else (3, 1)
    cells = {(cell["protocol"], cell["group"], cell["column"]): cell for cell in results["cells"]}
    top = {(tests["protocol"], tests["group"]): tests["top"] for tests in results["comparisons"]}
    rows: dict[str, list[str]] = {}
    for name, title in results["columns"].items():
        for place in columns.values():
            value, _, interval = _value(cells[*place, name], digits, scale).partition(" ")
            rows.setdefault(title, []).append(f"{value}{'†' * (name in top[place])} {interval}")
    return table(rows, (head, *columns))


def text_metrics() -> list[str]:
    """Text metrics on Flickr8k Expert and Composite, with the human ceiling."""
    results = _results("text-metrics/results.json")
    columns = {protocol["dataset_title"]: (protocol["id"], "") for protocol in results["protocols"]}
    ceilings = {ceiling["protocol"]: ceiling for ceiling in results["ceilings"]}
    above = study_table(results, columns, "metric, τ-c")
    cells = [_value(ceilings.get(protocol), 3) for protocol, _ in columns.values()]
    return [f"{above}\n| " + " | ".join(("*human ceiling*", *cells)) + " |"]


def within_source() -> list[str]:
    """Composite, THumB and PASCAL-50S with and without human captions."""
    results = _results("within-source/results.json")
    composite = {title: (f"composite/{name}", "") for title, name in COMPOSITE_COLUMNS.items()}
    thumb = {title: (f"thumb/{name}", "") for title, name in THUMB_COLUMNS.items()}
    return [
        study_table(results, composite, "Composite, τ-c"),
        study_table(results, thumb, "THumB, r"),
    ]


# Performance


def performance() -> list[str]:
    """The slowest row of each bench that compares with another implementation."""
    rows: dict[str, list[str]] = {}
    for stored in _results("bench/small.json").values():
        measured = [Row.of(entry) for entry in stored["rows"]]
        for row in sorted((row for row in measured if row.ratio is not None), key=lambda row: row.ratio or 0)[:1]:
            ours, theirs, ratio, _, difference = row.cells()
            rows[f"{row.what} ({row.peer})"] = [ours, theirs, ratio, difference]
    return [table(rows, ("what (peer)", "capbench, s", "peer, s", "ratio", "difference"))]


# Pages


def with_numbers(page: str, rendered: Sequence[str]) -> tuple[str, int]:
    """The page with the rows of rendered tables, and how many tables were replaced."""
    new = {_head(text): text for text in rendered}
    replaced = 0

    def renew(match: re.Match[str]) -> str:
        nonlocal replaced
        old = match.group()
        if _head(old) not in new:
            return old
        replaced += 1
        return new[_head(old)] + "\n" * old.endswith("\n")

    return _TABLE.sub(renew, page), replaced


def _head(text: str) -> str:
    return text.partition("\n")[0]


# Which metric

WHICH_SENTINELS = ("candidate-only", "source", "length")


def which_metric() -> list[str]:
    """Overall value and rank over all tasks, and intervals on three of them; sentinels below."""
    ranking, comparison = _results("rank/ranking.json"), _results("flickr8k-expert/comparison.json")
    expert = {cell["title"]: cell for cell in comparison["cells"]}
    study = _results("within-source/results.json")
    places = ("composite/no-human/correctness-tau-c", "thumb/no-human/total-pearson")
    machine = {(c["title"], c["protocol"]): c for c in study["cells"] if not c["group"]}
    ranked = {metric["title"]: metric for metric in ranking["ranking"]["metrics"]}
    rows = {}
    for title in (*ranked, "SPICE", "FLEUR"):
        found = ranked.get(title)
        overall = [f"{found['overall']:.3f}", str(found["rank"])] if found else ["", ""]
        cells = [expert[title], *(machine.get((title, place)) for place in places)]
        rows[title] = [*overall, *(_value(cell, 3) for cell in cells)]
    for name in WHICH_SENTINELS:
        (sentinel,) = (one for one in ranking["sentinels"] if one["name"] == name)
        expert_value = sentinel["values"].get("flickr8k-expert")
        shown = "" if expert_value is None else f"{expert_value:.3f}"
        rows[f"*sentinel `{name}`*"] = [f"{sentinel['overall']:.3f}", "", shown, "", ""]
    heads = ("Flickr8k Expert, τ-c", "Composite, machine captions, τ-c", "THumB, machine captions, r")
    return [table(rows, ("metric", "overall", "rank", *heads))]


PAGES = {
    "results/index.md": images,
    "results/flickr8k-grid.md": flickr8k_grid,
    "results/nneval.md": nneval,
    "results/dual-encoder-flickr8k.md": dual_encoder,
    "results/vilbert-flickr8k.md": vilbert,
    "results/faier-flickr8k.md": faier,
    "results/vifidel-leic.md": vifidel_leic,
    "results/combinations.md": combinations,
    "results/text-metrics.md": text_metrics,
    "results/within-source.md": within_source,
    "which-metric.md": which_metric,
    "performance.md": performance,
}
"""The function that renders the tables of a page, by its path in docs/."""


def written(page: str) -> str:
    """The page with the numbers of its results. Raises ValueError unless every rendered table has one place there."""
    tables = PAGES[page]()
    text, replaced = with_numbers(with_marked_numbers(read_text(ROOT / "docs" / page)), tables)
    if replaced != len(tables):
        raise ValueError(f"{page} has places for {replaced} of {len(tables)} tables")
    return text


def main() -> None:
    """Write all pages; with ``--check`` list those that differ."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing, and fail if a page differs")
    check = parser.parse_args().check
    pages = {page: written(page) for page in PAGES}
    changed = [page for page, text in pages.items() if text != read_text(ROOT / "docs" / page)]
    for page in changed:
        if not check:
            write_text(ROOT / "docs" / page, pages[page])
        print(f"docs/{page}{' differs' if check else ''}")
    if changed and check:
        raise SystemExit("write them: python scripts/result_tables.py")


if __name__ == "__main__":
    main()
