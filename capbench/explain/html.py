"""Why a metric gave its score, as one HTML file: nothing is loaded from elsewhere, and no script runs."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

import numpy as np

from capbench import files
from capbench.explain import svg
from capbench.explain.picture import BAR_KINDS, TOP_BOXES, TOP_WORDS, attention_span, highlights
from capbench.explain.reo import ReoCandidate, ReoExplanation, ReoTruth
from capbench.explain.tiger import GroundedCaption, TigerCandidate, TigerExplanation, letter
from capbench.reports.heatmaps import COLOUR_MAP, GLOW_RGB, HEAT_ALPHA, Scene, glow, heat

__all__ = ["reo_html", "tiger_html"]

_STYLE = """
:root { color-scheme: light dark; --ground: #ffffff; --ink: #1b1b1b; --soft: #5c5c5c; --rule: #c9c9c9;
  --blue: #0072b2; --orange: #d55e00; --green: #007d5b; --grey: #767676; --extra: 213, 94, 0; --missing: 0, 158, 115; }
@media (prefers-color-scheme: dark) {
  :root { --ground: #16181b; --ink: #ececec; --soft: #a9adb3; --rule: #44484e;
    --blue: #56b4e9; --orange: #f0903c; --green: #3ccba0; --grey: #9a9a9a; } }
body { background: var(--ground); color: var(--ink); font: 15px/1.45 system-ui, "Segoe UI", sans-serif;
  max-width: 1240px; margin: 1.5rem auto; padding: 0 1rem; overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; margin-bottom: .3rem } h2 { font-size: 1.2rem; margin: 2.2rem 0 .3rem }
h3 { font-size: .95rem; margin: 0 0 .3rem } p { margin: .3rem 0 } code, .soft { color: var(--soft) }
code { font-size: .75rem }
.row { display: flex; flex-wrap: wrap; gap: 1.2rem; margin: .8rem 0; align-items: flex-start }
figure { margin: 0; max-width: 100% } figcaption { font-size: .85rem; margin-bottom: .25rem }
svg.picture { width: 360px } .tile, .tile svg.picture { width: 150px }
svg { max-width: 100%; height: auto; display: block }
svg.chart text { font-size: 12px; fill: var(--ink) } svg text.small { font-size: 11px; fill: var(--soft) }
svg text.bold { font-weight: 600 }
svg text.tag { font: 700 16px sans-serif; fill: #fff; stroke: #000; stroke-width: 3px; paint-order: stroke }
.axis { stroke: var(--soft) } .ideal { stroke: var(--ink); stroke-width: 1.6 }
.single { stroke: var(--rule); fill: none } .mean { stroke: var(--blue); stroke-width: 2.2; fill: none }
.candidate { stroke: var(--orange); fill: none } .candidate-bar, .extra-bar, .extraness-bar { fill: var(--orange) }
.missing-bar, .omission-bar { fill: var(--green) } .relevance-bar { fill: var(--blue) }
.people-bar { fill: var(--grey) }
.dot { fill: var(--blue) } .hollow { fill: var(--ground); stroke: var(--soft) }
.touch { fill: transparent; pointer-events: all }
.edge { fill: none; stroke: #000; stroke-width: 4; vector-effect: non-scaling-stroke }
.box { fill: none; stroke: #fff; stroke-width: 2; vector-effect: non-scaling-stroke }
.scale { height: 12px; width: 100%; margin-top: .3rem; background-color: #fff }
.ends { display: flex; justify-content: space-between; font-size: .75rem; color: var(--soft) }
table { border-collapse: collapse; font-size: .85rem; font-variant-numeric: tabular-nums }
th, td { border-bottom: 1px solid var(--rule); padding: .2rem .6rem; text-align: right }
th:first-child, td:first-child { text-align: left } .wide { overflow-x: auto }
mark { color: inherit; padding: .1rem .2rem; border-radius: .2rem }
mark.extra { background: rgba(var(--extra), calc(.65 * var(--v))) }
mark.missing { background: rgba(var(--missing), calc(.65 * var(--v))) }
details { margin: .6rem 0 } summary { cursor: pointer }
"""


def tiger_html(explanation: TigerExplanation, scene: Scene, path: Path) -> None:
    """Write a TIGEr explanation as one HTML file (what :func:`capbench.explain.picture.tiger_png` draws, and tables).

    Raises:
        UsageError: the file cannot be written.
    """
    body = [svg.picture_source(scene.pixels)] if scene.boxes is not None else []
    for i, candidate in enumerate(explanation.candidates):
        body += [
            f"<h2>{letter(i)}: {escape(candidate.caption.text)}</h2>",
            _tiger_numbers(candidate),
            '<div class="row">',
        ]
        if scene.boxes is not None:
            body += _heat_maps(candidate, scene)
        body += [
            _figure("Regions by grounding, with the rank on the other side", svg.ranking(candidate, scene.names)),
            _figure(_dcg(candidate), svg.gains(candidate)),
            _figure("Grounding vectors: shape and level", svg.profile(candidate)),
            "</div>",
        ]
        if scene.boxes is not None:
            body += _word_tiles(candidate.caption, scene)
        body += [_references([caption.text for caption in candidate.references]), _region_table(candidate, scene.names)]
    _write(path, f"TIGEr: {explanation.image}", explanation.notes, explanation.signature, body)


def _dcg(candidate: TigerCandidate) -> str:
    dcg, ideal = candidate.gains.sum(), candidate.ideal_gains.sum()
    return f"Gain of each position: DCG {dcg:.3f} of {ideal:.3f}"


def _tiger_numbers(candidate: TigerCandidate) -> str:
    values = {name: f"{value:.4f}" for name, value in candidate.scores.items()}
    values |= {"KL": f"{candidate.kl:.5f}", "D_rel": f"{candidate.d_rel:+.4f}"}
    if candidate.human is not None:
        values["people"] = f"{candidate.human:.2f}"
    return _table(list(values), [list(values.values())])


def _heat_maps(candidate: TigerCandidate, scene: Scene) -> list[str]:
    found = []
    for title, weights, order in (
        (f"References, mean of {len(candidate.references)}", candidate.reference, candidate.ideal_order),
        ("Candidate", candidate.caption.grounding, candidate.order),
    ):
        low, high = float(weights.min()), float(weights.max())
        notes = [f"region {name}: grounding {w:.3f}" for name, w in zip(scene.names, weights.tolist(), strict=True)]
        top = order[:TOP_BOXES].tolist()
        label = f"Heat map of the grounding of each region: {title}; best are {', '.join(scene.names[r] for r in top)}"
        drawn = svg.picture(scene, label, layer=heat(scene, weights, low, high), top=top, notes=notes)
        found.append(_figure(f"Grounding: {title}", drawn, _gradient(low, high)))
    return found


def _gradient(low: float, high: float) -> str:
    import matplotlib as mpl

    stops = []
    for position in np.linspace(0, 1, 9):
        red, green, blue, _ = mpl.colormaps[COLOUR_MAP](position, bytes=True)
        stops.append(f"rgba({red}, {green}, {blue}, {HEAT_ALPHA})")
    ends = f'<div class="ends"><span>{low:.3f}</span><span>{high:.3f}</span></div>'
    return f'<div class="scale" style="background-image: linear-gradient(to right, {", ".join(stops)})"></div>{ends}'


def _word_tiles(caption: GroundedCaption, scene: Scene) -> list[str]:
    if not caption.words:
        return []
    low, high = attention_span(caption)
    swatch = f'<span style="background: rgb{GLOW_RGB}; padding: 0 .5em">&nbsp;</span>'
    found = ["<h3>Where each word gets more of a region's attention than an equal share</h3>"]
    found.append(f"<p>{swatch} from {low:.2f} to {high:.2f}; the box is the region where it is highest.</p>")
    found.append('<div class="row">')
    for j, word in enumerate(caption.words):
        weights = caption.attention[:, j]
        top = [int(np.argmax(weights))] if weights.max() > weights.min() else []
        best = f"most at region {scene.names[top[0]]}: {weights.max():.3f}" if top else "the same everywhere"
        drawn = svg.picture(scene, f"{word}: {best}", layer=glow(scene, weights, low, high), top=top)
        title = f"<figcaption>{escape(word)}</figcaption>"
        found.append(f'<figure class="tile" title="{escape(best)}">{title}{drawn}</figure>')
    return [*found, "</div>"]


def _region_table(candidate: TigerCandidate, names: Sequence[str]) -> str:
    places = [np.argsort(order, kind="stable") + 1 for order in (candidate.ideal_order, candidate.order)]
    words = candidate.caption.words
    rows = []
    for region in candidate.ideal_order.tolist():
        best = int(np.argmax(candidate.caption.attention[region])) if words else -1
        rows.append(
            [
                names[region],
                *(str(side[region]) for side in places),
                f"{candidate.relevance[region]:.4f}",
                f"{candidate.reference[region]:.4f}",
                f"{candidate.caption.grounding[region]:.4f}",
                words[best] if words else "",
            ]
        )
    heads = ["region", "rank, references", "rank, candidate", "relevance", "grounding, references"]
    heads += ["grounding, candidate", "attends most to"]
    return f'<details><summary>All regions</summary><div class="wide">{_table(heads, rows)}</div></details>'


def reo_html(explanation: ReoExplanation, scene: Scene, path: Path) -> None:
    """Write a REO explanation as one HTML file (what :func:`capbench.explain.picture.reo_png` draws).

    Raises:
        UsageError: the file cannot be written.
    """
    body = []
    if scene.pictured:
        body += [svg.picture_source(scene.colour), svg.picture(scene, "The picture")]
    for i, candidate in enumerate(explanation.candidates):
        body += [f"<h2>{letter(i)}: {escape(candidate.text)}</h2>", _reo_numbers(candidate)]
        for title, words, kind in highlights(candidate):
            marks = "".join(f'<mark class="{kind}" style="--v: {max(v, 0):.3f}">{escape(w)}</mark> ' for w, v in words)
            body.append(f"<p><b>{escape(title)}:</b> {marks}</p>")
        body.append('<div class="row">')
        for truth, found in candidate.truths.items():
            body += _reo_words(truth, found)
        body += ["</div>", _references(candidate.references)]
    if len(explanation.candidates) > 1:
        body += [
            "<h2>All candidates</h2>",
            "<p>Every score scaled to 0..1 over the candidates.</p>",
            '<div class="row">',
        ]
        groups = [letter(i) for i in range(len(explanation.candidates))]
        for truth, columns in explanation.scaled().items():
            series = [(name, values, BAR_KINDS[name]) for name, values in columns.items()]
            title = f"Against {truth}"
            body.append(_figure(title, svg.group_bars(groups, series, f"{title}: scaled scores of the candidates")))
        body.append("</div>")
    _write(path, f"REO: {explanation.image}", explanation.notes, explanation.signature, body)


def _reo_numbers(candidate: ReoCandidate) -> str:
    names = list(next(iter(candidate.truths.values())).scores)
    rows = [[truth, *(f"{found.scores[name]:.4f}" for name in names)] for truth, found in candidate.truths.items()]
    people = "" if candidate.human is None else f"<p>people {candidate.human:.2f}</p>"
    return _table(["against", *names], rows) + people


def _reo_words(truth: str, found: ReoTruth) -> list[str]:
    drawn = []
    for title, words, kind, side in (
        (f"Extra, against {truth}", found.extra_words, "extra", "a⊥"),
        (f"Missing, against {truth}", found.missing, "missing", "g⊥"),
    ):
        if words:
            part = " (part of its length)" if words[0].contribution is not None else ""
            caption = f"{title}: similarity to {side}{part}"
            drawn.append(_figure(caption, svg.word_bars(words, TOP_WORDS, kind, title)))
    return drawn


def _figure(caption: str, *parts: str) -> str:
    return f"<figure><figcaption><b>{escape(caption)}</b></figcaption>{''.join(parts)}</figure>"


def _references(texts: Sequence[str]) -> str:
    if not texts:
        return ""
    return f"<details><summary>References</summary><ol>{''.join(f'<li>{escape(t)}</li>' for t in texts)}</ol></details>"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(text)}</th>" for text in heads)
    lines = "".join(f"<tr>{''.join(f'<td>{escape(text)}</td>' for text in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table>"


def _write(path: Path, title: str, notes: Sequence[str], signature: str, body: Sequence[str]) -> None:
    told = "".join(f"<p>{escape(note)}</p>" for note in notes)
    page = (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<h1>{escape(title)}</h1>\n{told}"
        f"<p><code>{escape(signature)}</code></p>\n" + "\n".join(body) + "\n</body>\n</html>\n"
    )
    files.write_text(path, page)
