"""What a ViLBERT trained here knows of the image, and how much of it reaches ViLBERTScore's F.

python scripts/diagnose_vilbert_flickr8k.py RUN --data DIR --features windows10.h5 --on expert --images 500

RUN is the folder of a finished training: heads and the direction of fitting words are in its checkpoint alone. Of each
candidate there are F of every layer with the image seen and with a blank one; and what the network says of caption and
image without any reference: where tokens look ("attention"), the head of alignment, and the mean cosine with the
direction of fitting words ("fit"). Printed is tau-c with the ratings of each, and of F summed with each of the three as
standard scores. A diagnosis of networks that were chosen before: nothing is chosen by it.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402
import torch  # noqa: E402

from capbench.core.errors import CapbenchError, ModelError  # noqa: E402
from capbench.core.files import atomic_write  # noqa: E402
from capbench.core.records import FloatArray, Item  # noqa: E402
from capbench.datasets.root import find_root  # noqa: E402
from capbench.features.store import FeatureStore, open_store  # noqa: E402
from capbench.metrics.vilbertscore.files import VilbertModel, load_vilbert  # noqa: E402
from capbench.metrics.vilbertscore.metric import LONGEST  # noqa: E402
from capbench.metrics.vilbertscore.network import mask_of  # noqa: E402
from capbench.metrics.vilbertscore.source import image_rows  # noqa: E402
from capbench.metrics.vilbertscore.training import VilbertLearner, f_scores  # noqa: E402
from capbench.metrics.vilbertscore.training_data import Specials, padded  # noqa: E402
from capbench.stats.correlation import correlation  # noqa: E402
from scripts.checks import at_least  # noqa: E402
from scripts.flickr8k_steps import Rated, rated, say  # noqa: E402

WEIGHTS = (0.2, 0.4, 0.7, 1.0)
KNOWING = ("attention", "alignment", "fit")
BANDS = ((1.0, 1.5), (1.5, 2.5), (2.5, 4.0))  # of mean ratings; the last one holds its upper end


def learner_of(run: Path, model: VilbertModel) -> VilbertLearner:
    """The network of a run with its heads. Raises ModelError where there is no whole checkpoint."""
    path = run / "checkpoint.pt"
    learner = VilbertLearner(model.options, None, 1.0)
    try:
        kept = torch.load(path, weights_only=True, map_location="cpu")
        learner.load_state_dict(kept["averaged"] or kept["network"])
    except (OSError, KeyError, RuntimeError) as error:
        raise ModelError("is no checkpoint of this network", path=path, hint="Name a finished run") from error
    return learner.eval()


@torch.inference_mode()
def of_image(
    learner: VilbertLearner, model: VilbertModel, specials: Specials, store: FeatureStore, items: Sequence[Item]
) -> dict[str, FloatArray]:
    """Numbers of one image's candidates, which share their references, by name."""
    number, references = len(items), items[0].references
    texts = [*(item.candidate for item in items), *references]
    ids, here = padded([model.pieces.sequence(text, LONGEST) for text in texts], specials.pad)
    numbers, present = torch.from_numpy(ids), torch.from_numpy(here)
    counted = present & torch.from_numpy(np.isin(ids, specials.ordinary))
    counted = torch.where(counted.any(dim=1, keepdim=True), counted, present)
    rows = image_rows(store[items[0].image])
    text = learner.network.read_text(numbers, mask_of(present))
    numbers_of: dict[str, torch.Tensor] = {}
    for image, shown in (("", rows), (", blank", rows.blanked())):
        features, places = torch.from_numpy(shown.features)[None], torch.from_numpy(shown.places)[None]
        layers, end = learner.network(
            numbers, features.repeat(len(texts), 1, 1), places.repeat(len(texts), 1, 1), words=present
        )
        for layer, streams in enumerate(layers, 1):
            each = torch.arange(number).repeat_interleave(len(references))
            other = number + torch.arange(len(references)).repeat(number)
            f = f_scores(streams.text[each], counted[each], streams.text[other], counted[other])
            numbers_of[f"F, layer {layer}{image}"] = f.view(number, -1).mean(dim=1)
        if not image:
            numbers_of["fit"] = learner.fits(layers[-1].text, counted)[:number]
            logits = learner.aligned(end)
            numbers_of["alignment"] = (logits[:, 0] - logits[:, 1])[:number]
            numbers_of["attention"] = learner.similarities(text, counted, learner.network.read_image(features, places))[
                0
            ][:number]
    return {name: values.double().numpy() for name, values in numbers_of.items()}


def standard(values: FloatArray) -> FloatArray:
    """Standard scores."""
    return np.asarray((values - values.mean()) / values.std())


def diagnose(data: Rated, images: int, run: Path, features: Path) -> dict[str, Any]:
    """All numbers, of the items of so many images.

    Args:
        data: items and ratings.
        images: how many, evenly among all in the order of their ids.
        run: the training's folder.
        features: the store.
    """
    model = load_vilbert(run / "model.safetensors")
    learner, specials = learner_of(run, model), Specials.of(model.pieces)
    every = sorted({item.image for item in data.items})
    chosen = every[:: max(1, len(every) // images)]
    places: dict[tuple[str, tuple[str, ...]], list[int]] = {}
    for place, item in enumerate(data.items):
        if item.image in set(chosen):
            places.setdefault((item.image, item.references), []).append(place)
    values: dict[str, FloatArray] = {}
    with open_store(features) as store:
        for done, of_group in enumerate(places.values(), 1):
            made = of_image(learner, model, specials, store, [data.items[place] for place in of_group])
            for name, numbers in made.items():
                values.setdefault(name, np.full(len(data.items), np.nan))[of_group] = numbers
            if done % 50 == 0:
                say(f"{done} of {len(places)} images and sets of references")
    kept = ~np.isnan(next(iter(values.values())))
    rows = kept[data.item]
    human = data.mean()[kept]

    def tau_c(scores: FloatArray) -> float:
        spread = np.zeros(len(data.items))
        spread[kept] = scores
        return correlation("tau-c", spread[data.item][rows], data.value[rows]).value

    scores = {name: numbers[kept] for name, numbers in values.items()}
    results: dict[str, Any] = {"protocol": data.protocol, "images": len(chosen), "items": int(kept.sum())}
    results["ratings"] = int(rows.sum())
    results["tau-c"] = {name: tau_c(numbers) for name, numbers in scores.items()}
    results["tau-c of sums"] = {
        f"{name} + {weight} {knowing}": tau_c(standard(numbers) + weight * standard(scores[knowing]))
        for name, numbers in scores.items()
        if name not in KNOWING
        for knowing in KNOWING
        for weight in WEIGHTS
    }
    last = model.options.connections
    moved = standard(scores[f"F, layer {last}"]) - standard(scores[f"F, layer {last}, blank"])
    results["what the image moves F by, in standard scores, by mean rating"] = {
        f"{low:g} to {high:g}": {"items": int(band.sum()), "mean": float(moved[band].mean())}
        for low, high in BANDS
        if (band := (human >= low) & ((human < high) | (high == BANDS[-1][1]) & (human <= high))).any()
    }
    return results


def main() -> None:
    """Print the numbers and, with --out, write them as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--data", type=Path, help="default: $CAPBENCH_DATA")
    parser.add_argument("--features", type=Path, required=True)
    parser.add_argument("--on", default="expert", choices=("expert", "composite-8k"))
    parser.add_argument("--images", type=at_least(2), default=500, help="so many of its images")
    parser.add_argument("--threads", type=at_least(1), default=1, help="of PyTorch")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    try:
        results = diagnose(rated(find_root(asked.data))[asked.on], asked.images, asked.run, asked.features)
    except CapbenchError as error:
        raise SystemExit(f"error: {error}") from error
    print(json.dumps(results, indent=1))
    if asked.out is not None:
        with atomic_write(asked.out, "w") as file:
            json.dump(results, file, indent=1)


if __name__ == "__main__":
    main()
