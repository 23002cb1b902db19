"""Caption corpora by name or path (references, CIDEr's document frequencies), and machine captions.

Machine captions are read in the published formats:

- a list of images next to folders of outputs (Tanti, Gatt and Camilleri 2018): ``imgs_SET.txt`` with
  ``SET_*/generated_captions.txt``, whose line n belongs to line n of the list;
- COCO results, a JSON list of ``{"image_id": …, "caption": …}``. A file with k captions per image contains k systems,
  in the order of the captions (Feinglass and Yang 2021);
- a JSON list of ``{"image_name": …, "prediction": …}``, one system (Fei et al. 2023);
- a JSON object ``{image: caption}``, one system;
- JSON Lines of ``{"image": …, "caption": …}``.

A "system" counts as human if more than half of its captions are identical to references of their images. Such systems
are left out, and a note lists them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from capbench.core.errors import DataError, MissingFileError, UsageError, suggest
from capbench.core.records import caption_key
from capbench.datasets.judgement_files import parse_caption
from capbench.datasets.root import DataRoot
from capbench.datasets.user.caption_readers import (
    FLICKR8K_LIST,
    Captions,
    image_rows,
    read_captions_file,
    record_image,
    split_list,
    stripped_lines,
)
from capbench.datasets.user.captions import CANDIDATE_FORM, TEXT_KEYS, candidate_records


@dataclass(frozen=True)
class Corpus:
    """A named caption corpus."""

    description: str  # one line on its content
    sources: tuple[str, ...]  # paths of files or folders below the data folder, in order of preference
    split: str = ""  # the split of a file with splits


CORPORA: Mapping[str, Corpus] = {
    "coco-val": Corpus(
        "COCO, Karpathy's validation split (5,000 images)",
        ("coco/karpathy_val_captions.json", "coco/dataset_coco.json"),
        "val",
    ),
    "coco-test": Corpus(
        "COCO, Karpathy's test split (5,000 images)",
        ("coco/karpathy_test_captions.json", "coco/dataset_coco.json"),
        "test",
    ),
    "coco-val2014": Corpus(
        "COCO, the official validation set of 2014 (40,504 images)",
        ("coco/captions_val2014.json", "coco/annotations/captions_val2014.json"),
    ),
    "flickr8k": Corpus("Flickr8k, all splits", ("flickr8k/Flickr8k.token.txt", "flickr8k/dataset_flickr8k.json")),
    "flickr30k": Corpus(
        "Flickr30k, all splits that the files hold",
        ("flickr30k/multi30k_task2", "flickr30k/results_20130124.token", "flickr30k/dataset_flickr30k.json"),
    ),
    "nocaps-val": Corpus(
        "nocaps, the validation set (4,500 images)",
        ("nocaps/nocaps_corpus.json", "nocaps/nocaps_val_4500_captions.json"),
    ),
}


def load_captions(name: str, root: DataRoot | None = None) -> Captions:
    """Read a corpus by its name in :data:`CORPORA`, or by the path of a file or folder."""
    corpus = CORPORA.get(name)
    if corpus is None:
        path = Path(name).expanduser()
        if path.exists():
            return read_captions_file(path)
        if os.sep in name or path.suffix:
            raise MissingFileError("there is no such file or folder of captions", path=path)
        problem, hint = f"'{name}' is neither the name of a caption corpus nor a file", suggest(name, list(CORPORA))
        raise UsageError(problem, code="unknown-name", value=name, hint=hint)
    if root is None:
        problem, hint = f"the corpus '{name}' needs a data folder", "Give it with --data or CAPBENCH_DATA"
        raise UsageError(problem, code="missing-data", value=name, hint=hint)
    for path in (root.path / relative for relative in corpus.sources):
        if path.exists():
            captions = read_captions_file(path)
            captions = captions.of_groups(corpus.split) if corpus.split and captions.groups else captions
            if not captions:
                problem, hint = f"contains no image of the split {corpus.split}", "Download the file again"
                raise DataError(problem, code="missing-value", value=corpus.split, path=path, hint=hint)
            return captions
    first, *others = corpus.sources
    nor = f", nor any of {', '.join(others)}" if others else ""
    problem = f"there is no such file{nor} (corpus '{name}': {corpus.description})"
    hint = "See 'capbench data info' for its source"
    raise MissingFileError(problem, code="missing-data", value=name, path=root.path / first, hint=hint)


def load_split(name: str, split: str | None, root: DataRoot | None = None) -> Captions:
    """Read a corpus, or one split or domain of it."""
    captions = load_captions(name, root)
    if split is None:
        return captions
    if not captions.groups and name == "flickr8k":
        lists = {kind: captions.source.with_name(FLICKR8K_LIST.format(kind)) for kind in ("train", "dev", "test")}
        known = [kind for kind, path in lists.items() if path.is_file()]
        if split in known:
            listed = split_list(lists[split], captions)
            return Captions({image: captions[image] for image in listed}, captions.source)
    else:
        known = sorted(set(captions.groups.values()))
        if split in known:
            return captions.of_groups(split)
    hint = suggest(split, known) if known else "Leave --split out"
    raise UsageError(f"{name} has no split '{split}'", code="unknown-name", value=split, hint=hint)


_OUTPUTS = "generated_captions.txt"
_HUMAN_SHARE = 0.5


def read_machine_captions(
    paths: Sequence[Path],
    references: Mapping[str, Sequence[str]],
    say: Callable[[str], None],  # receives one line for each system that is left out as human
) -> dict[str, Mapping[str, str]]:
    """Captions by system and image in several files."""
    systems: dict[str, Mapping[str, str]] = {}
    for path in paths:
        for name, captions in _read(path).items():
            if name in systems:
                problem = f"contains the system '{name}', which is also in another file"
                raise DataError(problem, code="duplicate", value=name, path=path)
            known = [image for image in captions if image in references]
            same = (caption_key(captions[image]) in set(map(caption_key, references[image])) for image in known)
            share = sum(same) / max(1, len(known))
            if share > _HUMAN_SHARE:
                say(f"{name} is left out as human: {share:.0%} of its captions are references")
            else:
                systems[name] = captions
    if not systems:
        problem, hint = "contains no machine captions: all systems are human", "Name other files"
        raise DataError(problem, code="too-few", path=paths[0] if paths else None, hint=hint)
    return systems


def _read(path: Path) -> dict[str, dict[str, str]]:
    if path.suffix.lower() == ".txt":
        return read_folders(path)
    by_image: dict[str, list[str]] = {}
    for row, record in candidate_records(path):
        text = next((record[key] for key in TEXT_KEYS if record.get(key)), None)
        if text is None:
            raise DataError("has no 'caption'", code="missing-key", path=path, row=row, hint=CANDIDATE_FORM)
        by_image.setdefault(record_image(record, path, row), []).append(
            parse_caption(text, "caption", path=path, row=row, user=True)
        )
    most = max(map(len, by_image.values()), default=0)
    for image, texts in by_image.items():
        if len(texts) != most:
            problem = f"has {len(texts)} captions of the image '{image}' and {most} of others"
            hint = "Provide one caption per image and system, or one file per system"
            raise DataError(problem, code="mismatch", value=image, path=path, hint=hint)
    names = [path.stem] if most == 1 else [f"{path.stem}-{place}" for place in range(1, most + 1)]
    return {name: {image: texts[place] for image, texts in by_image.items()} for place, name in enumerate(names)}


def read_folders(path: Path) -> dict[str, dict[str, str]]:
    """The systems of a list of images ``imgs_SET.txt`` next to folders ``SET_SYSTEM``: image id → caption of each."""
    name = path.stem.removeprefix("imgs_")
    outputs = sorted(path.parent.glob(f"{name}_*/{_OUTPUTS}"))
    if not path.stem.startswith("imgs_") or not outputs:
        problem = f"there is no {name}_SYSTEM/{_OUTPUTS} in its folder"
        hint = "A .txt file must be a list of images imgs_SET.txt next to folders SET_SYSTEM; else provide JSON"
        raise MissingFileError(problem, path=path, hint=hint)
    images = image_rows(path)
    systems = {}
    for output in outputs:
        lines = stripped_lines(output)
        if len(lines) != len(images):
            problem = f"has {len(lines):,} captions for the {len(images):,} images of {path.name}"
            raise DataError(problem, code="mismatch", value=len(lines), path=output, hint="Get both files again")
        texts = [parse_caption(line, "caption", path=output, row=row, user=True) for row, line in enumerate(lines, 1)]
        systems[output.parent.name] = dict(zip(images, texts, strict=True))
    return systems
