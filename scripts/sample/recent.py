"""Judgement sets that came later: rated systems (THumB, PublicSys), real scores (Nebula, Polaris, CxC, LongCap-Arena),
FOIL as a whole."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping

import numpy as np

from scripts.sample import native
from scripts.sample.album import Album, Sample
from scripts.sample.chance import below, chance, normal, pick, shuffled, stream
from scripts.sample.composite import some_faults
from scripts.sample.foil import foil_pair
from scripts.sample.language import Caption
from scripts.sample.machine import fluent, general, inventory
from scripts.sample.people import five_point, quality
from scripts.sample.scenes import COMMON

__all__ = ["crisscrossed_files", "foil_annotations", "long_files", "publicsys_files", "rated_files", "thumb_files"]

_SYSTEMS = ("Template", "Neural-small", "Neural-base", "Neural-large", "Human")
_FAULTS: Mapping[str, dict[int, float]] = {
    "Neural-small": {0: 2.0, 1: 4.0, 2: 4.0},
    "Neural-base": {0: 4.0, 1: 4.0, 2: 2.0},
    "Neural-large": {0: 6.0, 1: 3.0, 2: 1.0},
}


def _written(rng: np.random.Generator, album: Album, name: str, system: str) -> Caption:
    scene = album.scenes[name]
    if system == "Human":
        return album.captions[name][0]
    if system == "Template":
        return inventory(rng, scene, some_faults(rng, {0: 3.0, 1: 4.0, 2: 3.0}))
    return fluent(rng, scene, some_faults(rng, _FAULTS[system]))


def thumb_files(sample: Sample) -> dict[str, bytes]:
    """``thumb/``: five systems, one of them people, on every judged COCO scene, rated by a rubric."""
    album = sample.albums["coco"]
    rows, references = [], []
    for number, name in enumerate(sample.splits["coco"]["test"]):
        segment, place = str(7_000 + 31 * number), 3 * number
        captions: dict[str, Caption] = {}
        for system in _SYSTEMS:
            rng = stream("thumb", system, name)
            # Captioners that learned from the same captions often write the same.
            again = system == "Neural-base" and number % 5 == 0
            captions[system] = captions["Neural-small"] if again else _written(rng, album, name, system)
            worth = quality(captions[system], album.scenes[name])
            precision, recall = five_point(rng, worth.correct), max(2, five_point(rng, worth.thorough))
            fluency = -pick(rng, (0.1, 0.1, 0.3, 0.5)) if chance(rng, 0.08) else -0.0
            rows.append(
                {
                    "SYS": system,
                    "seg_id": segment,
                    "set_id": place,
                    "hyp": captions[system].text,
                    "image": f"{name}.png",
                    "P": float(precision),
                    "R": float(recall),
                    "Fl": fluency,
                    "Inc": -0.0,
                    "Con": -0.0,
                    "human_score": round((precision + recall) / 2 + fluency, 1),
                }
            )
        references.append({"seg_id": segment, "set_id": place, "refs": album.texts(name)[1:]})
    return {
        "thumb/mscoco_THumB-1.0.jsonl": native.lines(json.dumps(row, ensure_ascii=False) for row in rows),
        "thumb/mscoco_references.json": native.lines(json.dumps(row, ensure_ascii=False) for row in references),
    }


def publicsys_files(sample: Sample) -> dict[str, bytes]:
    """``publicsys/``: five captioners on every judged COCO scene, a rating each."""
    album = sample.albums["coco"]
    lines = ["image,candidate,system,rating"]
    for name in sample.splits["coco"]["test"]:
        for number, system in enumerate(("Template", "Neural-small", "Neural-base", "Neural-large", "Neural-tuned")):
            rng = stream("publicsys", system, name)
            written = _written(rng, album, name, "Neural-large" if number == 4 else system)
            rating = five_point(rng, quality(written, album.scenes[name]).correct)
            lines.append(f'{name}.png,"{written.text}",{system},{rating}')
    return {"publicsys/publicsys.csv": native.lines(lines)}


def _candidate(rng: np.random.Generator, album: Album, name: str) -> Caption:
    draw = rng.random()
    if draw < 0.15:
        return general(rng, album.scenes[name])
    if draw < 0.3:
        return fluent(rng, album.scenes[pick(rng, [other for other in album.scenes if other != name])])
    return fluent(rng, album.scenes[name], some_faults(rng, {0: 3.0, 1: 4.0, 2: 2.0}))


def _mean_score(rng: np.random.Generator, worth: float, raters: int) -> float:
    """The mean of some people's choices among five steps from 0 to 1."""
    views = [min(max(round(4 * (worth**1.3 + 0.12 * normal(rng))), 0), 4) / 4 for _ in range(raters)]
    return float(round(sum(views) / raters, 6))


def _csv(rows: list[dict[str, object]]) -> bytes:
    """A table as pandas writes it: lists stand in cells as Python prints them."""
    stream_ = io.StringIO()
    writer = csv.DictWriter(stream_, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return stream_.getvalue().encode()


def rated_files(sample: Sample) -> dict[str, bytes]:
    """``nebula/`` with its first and its corrected scores, and ``polaris/``."""
    nebula: list[dict[str, object]] = []
    corrected: list[dict[str, object]] = []
    for dataset, names in (("flickr30k", sample.splits["flickr30k"]["test_2016"]), ("pascal50s", None)):
        album = sample.albums[dataset]
        for place, name in enumerate(names or album.scenes):
            rng = stream("nebula", name)
            caption = _candidate(rng, album, name)
            worth = quality(caption, album.scenes[name]).overall
            references = album.texts(name)[: 10 if dataset == "pascal50s" and place % 8 == 0 else 5]
            if place % 9 == 4:  # as in the published file: a line break inside of a reference's string
                references = [*references[:-1], f"{references[-1]}\n"]
            shown = {"imgid": name, "mt": caption.text}
            nebula.append({**shown, "refs": references, "score": _mean_score(rng, worth, 2 + below(rng, 3))})
            if place % 6 != 5:
                corrected.append({**shown, "score": _mean_score(rng, worth, 6 + below(rng, 3))})
    polaris: list[dict[str, object]] = []
    album = sample.albums["flickr8k"]
    for name in sorted(sample.splits["flickr8k"]["test"]):
        for number in range(2):
            rng = stream("polaris", name, str(number))
            caption = _candidate(rng, album, name)
            score = _mean_score(rng, quality(caption, album.scenes[name]).overall, 3 + below(rng, 4))
            polaris.append({"mt": caption.text, "refs": repr(album.texts(name)), "score": score, "imgid": name})
    parts = {"train": corrected[0::3], "val": corrected[1::3], "test": corrected[2::3]}
    return {
        "nebula/nebula_test.json": native.json_bytes(nebula),
        **{f"nebula/spica_{split}.csv": _csv(part) for split, part in parts.items()},
        "polaris/polaris_test.csv": _csv(polaris),
    }


def foil_annotations(sample: Sample) -> dict[str, bytes]:
    """``foil/foilv1.0_test_2017.json``: captions of the judged COCO scenes, each with one or two foils."""
    album = sample.albums["coco"]
    images, annotations = [], []
    number = foil_number = 0
    for image, name in enumerate(sample.splits["coco"]["test"], 1):
        images.append({"id": image, "file_name": f"{name}.png", "width": 160, "height": 160})
        shown = {group.kind for group in album.scenes[name].plan.groups}
        others = shuffled(stream("foils", name), [kind for kind in COMMON if kind not in shown])
        for at, caption in enumerate(album.captions[name]):
            made = [pair for other in others[: 1 + at % 2] if (pair := foil_pair(caption, shown, other)) is not None]
            if not made:
                continue
            number += 1
            shared = {"image_id": image, "id": number}
            right = {"caption": made[0][0].strip(), "foil": False, "foil_id": 0}
            annotations.append({**right, **shared, "target_word": "ORIG", "foil_word": "ORIG"})
            for _, foil, noun, wrong in made:
                foil_number += 1
                annotations.append(
                    {
                        "caption": foil.strip(),
                        "foil": True,
                        "foil_id": foil_number,
                        **shared,
                        "target_word": noun,
                        "foil_word": wrong,
                    }
                )
    info = {"description": "synthetic sample of capbench in the form of FOIL-COCO's test set", "version": "1"}
    data = {"info": info, "images": images, "licenses": [], "annotations": annotations}
    return {"foil/foilv1.0_test_2017.json": native.json_bytes(data)}


def crisscrossed_files(sample: Sample) -> dict[str, bytes]:
    """``cxc/``: captions of the COCO scenes that nobody else judges, rated for their own and for other scenes and
    against each other."""
    album, names = sample.albums["coco"], sample.splits["coco"]["val"]
    captions = [(name, place) for name in names for place in range(5)]
    # Numbers as in COCO: the captions of an image ascend, but are not neighbours, and have unlike numbers of digits.
    number = {caption: 7 + 97 * place + 13 * at for at, caption in enumerate(captions) for place in (caption[1],)}
    assert len(set(number.values())) == len(captions)

    def sentence(caption: tuple[str, int]) -> str:
        return f"COCO_val2014:sentid:{number[caption]}"

    def rating(rng: np.random.Generator, worth: float) -> float:
        return round(min(max(5 * worth + 0.5 * normal(rng), 0.0), 5.0), 2)

    def text(caption: tuple[str, int]) -> Caption:
        return album.captions[caption[0]][caption[1]]

    images, pairs = [], []
    for name, place in captions:
        rng = stream("cxc", name, str(place))
        other = pick(rng, [candidate for candidate in captions if candidate[0] != name])
        for rated, method in ((name, "c2i_original"), (other[0], "c2i_intrasim")):
            worth = quality(text((name, place)), album.scenes[rated]).overall
            images.append(f"{sentence((name, place))},{rated}.png,{rating(rng, worth)},{method}")
        sibling = (name, (place + 1) % 5)
        for second, method in ((sibling, "c2c_cocaption"), (other, "c2c_isim")):
            # Captions mean the same as far as each describes the other's scene.
            worth = quality(text((name, place)), album.scenes[second[0]]).overall
            worth *= quality(text(second), album.scenes[name]).overall
            pairs.append(f"{sentence((name, place))},{sentence(second)},{rating(rng, worth)},{method}")
    shuffled_images = shuffled(stream("cxc images"), images)
    return {
        "cxc/sits_val.csv": native.lines(["caption,image,agg_score,sampling_method", *shuffled_images]),
        "cxc/sts_val.csv": native.lines(["caption1,caption2,agg_score,sampling_method", *pairs]),
    }


def long_files(sample: Sample) -> dict[str, bytes]:
    """``longcap-arena/``: descriptions of several sentences of nocaps scenes, rated by three aspects."""
    album = sample.albums["nocaps"]
    rows: dict[str, list[dict[str, object]]] = {"desc": [], "rel": [], "flu": []}
    for number, name in enumerate(album.scenes):  # numbers as in nocaps
        rng = stream("longcap", name)
        written = [_candidate(rng, album, name) for _ in range(3)]
        worth = [quality(caption, album.scenes[name]) for caption in written]
        shown = {
            "file_name": f"{number}.png",
            "cand": " ".join(caption.text for caption in written),
            "refs": [" ".join(album.texts(name)[:5])],
        }
        of_aspect = {
            "desc": sum(each.thorough for each in worth) / 3,
            "rel": sum(each.correct for each in worth) / 3,
            "flu": 0.8 + 0.1 * normal(rng),
        }
        for aspect, value in of_aspect.items():
            rows[aspect].append({**shown, "score": _mean_score(rng, min(max(value, 0.0), 1.0), 3)})
    return {f"longcap-arena/{aspect}_dci_val.csv": _csv(of_aspect) for aspect, of_aspect in rows.items()}
