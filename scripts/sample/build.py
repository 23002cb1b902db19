"""The whole sample: which scenes go where, who says what of them, and who judges it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from capbench.core.records import caption_key
from scripts.sample import native
from scripts.sample.album import Album, Sample
from scripts.sample.chance import below, chance, pick, shuffled, stream
from scripts.sample.composite import composite_files, composite_images
from scripts.sample.drawing import paint, png_bytes
from scripts.sample.foil import foil_files
from scripts.sample.human_machine import human_machine_files
from scripts.sample.pascal import pascal_files
from scripts.sample.people import expert_ratings, quality, yes_votes
from scripts.sample.readme import readme
from scripts.sample.recent import (
    crisscrossed_files,
    foil_annotations,
    long_files,
    publicsys_files,
    rated_files,
    thumb_files,
)
from scripts.sample.scenes import COMMON, RARE, Plan, Scene, new_plan, sibling

__all__ = ["album", "build", "picture_and_captions"]

_CHANGES = ("colour", "count", "kind", "missing", "extra", "relation", "background")


def _plan(name: str, kinds: Sequence[str] = COMMON, rare: float = 0.1, several: bool = False, show: str = "") -> Plan:
    """The plan of a named scene: ``several`` for two groups or more, ``show`` for a class that it must have."""
    rng = stream("plan", name)
    while True:
        plan = new_plan(rng, kinds, rare, (show,) if show else RARE)
        shown = not show or any(group.kind == show for group in plan.groups)
        if shown and (len(plan.groups) > 1 or not several):
            return plan


def _flickr8k() -> tuple[Album, dict[str, list[str]]]:
    """50 judged scenes and two siblings of each, which differ from it in one or two respects."""
    rng = stream("flickr8k")
    names = shuffled(rng, [f"f8k_{number:03d}" for number in range(1, 151)])
    plans: dict[str, tuple[Plan, str]] = {}
    for at in range(50):
        test = names[at]
        plan = _plan(test)
        plans[test] = (plan, "")
        first, second = shuffled(rng, _CHANGES)[:2]
        plans[names[50 + at]] = (sibling(rng, plan, first), test)
        other = sibling(rng, plan, second)
        plans[names[100 + at]] = (sibling(rng, other, pick(rng, _CHANGES)) if chance(rng, 0.5) else other, test)
    album_ = Album("flickr8k", 5)
    for name in sorted(plans):
        album_.add(name, *plans[name])
    others = shuffled(rng, sorted(names[50:]))
    return album_, {"train": others[15:], "dev": others[:15], "test": names[:50]}


def album(dataset: str) -> tuple[Album, dict[str, list[str]]]:
    """The album of one data set and its splits by name, both always the same."""
    if dataset == "flickr8k":
        return _flickr8k()
    if dataset == "nocaps":
        album_ = Album("nocaps", 10)
        splits: dict[str, list[str]] = {"in_domain": [], "near_domain": [], "out_domain": []}
        for number in range(30):
            split = list(splits)[number % 3]
            name = f"noc_{number:03d}"
            options = {"in_domain": (COMMON, 0.0), "near_domain": (COMMON, 1.0), "out_domain": (RARE, 1.0)}
            kinds, rare = options[split]
            album_.add(name, _plan(name, kinds, rare, several=True))
            splits[split].append(name)
        return album_, splits
    prefix, style, per_image, sizes = {
        "flickr30k": ("f30k", "flickr30k", 5, {"train": 5, "val": 5, "test_2016": 20}),
        "coco": ("coco", "coco", 5, {"test": 30, "val": 20}),
        "pascal50s": ("pas", "pascal", 52, {"all": 40}),
    }[dataset]
    album_, splits, number = Album(style, per_image), {}, 0
    for split, size in sizes.items():
        splits[split] = [f"{prefix}_{number + i + 1:03d}" for i in range(size)]
        number += size
        for at, name in enumerate(splits[split]):
            # Some pictures that nobody judges show a rare class: there must be something to learn it from.
            show = RARE[at % len(RARE)] if (dataset, split) == ("coco", "val") and at < 2 * len(RARE) else ""
            album_.add(name, _plan(name, several=True, rare=1.0 if show else 0.1, show=show))
    return album_, splits


def picture_and_captions(dataset: str, name: str) -> tuple[Scene, list[str]]:
    """One scene of a data set and its captions, made again from nothing."""
    album_, _ = album(dataset)
    return album_.scenes[name], album_.texts(name)


def _judged_flickr8k(album_: Album, splits: dict[str, list[str]]) -> dict[str, bytes]:
    """Captions of other images rated for an image: siblings' (nearly right), alike ones', and any others'."""
    expert: list[tuple[object, ...]] = []
    crowd: list[tuple[object, ...]] = []
    tests = sorted(splits["test"])
    for place, name in enumerate(tests):
        scene = album_.scenes[name]
        siblings = [other for other, origin in album_.origin.items() if origin == name]
        strangers = [other for other in album_.scenes if other != name and other not in siblings]

        def ids(others: Sequence[str]) -> list[tuple[str, int]]:
            return [(other, at) for other in others for at in range(5)]

        def worth(caption: tuple[str, int], scene: Scene = scene) -> float:
            return quality(album_.captions[caption[0]][caption[1]], scene).overall

        for rows, kind, counts, with_own_caption in (
            (expert, "expert", (3, 1, 2), place % 6 == 0),
            (crowd, "crowd", (4, 3, 3), place % 4 == 1),
        ):
            rng = stream(kind, name)
            close = shuffled(rng, ids(siblings))[: counts[0]]
            alike = sorted(shuffled(rng, ids(strangers))[:40], key=worth, reverse=True)[: counts[1]]
            unlike = [i for i in shuffled(rng, ids(strangers)) if i not in alike][: counts[2]]
            chosen = sorted([*close, *alike, *unlike, *([(name, below(rng, 5))] if with_own_caption else [])])
            for other, at in chosen:
                value = quality(album_.captions[other][at], scene)
                ident = (f"{name}.png", f"{other}.png#{at}")
                if kind == "expert":
                    rows.append((*ident, *expert_ratings(rng, value)))
                else:
                    raters = 3 if chance(rng, 0.95) else 4 + below(rng, 2)
                    yes = yes_votes(rng, value, raters)
                    rows.append((*ident, f"{yes / raters:.15g}", yes, raters - yes))
    return {
        "flickr8k/ExpertAnnotations.txt": native.table(expert),
        "flickr8k/CrowdFlowerAnnotations.txt": native.table(crowd),
    }


def _caption_files(sample: Sample) -> dict[str, bytes]:
    """The captions of Flickr8k, Flickr30k, COCO and nocaps in their own formats."""
    files: dict[str, bytes] = {}
    f8k, splits = sample.albums["flickr8k"], sample.splits["flickr8k"]
    files["flickr8k/Flickr8k.token.txt"] = native.table(
        (f"{name}.png#{at}", text) for name in f8k.scenes for at, text in enumerate(f8k.texts(name))
    )
    for split, names in splits.items():
        files[f"flickr8k/Flickr_8k.{split}Images.txt"] = native.lines(f"{name}.png" for name in names)
    f30k, folder = sample.albums["flickr30k"], "flickr30k/multi30k_task2"
    for split, names in sample.splits["flickr30k"].items():
        files[f"{folder}/image_splits/{split}_images.txt"] = native.lines(f"{name}.png" for name in names)
        for at in range(5):
            text = native.lines(f30k.texts(name)[at] for name in names)
            files[f"{folder}/raw/{split}.{at + 1}.en.gz"] = native.gzipped(text)
    coco = sample.albums["coco"]
    for split, names in sample.splits["coco"].items():
        captions = {f"{name}.png": coco.texts(name) for name in names}
        files[f"coco/karpathy_{split}_captions.json"] = native.json_bytes(captions, 4)
    nocaps = sample.albums["nocaps"]
    domain = {name: split for split, names in sample.splits["nocaps"].items() for name in names}
    corpus, images = [], []
    for number, name in enumerate(nocaps.scenes):
        corpus.append({"split": domain[name], "image_id": f"{number}.png", "caption": nocaps.texts(name)})
        images.append({"height": 160, "file_name": f"{name}.png", "width": 160, "coco_url": "", "open_images_id": name,
                       "id": number, "license": 0, "date_captured": "2018-11-06 11:04:33"})  # fmt: skip
    files["nocaps/nocaps_corpus.json"] = native.json_bytes(corpus, 4)
    info = {"description": "synthetic sample of capbench in the form of the nocaps validation set", "version": "1"}
    licence = {"id": 0, "name": "CC0 1.0", "url": "https://creativecommons.org/publicdomain/zero/1.0/"}
    files["nocaps/nocaps_val_image_info.json"] = native.json_bytes(
        {"licenses": [licence], "info": info, "images": images}
    )
    return files


def _pictures(sample: Sample) -> dict[str, bytes]:
    """All pictures, and what is in them."""

    training = {("flickr8k", "train"), ("flickr8k", "dev"), ("flickr30k", "train"), ("flickr30k", "val"),
                ("coco", "val")}  # fmt: skip
    judged = {name for _, names, _ in composite_images(sample).values() for name in names}
    files: dict[str, bytes] = {}
    entries = []
    for dataset, album_ in sample.albums.items():
        trained = {n for split, names in sample.splits[dataset].items() if (dataset, split) in training for n in names}
        trained -= judged
        for name, scene in album_.scenes.items():
            path = f"{dataset}/images/{name}.png"
            files[path] = png_bytes(paint(scene))
            entries.append((scene, dataset, path, "train" if name in trained else "held-out"))
    files["scenes.json"] = native.scenes_json(entries)
    return files


def build(progress: Callable[[str], None] = lambda _: None) -> Sample:
    """Make the whole sample in memory.

    Args:
        progress: called with a few words before each part.
    """

    sample = Sample()
    for dataset in ("flickr8k", "flickr30k", "coco", "pascal50s", "nocaps"):
        progress(f"scenes and captions of {dataset}")
        sample.albums[dataset], sample.splits[dataset] = album(dataset)
    for name, album_ in sample.albums.items():
        for scene, captions in album_.captions.items():
            keys = {caption_key(caption.text) for caption in captions}
            if len(keys) != len(captions):
                raise AssertionError(f"{name}/{scene} has a caption twice")
    progress("captions, judgements")
    sample.files.update(_caption_files(sample))
    sample.files.update(_judged_flickr8k(sample.albums["flickr8k"], sample.splits["flickr8k"]))
    sample.files.update(composite_files(sample))
    sample.files.update(foil_files(sample))
    sample.files.update(pascal_files(sample.albums["pascal50s"]))
    sample.files.update(foil_annotations(sample))
    sample.files.update(thumb_files(sample))
    sample.files.update(publicsys_files(sample))
    sample.files.update(rated_files(sample))
    sample.files.update(crisscrossed_files(sample))
    sample.files.update(long_files(sample))
    sample.files.update(human_machine_files(sample))
    progress("pictures")
    sample.files.update(_pictures(sample))
    sample.files["README.md"] = readme(sample)
    return sample
