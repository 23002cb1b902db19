"""The README that lies beside the sample, with its counts."""

# ruff: noqa: E501 (a table row of Markdown cannot be broken)

from __future__ import annotations

import json

from scripts.sample.album import Sample

__all__ = ["readme"]

_TEXT = """\
# The embedded sample

**All of this is synthetic.** A program drew the pictures, wrote the captions and made up the ratings. No person wrote,
rated or is shown in any of it, and nothing is copied from a published data set. Numbers computed on it show that the
tools work; **they say nothing about how good a metric is**.

`python scripts/make_sample.py` makes it, from one fixed seed; `python scripts/make_sample.py --check` makes it again
and says whether these files are what comes out (text by bytes, pictures by pixels, compressed files by what they hold).
Do not edit files here: change the program and run it.

## How it was made

1. **Scenes.** {pictures} pictures of 160 x 160 pixels (PNG), each with one to four groups of objects out of {kinds} classes,
   in {colours} colours and three sizes, on a meadow, a beach, the sea, snow, a night, a room or a plain background.
2. **Captions.** A small grammar describes a scene as different people would: more or less detail, other words for the same
   thing, other things first, exact or vague numbers, whole sentences and telegrams, now and then a slip. What each caption
   claims is known.
3. **Machine captions.** Few forms, common words, and mistakes of a known sort: a wrong colour, number, object, relation or
   background, something left out or made up, next to nothing said, another image's caption.
4. **Ratings.** The share of a caption's claims that hold, and the share of the scene that it mentions, make its quality.
   Simulated raters see that quality with a strictness of their own and noise, and give ratings in each data set's scale.

## What is in it

The layout and the file formats are those of the published data sets, so the same loaders read both.

| folder | images | what is judged |
|---|---:|---|
| `flickr8k/` | {f8k} ({f8k_split}) | {expert} expert pairs x 3 ratings from 1 to 4, {expert_own} of them an image's own caption; {crowd} crowd pairs with yes and no votes, {crowd_own} of them own captions |
| `composite/` | uses {c8k} of flickr8k, {c30k} of flickr30k, {ccoco} of coco | {composite} candidates rated from 1 to 5; `{{8k,30k,coco}}_{{correctness,throughness}}.csv` are the exports (`throughness` is the published spelling) |
| `flickr30k/` | {f30k} ({f30k_split}) | references only, in the files of Multi30k |
| `coco/` | {coco} ({coco_split}) | references only; the `val` images are other scenes, for document frequencies |
| `pascal50s/` | {pascal} | {pairs} pairs of captions, {per_category} a category (HC, HI, HM, MM), 11 votes and 48 triplets a pair; 50 references an image |
| `foil/` | uses {foil} of coco | {foil} pairs of a right caption and the same with a wrong noun, in the file of VALSE; {foil_full} such pairs in the file of the whole test set |
| `thumb/` | uses {coco_test} of coco | {thumb} captions of five systems, one of them people, with precision, recall, penalties and total |
| `cxc/` | uses {coco_val} of coco | {sits} captions rated from 0 to 5 for their own or another scene, {sts} pairs of captions rated against each other |
| `longcap-arena/` | uses {nocaps} of nocaps | {longcap} descriptions of three sentences, each with scores from 0 to 1 of descriptiveness, relevance and fluency |
| `publicsys/` | uses {coco_test} of coco | {publicsys} captions of five captioners, a rating from 1 to 5 each |
| `machine_captions/` | uses {coco_test} of coco, {polaris_images} of flickr8k | one human caption an image beside those of three captioners (`smurf_karpathy_cand.json`, coco) and of twelve (`where_image2/`) |
| `nebula/` | {nebula} of flickr30k and pascal50s | a caption an image with a score from 0 to 1 (`nebula_test.json`), and corrected scores of most of them (`spica_*.csv`) |
| `polaris/` | uses {polaris_images} of flickr8k | {polaris} captions with a score from 0 to 1 |
| `nocaps/` | {nocaps} ({nocaps_split}) | 10 captions an image, no judgements; out-domain pictures show classes that are rare elsewhere |

Three things to know:

- `composite/composite_11985.tsv` bears the published table's name because loaders look for it; here it has {composite}
  candidates. It holds the first three candidates of each row of the `*_correctness.csv` files, with the same ratings; the
  30k and coco exports have a fourth. The last two rows of each export contain no judgements, as in the published ones.
- Of the Flickr8k scenes, 50 are judged (`test`). Each has two siblings in `train` or `dev` that differ from it in a
  respect or two; a sibling's captions are nearly right for the judged image. That is where its graded candidates come from.
- `scenes.json` says what is in every picture: class, colour, size and box `[x1, y1, x2, y2]` in pixels of every object,
  and a split. `train` pictures are for fitting models; every judged picture is `held-out`. In `nocaps_corpus.json` an image
  is named by number, as published; `nocaps_val_image_info.json` gives the picture's file name.

## Licence

Apache-2.0, as the rest of the project.
"""


def readme(sample: Sample) -> bytes:
    """The README as UTF-8 text."""
    from scripts.sample.scenes import COLOURS, KINDS

    def rows(path: str) -> list[list[str]]:
        return [line.split("\t") for line in sample.files[path].decode().splitlines()]

    def splits(dataset: str, words: dict[str, str] | None = None) -> str:
        return ", ".join(f"{len(names)} {(words or {}).get(s, s)}" for s, names in sample.splits[dataset].items())

    def size(dataset: str) -> int:
        return len(sample.albums[dataset].scenes)

    expert = rows("flickr8k/ExpertAnnotations.txt")
    crowd = rows("flickr8k/CrowdFlowerAnnotations.txt")
    composite = rows("composite/composite_11985.tsv")[1:]
    pairs = 4 * size("pascal50s")
    foil = json.loads(sample.files["foil/valse_foil-it.json"])
    foils = json.loads(sample.files["foil/foilv1.0_test_2017.json"])["annotations"]
    return _TEXT.format(
        pictures=sum(len(album.scenes) for album in sample.albums.values()),
        kinds=len(KINDS),
        colours=len(COLOURS),
        f8k=size("flickr8k"),
        f8k_split=splits("flickr8k"),
        expert=len(expert),
        expert_own=sum(row[1].startswith(f"{row[0]}#") for row in expert),
        crowd=len(crowd),
        crowd_own=sum(row[1].startswith(f"{row[0]}#") for row in crowd),
        c8k=len({row[1] for row in composite if row[0] == "8k"}),
        c30k=len({row[1] for row in composite if row[0] == "30k"}),
        ccoco=len({row[1] for row in composite if row[0] == "coco"}),
        composite=len(composite),
        f30k=size("flickr30k"),
        f30k_split=splits("flickr30k", {"test_2016": "test"}),
        coco=size("coco"),
        coco_split=splits("coco"),
        foil=len(foil),
        foil_full=sum(annotation["foil"] for annotation in foils),
        coco_test=len(sample.splits["coco"]["test"]),
        thumb=len(rows("thumb/mscoco_THumB-1.0.jsonl")),
        coco_val=len(sample.splits["coco"]["val"]),
        sits=len(rows("cxc/sits_val.csv")) - 1,
        sts=len(rows("cxc/sts_val.csv")) - 1,
        longcap=len(rows("longcap-arena/desc_dci_val.csv")) - 1,
        publicsys=len(rows("publicsys/publicsys.csv")) - 1,
        nebula=len(json.loads(sample.files["nebula/nebula_test.json"])),
        polaris=len(rows("polaris/polaris_test.csv")) - 1,
        polaris_images=len(sample.splits["flickr8k"]["test"]),
        pascal=size("pascal50s"),
        pairs=pairs,
        per_category=pairs // 4,
        nocaps=size("nocaps"),
        nocaps_split=splits("nocaps", {"in_domain": "in", "near_domain": "near", "out_domain": "out"}) + " domain",
    ).encode()
