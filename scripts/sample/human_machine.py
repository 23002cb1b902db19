"""One human caption and captioners' of each tested image, in the files of SMURF and of where_image2."""

from __future__ import annotations

from scripts.sample import native
from scripts.sample.album import Album, Sample
from scripts.sample.chance import stream
from scripts.sample.composite import some_faults
from scripts.sample.machine import fluent

__all__ = ["human_machine_files"]

_SYSTEMS = tuple(f"{where}_{run}" for where in ("init", "pre", "par", "merge") for run in (1, 2, 3))
_FAULTS = {0: 3.0, 1: 4.0, 2: 2.0}


def _bare(text: str) -> str:
    """A caption as where_image2 writes it: lower case, words alone."""
    return " ".join(word for word in text.lower().replace(".", " ").replace(",", " ").split())


def _machine(album: Album, name: str, system: str) -> str:
    rng = stream("human-machine", system, name)
    return fluent(rng, album.scenes[name], some_faults(rng, _FAULTS)).text


def human_machine_files(sample: Sample) -> dict[str, bytes]:
    """``machine_captions/``: three captioners on COCO's test scenes, twelve on those and on Flickr8k's."""
    coco = sample.albums["coco"]
    entries = []
    for number, name in enumerate(sample.splits["coco"]["test"]):
        human = coco.texts(name)[0]
        texts = [_machine(coco, name, f"smurf {system}") for system in range(3)]
        # Captioners often write the same, and now and then what a person wrote.
        if number % 6 == 0:
            texts[1] = texts[0].removesuffix(" .")
        if number % 15 == 4:
            texts[2] = human.lower()
        entries += [{"image_id": f"{name}.png", "caption": text} for text in (f"{human} ", *texts)]
    files = {"machine_captions/smurf_karpathy_cand.json": native.json_bytes(entries, None)}
    folder = "machine_captions/where_image2"
    for kind, dataset in (("mscoco", "coco"), ("flickr8k", "flickr8k")):
        album, names = sample.albums[dataset], sorted(sample.splits[dataset]["test"])
        files[f"{folder}/imgs_{kind}.txt"] = native.lines(f"{name}.png" for name in names)
        human_lines = (_bare(album.texts(name)[0]) for name in names)
        files[f"{folder}/{kind}_human_1/generated_captions.txt"] = native.lines(human_lines)
        for system in _SYSTEMS:
            lines = (_bare(_machine(album, name, system)) for name in names)
            files[f"{folder}/{kind}_{system}/generated_captions.txt"] = native.lines(lines)
    return files
