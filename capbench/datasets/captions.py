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

COCO Entities (Cornia, Baraldi and Cucchiara, "Show, Control and Tell", CVPR 2019) aligns words and regions. The file
``coco_entities_release.json`` is an object of images, each an object of captions. The fields of a caption are
``det_sequences`` (for each word of the caption, split at spaces, the class of a detection; null for a word outside of
noun chunks, ``"_"`` for a chunk without a detection), ``noun_chunks``, ``detections`` (by class, a list of the
detection's number and its box ``[x1, y1, x2, y2]`` in pixels) and ``split``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from capbench.core import files
from capbench.core.errors import DataError, MissingFileError, UsageError, suggest
from capbench.core.records import caption_key, image_id
from capbench.datasets.root import DataRoot
from capbench.datasets.user.caption_readers import (
    CANDIDATE_FORM,
    Captions,
    checked_caption,
    parse_coco_annotations,
    parse_karpathy,
    parse_nocaps_corpus,
    parse_split_captions,
    read_coco_annotations,
    read_karpathy,
    read_multi30k,
    read_nocaps_corpus,
    read_split_captions,
    read_token,
)
from capbench.datasets.user.captions import candidate_records

_FLICKR8K_SPLITS = ("train", "dev", "test")
_FLICKR8K_LIST = "flickr8k/Flickr_8k.{}Images.txt"


@dataclass(frozen=True)
class Corpus:
    """A named caption corpus.

    Attributes:
        description: one line on its content.
        sources: path below the data folder → reader, in order of preference. A path that ends in ``/`` is a folder.
    """

    description: str
    sources: Mapping[str, Callable[[Path], Captions]]


def _split(*splits: str) -> Callable[[Path], Captions]:
    def read(path: Path) -> Captions:
        captions = read_karpathy(path).of_groups(*splits)
        if not captions:
            raise DataError(
                f"contains no image of the split {' or '.join(splits)}",
                code="missing-value",
                value=splits[0],
                path=path,
                hint="Download the file again",
            )
        return captions

    return read


CORPORA: Mapping[str, Corpus] = {
    "coco-val": Corpus(
        "COCO, Karpathy's validation split (5,000 images)",
        {"coco/karpathy_val_captions.json": read_split_captions, "coco/dataset_coco.json": _split("val")},
    ),
    "coco-test": Corpus(
        "COCO, Karpathy's test split (5,000 images)",
        {"coco/karpathy_test_captions.json": read_split_captions, "coco/dataset_coco.json": _split("test")},
    ),
    "coco-val2014": Corpus(
        "COCO, the official validation set of 2014 (40,504 images)",
        {
            "coco/captions_val2014.json": read_coco_annotations,
            "coco/annotations/captions_val2014.json": read_coco_annotations,
        },
    ),
    "flickr8k": Corpus(
        "Flickr8k, all splits",
        {"flickr8k/Flickr8k.token.txt": read_token, "flickr8k/dataset_flickr8k.json": read_karpathy},
    ),
    "flickr30k": Corpus(
        "Flickr30k, all splits that the files hold",
        {
            "flickr30k/multi30k_task2/": read_multi30k,
            "flickr30k/results_20130124.token": read_token,
            "flickr30k/dataset_flickr30k.json": read_karpathy,
        },
    ),
    "nocaps-val": Corpus(
        "nocaps, the validation set (4,500 images)",
        {
            "nocaps/nocaps_corpus.json": read_nocaps_corpus,
            "nocaps/nocaps_val_4500_captions.json": read_coco_annotations,
        },
    ),
}


def load_captions(name: str, root: DataRoot | None = None) -> Captions:
    """Read a corpus by its name in :data:`CORPORA`, or by the path of a file or folder.

    Args:
        name: ``coco-val``, ``coco-test``, ``coco-val2014``, ``flickr8k``, ``flickr30k``, ``nocaps-val``, or a path in
            any format that :func:`read_any` supports.
        root: the data folder; required for names only.

    Raises:
        UsageError: neither a name nor a path, or a name without a data folder.
        MissingFileError: none of the corpus's files exists.
        DataError: the file has invalid content.
    """
    corpus = CORPORA.get(name)
    if corpus is None:
        path = Path(name).expanduser()
        if path.exists():
            return read_any(path)
        if os.sep in name or path.suffix:
            raise MissingFileError("there is no such file or folder of captions", path=path)
        raise UsageError(
            f"'{name}' is neither the name of a caption corpus nor a file",
            code="unknown-name",
            value=name,
            hint=suggest(name, list(CORPORA)),
        )
    if root is None:
        raise UsageError(
            f"the corpus '{name}' needs a data folder",
            code="missing-data",
            value=name,
            hint="Give it with --data or CAPBENCH_DATA",
        )
    for relative, read in corpus.sources.items():
        path = root.path / relative
        if path.is_dir() if relative.endswith("/") else path.is_file():
            return read(path)
    first, *others = corpus.sources
    nor = f", nor any of {', '.join(others)}" if others else ""
    raise MissingFileError(
        f"there is no such file{nor} (corpus '{name}': {corpus.description})",
        code="missing-data",
        value=name,
        path=root.path / first,
        hint="See 'capbench data info' for its source",
    )


def load_split(name: str, split: str | None, root: DataRoot | None = None) -> Captions:
    """Read a corpus, or one split or domain of it.

    Flickr8k's splits are separate lists (``Flickr_8k.testImages.txt``); other corpora may name the splits themselves.

    Args:
        name: as for :func:`load_captions`.
        split: name of the split; None for all images.
        root: the data folder.

    Raises:
        UsageError: the corpus has no such split; the hint lists the existing ones.
        CapbenchError: as :func:`load_captions`, or a list of images is invalid.
    """
    captions = load_captions(name, root)
    if split is None:
        return captions
    if not captions.groups and name == "flickr8k" and root is not None:
        known = [kind for kind in _FLICKR8K_SPLITS if (root.path / _FLICKR8K_LIST.format(kind)).is_file()]
        if split in known:
            listed = split_list(root.path / _FLICKR8K_LIST.format(split), captions)
            return Captions({image: captions[image] for image in listed}, captions.source)
    else:
        known = sorted(set(captions.groups.values()))
        if split in known:
            return captions.of_groups(split)
    hint = suggest(split, known) if known else "Leave --split out"
    raise UsageError(f"{name} has no split '{split}'", code="unknown-name", value=split, hint=hint)


def split_list(path: Path, captions: Captions) -> dict[str, int]:
    """Image id → row of a list of file names.

    Raises:
        DataError: an image occurs twice or has no captions.
    """
    listed = [line.strip() for line in files.read_lines(path)]
    while listed and not listed[-1]:
        listed.pop()
    rows: dict[str, int] = {}
    for row, name in enumerate(listed, 1):
        image = image_id(name)
        if image in rows or image not in captions:
            if image in rows:
                code, problem = "duplicate", f"image '{name}' is already in row {rows[image]}"
            else:
                code, problem = "unknown-item", f"image '{name}' has no captions in {captions.source.name}"
            hint = "Get both files from the same release"
            raise DataError(problem, code=code, value=name, path=path, row=row, hint=hint)
        rows[image] = row
    return rows


def read_any(path: str | os.PathLike[str]) -> Captions:
    """Read captions in any of the supported formats, which is recognised by the content.

    Raises:
        MissingFileError: the file does not exist.
        DataError: the format is not supported, or the content is invalid.
    """
    path = Path(path)
    if path.is_dir():
        nested = path / "multi30k_task2"
        return read_multi30k(nested if nested.is_dir() else path)
    start = files.read_text(path).lstrip()[:1]
    return _parse_json(files.read_json(path, unique_keys=True), path) if start in ("{", "[") else read_token(path)


def _parse_json(data: Any, path: Path) -> Captions:
    if isinstance(data, list) and data and isinstance(data[0], dict) and "split" in data[0]:
        return parse_nocaps_corpus(data, path)
    if isinstance(data, dict) and data:
        if isinstance(data.get("images"), list) and isinstance(data.get("annotations"), list):
            return parse_coco_annotations(data, path)
        images = data.get("images")
        if isinstance(images, list) and images and isinstance(images[0], dict) and "sentences" in images[0]:
            return parse_karpathy(data, path)
        if all(isinstance(value, list) for value in data.values()) and not isinstance(images, list):
            return parse_split_captions(data, path)
    raise DataError(
        "is not a caption file in a supported format",
        code="wrong-format",
        path=path,
        hint="Supported: Flickr's .token, Karpathy's JSON, COCO annotations, nocaps, and {file name: [captions]}",
    )


_OUTPUTS = "generated_captions.txt"
_HUMAN_SHARE = 0.5
_IMAGE_KEYS = ("image_id", "image", "image_name")
_TEXT_KEYS = ("caption", "candidate", "prediction")


@dataclass(frozen=True)
class MachineCaptions:
    """Captions by one or more systems.

    Attributes:
        systems: name of the system → image id → caption.
        notes: one line for each system that was left out as human.
    """

    systems: Mapping[str, Mapping[str, str]]
    notes: tuple[str, ...]


def read_machine_captions(paths: Sequence[Path], references: Mapping[str, Sequence[str]]) -> MachineCaptions:
    """Read the systems in several files.

    Args:
        paths: ``imgs_SET.txt``, JSON or JSON Lines.
        references: human captions by image id, to detect human captions among the systems'.

    Raises:
        MissingFileError: a file does not exist.
        DataError: a file has invalid content, two systems have the same name, or all systems are human.
    """
    systems: dict[str, Mapping[str, str]] = {}
    notes: list[str] = []
    for path in paths:
        for name, captions in _read(path).items():
            if name in systems:
                raise DataError(
                    f"contains the system '{name}', which is also in another file",
                    code="duplicate",
                    value=name,
                    path=path,
                )
            share = _share_of_references(captions, references)
            if share > _HUMAN_SHARE:
                notes.append(f"{name} is left out as human: {share:.0%} of its captions are references")
            else:
                systems[name] = captions
    if not systems:
        raise DataError(
            "contains no machine captions: all systems are human",
            code="too-few",
            path=paths[0] if paths else None,
            hint="Name other files",
        )
    return MachineCaptions(systems, tuple(notes))


def _share_of_references(captions: Mapping[str, str], references: Mapping[str, Sequence[str]]) -> float:
    known = [image for image in captions if image in references]
    same = (caption_key(captions[image]) in set(map(caption_key, references[image])) for image in known)
    return sum(same) / len(known) if known else 0.0


def _read(path: Path) -> dict[str, dict[str, str]]:
    if path.suffix.lower() == ".txt":
        return _read_folders(path)
    by_image: dict[str, list[str]] = {}
    for row, record in candidate_records(path):
        image, text = (_field(record, keys, path, row) for keys in (_IMAGE_KEYS, _TEXT_KEYS))
        by_image.setdefault(image_id(str(image)), []).append(checked_caption(text, "the caption", path, row))
    most = max(map(len, by_image.values()))
    for image, texts in by_image.items():
        if len(texts) != most:
            raise DataError(
                f"has {len(texts)} captions of the image '{image}' and {most} of others",
                code="mismatch",
                value=image,
                path=path,
                hint="Provide one caption per image and system, or one file per system",
            )
    names = [path.stem] if most == 1 else [f"{path.stem}-{place}" for place in range(1, most + 1)]
    return {name: {image: texts[place] for image, texts in by_image.items()} for place, name in enumerate(names)}


def _field(record: Mapping[str, Any], keys: Sequence[str], path: Path, row: int | str) -> Any:
    for key in keys:
        if record.get(key) not in (None, ""):
            return record[key]
    raise DataError(
        f"has none of {', '.join(keys)}", code="missing-key", value=keys[0], path=path, row=row, hint=CANDIDATE_FORM
    )


def _read_folders(path: Path) -> dict[str, dict[str, str]]:
    name = path.stem.removeprefix("imgs_")
    outputs = sorted(path.parent.glob(f"{name}_*/{_OUTPUTS}"))
    if not path.stem.startswith("imgs_") or not outputs:
        raise MissingFileError(
            f"there is no {name}_SYSTEM/{_OUTPUTS} in its folder",
            path=path,
            hint="A .txt file must be a list of images imgs_SET.txt next to folders SET_SYSTEM; else provide JSON",
        )
    images = [image_id(line.strip()) for line in files.read_lines(path)]
    while images and not images[-1]:
        images.pop()
    for row, image in enumerate(images, 1):
        if not image:
            raise DataError("names no image", code="missing-value", path=path, row=row)
    if len(set(images)) < len(images):
        raise DataError("lists an image twice", code="duplicate", path=path, hint="Get the list again")
    systems = {}
    for output in outputs:
        lines = files.read_lines(output)
        if len(lines) != len(images):
            raise DataError(
                f"has {len(lines):,} lines for {len(images):,} images of {path.name}",
                code="mismatch",
                value=len(lines),
                path=output,
            )
        texts = [checked_caption(line, "the caption", output, row) for row, line in enumerate(lines, 1)]
        systems[output.parent.name] = dict(zip(images, texts, strict=True))
    return systems
