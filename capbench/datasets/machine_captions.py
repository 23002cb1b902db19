"""Captions that systems wrote for images, system by system, from files as they were published.

- a list of images beside folders of outputs, as Tanti, Gatt and Camilleri (2018) have them: ``imgs_SET.txt`` with
  ``SET_*/generated_captions.txt``, whose line n is about line n of the list;
- COCO results, a JSON list of ``{"image_id": …, "caption": …}``. A file with k captions of every image holds k systems,
  in the order of the captions (Feinglass and Yang, 2021);
- a JSON list of ``{"image_name": …, "prediction": …}``, one system (Fei et al., 2023);
- JSON lines of ``{"image": …, "caption": …}``.

Where files have people's captions among the systems', these are told by what they say: more than half of them are, word
for word, references of their images. They are left out, which is noted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from capbench import files
from capbench.datasets.user.caption_fields import CANDIDATE_FORM, checked_caption
from capbench.datasets.user.captions import candidate_records
from capbench.errors import DataError, MissingFileError
from capbench.records import caption_key, image_id

__all__ = ["MachineCaptions", "read_machine_captions"]

_OUTPUTS = "generated_captions.txt"
_HUMAN_SHARE = 0.5
_IMAGE_KEYS = ("image_id", "image", "image_name")
_TEXT_KEYS = ("caption", "candidate", "prediction")


@dataclass(frozen=True)
class MachineCaptions:
    """Captions by systems.

    Attributes:
        systems: name of the system → image → caption.
        notes: one line for each system that was left out as a person.
    """

    systems: Mapping[str, Mapping[str, str]]
    notes: tuple[str, ...]


def read_machine_captions(paths: Sequence[Path], references: Mapping[str, Sequence[str]]) -> MachineCaptions:
    """Read the systems of several files.

    Args:
        paths: ``imgs_SET.txt``, JSON or JSON lines.
        references: people's captions by image, for telling people among the systems.

    Raises:
        MissingFileError: a file is not there.
        DataError: a file does not hold what it should, two systems have one name, or all of them are people.
    """
    systems: dict[str, Mapping[str, str]] = {}
    notes: list[str] = []
    for path in paths:
        for name, captions in _read(path).items():
            if name in systems:
                raise DataError(f"holds the system '{name}', which another file has, too", path=path)
            share = _share_of_people(captions, references)
            if share > _HUMAN_SHARE:
                notes.append(f"{name} is left out as a person: {share:.0%} of its captions are references")
            else:
                systems[name] = captions
    if not systems:
        raise DataError(
            "no system is left: all captions are people's", path=paths[0] if paths else None, hint="Name other files"
        )
    return MachineCaptions(systems, tuple(notes))


def _share_of_people(captions: Mapping[str, str], references: Mapping[str, Sequence[str]]) -> float:
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
                path=path,
                hint="Give every system's caption of every image, or one file a system",
            )
    names = [path.stem] if most == 1 else [f"{path.stem}-{place}" for place in range(1, most + 1)]
    return {name: {image: texts[place] for image, texts in by_image.items()} for place, name in enumerate(names)}


def _field(record: Mapping[str, Any], keys: Sequence[str], path: Path, row: int | str) -> Any:
    for key in keys:
        if record.get(key) not in (None, ""):
            return record[key]
    raise DataError(f"has none of {', '.join(keys)}", path=path, row=row, hint=CANDIDATE_FORM)


def _read_folders(path: Path) -> dict[str, dict[str, str]]:
    name = path.stem.removeprefix("imgs_")
    outputs = sorted(path.parent.glob(f"{name}_*/{_OUTPUTS}"))
    if not path.stem.startswith("imgs_") or not outputs:
        raise MissingFileError(
            f"there is no {name}_SYSTEM/{_OUTPUTS} beside it",
            path=path,
            hint="A .txt file is a list of images imgs_SET.txt beside folders SET_SYSTEM; other captions are JSON",
        )
    images = [image_id(line.strip()) for line in files.read_lines(path)]
    while images and not images[-1]:
        images.pop()
    for row, image in enumerate(images, 1):
        if not image:
            raise DataError("names no image", path=path, row=row)
    if len(set(images)) < len(images):
        raise DataError("names an image twice", path=path)
    systems = {}
    for output in outputs:
        lines = files.read_lines(output)
        if len(lines) != len(images):
            raise DataError(f"has {len(lines):,} lines for {len(images):,} images of {path.name}", path=output)
        texts = [checked_caption(line, "the caption", output, row) for row, line in enumerate(lines, 1)]
        systems[output.parent.name] = dict(zip(images, texts, strict=True))
    return systems
