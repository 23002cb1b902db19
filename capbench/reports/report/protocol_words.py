"""Protocols in words, and what changes where another one is chosen."""

from __future__ import annotations

from collections.abc import Sequence

from capbench.analyses.all_protocols import agreement_of_rankings
from capbench.reports.report.elements import Html, joined, tag
from capbench.reports.report.numbers import Entry
from capbench.reports.report.sources import ReportSource
from capbench.studies.results import ProtocolInfo

__all__ = ["choices", "protocols_section"]

_CHOICES = (
    (
        "tau-b",
        "Kendall's τ-b counts ordered pairs and corrects for ties on both sides.",
        "τ-c divides by what the number of ratings allows, not by the ties there are: values are lower where ratings "
        "are few, and the order of metrics can change where some tie often.",
    ),
    (
        "tau-c",
        "Kendall's (Stuart's) τ-c counts ordered pairs and divides by what the number of different ratings allows.",
        "τ-b corrects for the ties of both sides: it is higher for metrics that tie often. Papers differ in which one "
        "they print, so values of the two are not to be compared.",
    ),
    (
        "spearman",
        "Spearman's ρ is the correlation of ranks: one caption far out of place weighs much.",
        "Kendall's coefficients count pairs and give smaller values; the order of metrics is often the same.",
    ),
    (
        "pearson",
        "Pearson's r is the correlation of the values themselves: it asks for a straight line.",
        "Coefficients of ranks ask for the right order alone and do not punish a bent scale or few extreme scores.",
    ),
    (
        "acc-eq",
        "Pairwise accuracy with tie calibration: a pair counts as tied where scores differ by less than ε, and ties "
        "that people make have to be found, too.",
        "Kendall's coefficients reward a metric that never ties even where people do.",
    ),
    (
        "difference-pearson",
        "Pearson's r of the differences between captions of one image.",
        "Correlations over all captions also ask which image is hard.",
    ),
    (
        "within-image",
        "Captions are compared with those of the same image alone: is the better caption told from the worse one?",
        "Over all captions, a metric also gains by knowing which images are hard to describe.",
    ),
    (
        "system",
        "Whole systems are compared by their means: what a leaderboard needs.",
        "Over captions there are thousands of data points in place of a few systems, and agreement is lower, because "
        "single captions are harder to judge.",
    ),
    (
        "unaggregated",
        "Every single rating is a data point.",
        "With one value an item (mean, median, most frequent rating) disagreement between people drops out, and every "
        "metric's value rises.",
    ),
    (
        "mean",
        "The mean of an item's ratings is its data point.",
        "Single ratings keep people's disagreement: values fall.",
    ),
    (
        "median",
        "The median of an item's ratings is its data point.",
        "The mean makes more different values, hence fewer ties.",
    ),
    (
        "mode",
        "The most frequent rating of an item is its data point.",
        "The mean makes more different values, hence fewer ties.",
    ),
    (
        "strict",
        "A tie of the metric is wrong.",
        "A rule that gives ties one half, or counts them right, favours metrics that tie.",
    ),
    ("ties-right", "A tie of the metric is right.", "The strict rule counts it wrong: metrics that tie often fall."),
    ("ties-half", "A tie of the metric counts one half, as guessing would.", "The strict rule counts it wrong."),
    (
        "no-own-captions",
        "Pairs whose caption belongs to the image are left out: the caption would be its own reference.",
        "With them, metrics over references score such captions at the top without any skill.",
    ),
    (
        "same-text-out",
        "References with the candidate's very text are left out.",
        "With them, a human caption meets itself among its references and scores at the top.",
    ),
    (
        "all-references",
        "Every reference counts, the candidate's own text too.",
        "Without it, human captions lose what they have for free.",
    ),
    (
        "random",
        "References are drawn at random, several times; values are means over draws.",
        "With all references most metrics agree better with people; fewer tell how a metric does with little.",
    ),
)


def choices(info: ProtocolInfo) -> list[tuple[str, str]]:
    """The choices that a protocol's id makes: what each means, and what another would change.

    The longest name that fits is taken once: ``within-image-tau-b`` makes the choices *within-image* and *tau-b*.
    """
    words = "/".join(info.id.split("/")[1:])
    parts = [f"-{part}-" for part in words.split("/")]
    made = []
    for name, means, other in _CHOICES:
        if any(f"-{name}-" in part for part in parts):
            made.append((means, other))
    return made


def protocols_section(sources: Sequence[ReportSource], numbers: Sequence[Entry]) -> Html:
    """Every protocol of the page, once."""
    infos = {info.id: info for source in sources for info in source.result.protocols}
    values: dict[str, dict[str, float]] = {}
    titles: dict[str, str] = {}
    for entry in numbers:
        if not entry.cell.group and entry.info.kind != "mean":
            values.setdefault(entry.info.id, {}).setdefault(entry.cell.column, entry.cell.value)
            titles[entry.cell.column] = entry.cell.title
    parts = [_protocol(info, infos, values, titles) for info in infos.values()]
    return tag(
        "section",
        tag("h2", "Protocols in words"),
        tag(
            "p",
            "A protocol is data set / items / statistic: which captions count, against which references, and what is "
            "computed. The same metric has another value under another protocol.",
            class_="note",
        ),
        *parts,
        id="protocols",
    )


def _protocol(
    info: ProtocolInfo, infos: dict[str, ProtocolInfo], values: dict[str, dict[str, float]], titles: dict[str, str]
) -> Html:
    lines = [tag("p", info.description[:1].upper() + info.description[1:] + ".")]
    made = choices(info)
    if made:
        row = tag("tr", tag("th", "this protocol", scope="col"), tag("th", "if another is chosen", scope="col"))
        body = [tag("tr", tag("td", means), tag("td", other)) for means, other in made]
        lines.append(tag("table", tag("thead", row), tag("tbody", *body), class_="plain words"))
    changes = _changes(info, infos, values, titles)
    if changes:
        lines += [tag("p", "Here, on the same judgements:"), tag("ul", *changes)]
    size = f"{info.n_items:,} scored items" + (f", {info.draws} draws of references" if info.draws > 1 else "")
    notes = [size, *info.notes]
    lines.append(tag("ul", *(tag("li", note) for note in dict.fromkeys(notes)), class_="note"))
    head = tag("summary", tag("b", f"{info.dataset_title}, {info.statistic}"), " ", tag("code", info.versioned_id))
    return tag("details", head, *lines)


def _changes(
    info: ProtocolInfo, infos: dict[str, ProtocolInfo], values: dict[str, dict[str, float]], titles: dict[str, str]
) -> list[Html]:
    """How the ranking of metrics changes under the page's other protocols of the same data set."""
    mine = values.get(info.id, {})
    changes = []
    for other in infos.values():
        theirs = values.get(other.id, {})
        common = [name for name in mine if name in theirs]
        if other.id == info.id or other.dataset != info.dataset or len(common) < 2:
            continue
        tau = agreement_of_rankings(mine, theirs)
        best, then = (max(common, key=ranking.__getitem__) for ranking in (mine, theirs))
        order = "" if tau is None else f"the rankings of {len(common)} metrics agree with τ-b {tau:.2f}"
        same = (
            f"{titles[best]} stays first" if best == then else f"{titles[then]} comes first in place of {titles[best]}"
        )
        rest = other.id.split("/", 1)[1]
        changes.append(tag("li", joined([tag("code", rest), f": {'; '.join(filter(None, [order, same]))}."])))
    return changes
