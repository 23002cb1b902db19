"""Parses of many captions for ``capbench data parses``: of data sets, corpora and files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from capbench.core.errors import DataError, MissingFileError, UsageError, suggest

if TYPE_CHECKING:
    from capbench.api.caller import Caller
    from capbench.datasets.catalog import CaptionTerms
    from capbench.datasets.root import DataRoot
    from capbench.text.spice.parse_file import CaptionSet


ALL: Final = "all"
"""Name of all published data sets."""
_MOST_WORDS: Final = 100  # longer captions can take minutes and gigabytes each


@dataclass(frozen=True)
class NamedCaptions:
    """Tokenised captions, candidates and references, by data set, corpus or file."""

    captions: int
    tokens: Mapping[str, Sequence[str]]
    skipped: Mapping[str, str]
    unnamed: frozenset[str]


def named_captions(names: Sequence[str], root: DataRoot, caller: Caller) -> NamedCaptions:
    """Read and tokenise captions; data sets of ``all`` without their files are skipped."""
    from capbench.datasets.base import dataset_names, load_dataset
    from capbench.text import ptb

    wanted = dict[str, None]()
    for name in dataset_names() if ALL in names else ():
        wanted |= dict.fromkeys([name, *(f"{name}@{group}" for group in load_dataset(name).variants)])
    wanted |= dict.fromkeys(name for name in names if name != ALL)
    total = 0
    tokens: dict[str, Sequence[str]] = {}
    skipped: dict[str, str] = {}
    with caller.progress("reading captions", len(wanted)) as step:
        for name in wanted:
            try:
                texts = _texts(name, root)
            except MissingFileError as error:
                if name in names:
                    raise
                skipped[name] = error.message if error.path is None else f"{error.path}: {error.message}"
            else:
                total += len(texts)
                tokens[name] = list(dict.fromkeys(ptb.tokenize(texts)))
            step(1)
    if not tokens:
        message = f"no published data set is in {root.path}"
        hint = "'capbench data info' lists the missing files of every data set"
        raise UsageError(message, code="missing-data", value=str(root.path), hint=hint)
    return NamedCaptions(total, tokens, skipped, frozenset(tokens) - set(names))


def _texts(name: str, root: DataRoot) -> list[str]:
    """The captions of a corpus, a file of captions (a .json file is one), or a data set."""
    from capbench.datasets.base import dataset_names
    from capbench.datasets.captions import CORPORA, load_captions
    from capbench.datasets.opening import open_dataset
    from capbench.datasets.tables import SUFFIXES
    from capbench.datasets.user.judgements import imported_folders

    is_table = name.lower().endswith(SUFFIXES) and not name.lower().endswith(".json")
    is_file = Path(name).expanduser().exists() and not is_table
    if name in CORPORA or (is_file and name not in dataset_names()):
        return [text for image in load_captions(name, root).values() for text in image]
    try:
        opened = open_dataset(name, root)
    except UsageError as error:
        if error.code != "unknown-name" or error.value != name:
            raise
        choices = [*dataset_names(), *imported_folders(root), *CORPORA]
        message, hint = f"'{name}' is not a data set, a corpus of captions or a file", suggest(name, choices)
        raise UsageError(message, code="unknown-name", value=name, hint=hint) from error
    texts: dict[str, None] = {}
    for selection in opened.selections.values():
        # Sampled references are references of the other selections.
        is_default = selection.name == opened.default[0]
        if selection.draws > 1 and not is_default:
            continue
        try:
            draws = opened.load(selection)
        except DataError as error:
            # Other selections require optional files, or parses: they have captions of the default one.
            if is_default or error.code not in ("missing-data", "missing-file"):
                raise
            continue
        texts |= dict.fromkeys(
            text for draw in draws for item in draw.items for text in (item.candidate, *item.references)
        )
    return list(texts)


def make_parses(captions: NamedCaptions, root: DataRoot, caller: Caller) -> dict[str, int]:
    """Parse captions without a parse; numbers of ``distinct`` captions, and of those ``parsed`` and ``left_out``."""
    from capbench.core.progress import words
    from capbench.text.spice import scene_graph

    distinct, unparsed, long = set[str](), set[str](), set[str]()
    for name, tokens in captions.tokens.items():
        missing = scene_graph.missing(tokens, data=root.path)
        left_out = {text for text in missing if name in captions.unnamed and len(text.split()) > _MOST_WORDS}
        distinct.update(tokens)
        unparsed.update(text for text in missing if text not in left_out)
        long |= left_out
        line = f"{name}: {len(tokens):,} distinct captions, {len(missing):,} of them not parsed"
        if left_out:
            line += f"; {len(left_out):,} of more than {_MOST_WORDS} words are left out unless it is named"
        caller.note(line)
    to_parse = sorted(unparsed, key=lambda text: (len(text.split()), text))  # the last ones may exceed the memory
    if to_parse:
        caller.note(
            f"{len(to_parse):,} captions to parse, {words(len(to_parse) / scene_graph.per_second())} if this machine "
            "is otherwise idle; an interruption loses at most 128 parses"
        )
        with caller.spread() as workers, caller.progress("parsing captions", len(to_parse)) as step:
            scene_graph.ensure(to_parse, data=root.path, progress=step, spread=workers)
    return {"distinct": len(distinct), "parsed": len(to_parse), "left_out": len(long - unparsed)}


def export_named(
    file: Path, captions: NamedCaptions | None, root: DataRoot, *, replace: bool = False
) -> tuple[CaptionSet, ...]:
    """Write a parse file, and return the sets of captions recorded in it."""
    from capbench.text.spice.scene_graph import export_parses

    if captions is None:
        return export_parses(file, replace=replace)
    terms = {name: _terms(name, root) for name in captions.tokens}
    sets = {name: (tokens, terms[name].licence, terms[name].derived) for name, tokens in captions.tokens.items()}
    return export_parses(file, sets, data=root.path, replace=replace)


def _terms(name: str, root: DataRoot) -> CaptionTerms:
    """Terms of a set of captions; unknown for imported judgements, files and plug-ins."""
    from capbench.datasets.base import caption_terms
    from capbench.datasets.catalog import CaptionTerms

    terms = caption_terms(name)
    is_synthetic = root.is_sample and terms.licence != "unknown"
    return CaptionTerms(licence="Apache-2.0 (synthetic sample)", derived=True) if is_synthetic else terms
