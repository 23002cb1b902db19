"""Train the small models that come with capbench on the embedded sample's scenes, and write their weights.

python scripts/train_sample_models.py                    # writes capbench/weights/sample/sample_*
python scripts/train_sample_models.py --only scan        # the grounding model alone; or detector, faier, vilbert
python scripts/train_sample_models.py --out /tmp/w       # writes elsewhere
python scripts/train_sample_models.py --check            # only tells the mean average precision of what is there

The detector sees the sample's ``train`` pictures and newly drawn scenes, and never a held-out picture. Everything is
seeded and runs in one thread: the same versions of PyTorch on the same kind of processor give the same bytes.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402
import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402, N812 (its usual name)
from torch import Tensor  # noqa: E402

from capbench.core.errors import CapbenchError  # noqa: E402
from capbench.core.files import atomic_write  # noqa: E402
from capbench.datasets.root import sample_dir  # noqa: E402
from capbench.features.detectors import boxes as bx  # noqa: E402
from capbench.features.detectors.images import SamplePreparation  # noqa: E402
from capbench.features.detectors.sample import (  # noqa: E402
    DELTA_WEIGHTS,
    SampleDetector,
    SampleFRCNN,
    SampleOptions,
    proposals,
)
from capbench.weights import files  # noqa: E402
from scripts import sample_faier, sample_scan, sample_vilbert  # noqa: E402
from scripts.average_precision import mean_average_precision  # noqa: E402
from scripts.checks import at_least, require_file, require_writable  # noqa: E402
from scripts.drawn_scenes import new_scenes, sample_scenes  # noqa: E402
from scripts.sample.drawing import paint  # noqa: E402
from scripts.sample.scenes import COLOURS, KINDS  # noqa: E402

CLASSES, COLOUR_NAMES = tuple(KINDS), tuple(COLOURS)
SEED = 7
DRAWN = 3000  # new scenes beside the sample's own
STEPS = 1600
BATCH = 8
REGIONS = 32  # of an image in the second stage's loss
# Precision is measured on as many boxes as there are objects to find; features are taken of always twelve, for which
# near copies of boxes are let through.
BOXES: dict[str, Any] = {"min_boxes": 6, "max_boxes": 20}
THREADS = 1  # more would add in another order


class Picture:
    """One training or test picture: uint8 (160, 160, 3), boxes (m, 4), class and colour ids (m,)."""

    def __init__(self, pixels: np.ndarray[Any, Any], objects: list[tuple[Any, str, str]]) -> None:
        self.pixels = pixels
        self.boxes = torch.tensor([[float(v) for v in box] for box, _, _ in objects])
        # A drawing's box names its last pixel; the network's boxes end behind it.
        self.boxes[:, 2:] += 1
        self.classes = torch.tensor([CLASSES.index(kind) for _, kind, _ in objects])
        self.colours = torch.tensor([COLOUR_NAMES.index(colour) for _, _, colour in objects])


def read_split(split: str) -> list[Picture]:
    """The sample's pictures of a split (``train``, ``held-out``)."""
    from PIL import Image

    folder = sample_dir()
    pictures = []
    for entry in sample_scenes():
        if entry["split"] == split:
            with Image.open(folder / entry["file"]) as image:
                pixels = np.asarray(image.convert("RGB"))
            pictures.append(Picture(pixels, [(o["box"], o["class"], o["colour"]) for o in entry["objects"]]))
    return pictures


def draw(count: int) -> list[Picture]:
    """New scenes, none of which has the name, and so the layout, of one of the sample's; rare classes are not rare."""
    pictures = []
    for _, scene in new_scenes("detector-training", count, rare=0.35):
        objects = [(thing.box, thing.kind, thing.colour) for thing in scene.things]
        pictures.append(Picture(np.asarray(paint(scene)), objects))
    return pictures


def batch_of(pictures: list[Picture], mirror: list[bool]) -> tuple[Tensor, list[Tensor]]:
    """Network inputs (n, 3, 160, 160) and boxes, some pictures mirrored left to right."""
    prepare = SamplePreparation()
    pixels, boxes = [], []
    for picture, flip in zip(pictures, mirror, strict=True):
        chw = torch.from_numpy(prepare(picture.pixels).pixels)
        pixels.append(chw.flip(2) if flip else chw)
        b = picture.boxes
        width = chw.shape[2]
        boxes.append(torch.stack([width - b[:, 2], b[:, 1], width - b[:, 0], b[:, 3]], dim=1) if flip else b)
    return torch.stack(pixels), boxes


def encode(boxes: Tensor, targets: Tensor, weights: tuple[float, float, float, float]) -> Tensor:
    """The deltas that turn boxes into targets: what ``boxes.decode`` undoes."""
    size, wanted = boxes[:, 2:] - boxes[:, :2], targets[:, 2:] - targets[:, :2]
    move = ((targets[:, :2] + targets[:, 2:]) - (boxes[:, :2] + boxes[:, 2:])) / 2 / size
    return torch.cat([move, torch.log(wanted / size)], dim=1) * torch.tensor(weights)


def draw_some(mask: Tensor, limit: int, generator: torch.Generator) -> Tensor:
    """At most ``limit`` of the rows that a mask allows, at random."""
    rows = mask.nonzero()[:, 0]
    return rows[torch.randperm(len(rows), generator=generator)[:limit]]


def first_stage_loss(
    logits: Tensor, deltas: Tensor, anchors: Tensor, boxes: list[Tensor], generator: torch.Generator
) -> Tensor:
    """Objectness and box losses of the proposal network (Ren et al., equation 1)."""
    n, a = logits.shape[:2]
    scores = logits.permute(0, 2, 3, 1).reshape(n, -1)
    moves = deltas.reshape(n, a, 4, *deltas.shape[2:]).permute(0, 3, 4, 1, 2).reshape(n, -1, 4)
    total = logits.new_zeros(())
    for i, truth in enumerate(boxes):
        overlaps = bx.iou(anchors, truth)
        best, which = overlaps.max(dim=1)
        positive = best >= 0.6
        positive |= ((overlaps >= overlaps.amax(dim=0) - 1e-6) & (overlaps > 0.3)).any(dim=1)
        yes = draw_some(positive, 32, generator)
        no = draw_some((best < 0.3) & ~positive, 96 - len(yes), generator)
        rows = torch.cat([yes, no])
        wanted = torch.cat([torch.ones(len(yes)), torch.zeros(len(no))])
        total = total + F.binary_cross_entropy_with_logits(scores[i, rows], wanted)
        goal = encode(anchors[yes], truth[which[yes]], (1.0, 1.0, 1.0, 1.0))
        total = total + F.smooth_l1_loss(moves[i, yes], goal, beta=0.11, reduction="sum") / len(rows)
    return total / n


def second_stage_loss(
    network: SampleFRCNN,
    maps: Tensor,
    suggested: list[Tensor],
    boxes: list[Tensor],
    pictures: list[Picture],
    generator: torch.Generator,
) -> Tensor:
    """Class, box and colour losses of regions: proposals, the objects themselves, and shaken copies of them."""
    regions, classes, colours, goals = [], [], [], []
    for proposed, truth, picture in zip(suggested, boxes, pictures, strict=True):
        size = (truth[:, 2:] - truth[:, :2]).repeat(1, 2)
        shaken = truth + torch.randn(truth.shape, generator=generator) * 0.08 * size
        rois = torch.cat([proposed, truth, shaken])
        rois = rois[bx.wide_enough(rois, 2.0)]
        best, which = bx.iou(rois, truth).max(dim=1)
        yes = draw_some(best >= 0.5, REGIONS // 2, generator)
        no = draw_some(best < 0.5, REGIONS - len(yes), generator)
        rows = torch.cat([yes, no])
        regions.append(rois[rows])
        classes.append(torch.cat([picture.classes[which[yes]], torch.full((len(no),), len(CLASSES))]))
        colours.append(torch.cat([picture.colours[which[yes]], torch.full((len(no),), -1)]))
        goals.append(encode(rois[rows], truth[which[rows]], DELTA_WEIGHTS))
    outputs = network.describe(network.pool(maps, regions))
    label, colour, goal = torch.cat(classes), torch.cat(colours), torch.cat(goals)
    is_object = label < len(CLASSES)
    loss = F.cross_entropy(outputs.classes, label, label_smoothing=0.02)
    loss = loss + F.cross_entropy(outputs.colours, colour, ignore_index=-1) * 0.5
    return loss + F.smooth_l1_loss(outputs.boxes[is_object], goal[is_object], reduction="sum") / len(label)


def train(pictures: list[Picture], steps: int) -> SampleFRCNN:
    """Train from scratch with AdamW and a one-cycle learning rate."""
    torch.manual_seed(SEED)
    generator = torch.Generator().manual_seed(SEED)
    network = SampleFRCNN(len(CLASSES), len(COLOUR_NAMES)).train()
    # Batch normalisation of pooled regions would depend on how many of them are background.
    normalisation = network.region[1]
    assert isinstance(normalisation, torch.nn.BatchNorm2d)
    normalisation.momentum = 0.02
    optimiser = torch.optim.AdamW(network.parameters(), lr=1e-3, weight_decay=1e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 4e-3, total_steps=steps, pct_start=0.15)
    stride = SampleFRCNN.stride_proposals
    cell = bx.centred_anchors(SampleFRCNN.anchor_sizes, SampleFRCNN.anchor_ratios) + stride / 2
    anchors = bx.grid(cell, 160 // stride, 160 // stride, stride)
    order: list[int] = []
    begin, running = time.monotonic(), 0.0
    for step in range(steps):
        while len(order) < BATCH:
            order += torch.randperm(len(pictures), generator=generator).tolist()
        chosen, order = [pictures[i] for i in order[:BATCH]], order[BATCH:]
        mirror = (torch.rand(BATCH, generator=generator) < 0.5).tolist()
        images, boxes = batch_of(chosen, mirror)
        maps, deep = network.features(images)
        logits, deltas = network.propose(deep)
        loss = first_stage_loss(logits, deltas, anchors, boxes, generator)
        with torch.no_grad():
            suggested = [proposals(logits[i], deltas[i], (160, 160), 60) for i in range(BATCH)]
        loss = loss + second_stage_loss(network, maps, suggested, boxes, chosen, generator)
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(network.parameters(), 5.0)
        optimiser.step()
        schedule.step()
        running += float(loss.detach())
        if (step + 1) % 50 == 0:
            took = time.monotonic() - begin
            print(f"step {step + 1}/{steps}: loss {running / 50:.3f}, {took:.0f} s", file=sys.stderr, flush=True)
            running = 0.0
    return network.eval()


def evaluate(detector: SampleDetector, pictures: list[Picture]) -> dict[str, Any]:
    """Mean average precision at IoU 0.5, and how often the colour of a found object is right."""
    detections, truth, colours_right, colours_seen = [], [], 0, 0
    for picture in pictures:
        regions = detector.detect([detector.preprocess(picture.pixels)])[0]
        assert regions.class_ids is not None
        assert regions.class_scores is not None
        assert regions.attribute_ids is not None
        assert regions.boxes is not None
        detections.append((regions.boxes, regions.class_ids, regions.class_scores))
        truth.append((picture.boxes.numpy(), picture.classes.numpy()))
        overlaps = bx.iou(torch.from_numpy(regions.boxes), picture.boxes)
        for j in range(len(picture.boxes)):
            i = int(overlaps[:, j].argmax())
            if overlaps[i, j] >= 0.5:
                colours_seen += 1
                colours_right += int(regions.attribute_ids[i] == picture.colours[j])
    mean, each = mean_average_precision(detections, truth)
    return {
        "pictures": len(pictures),
        "objects": sum(len(p.boxes) for p in pictures),
        "mean_average_precision": round(mean, 4),
        "average_precision": {CLASSES[c]: round(value, 4) for c, value in each.items()},
        "objects_found": colours_seen,
        "colours_right": round(colours_right / max(colours_seen, 1), 4),
    }


def safetensors_bytes(tensors: dict[str, Tensor]) -> bytes:
    """Weights as a safetensors file in half precision, without the counters of batch normalisation."""
    kept = {name: tensor for name, tensor in tensors.items() if not name.endswith("num_batches_tracked")}
    return files.to_bytes(kept, {}, "float16")


def main(arguments: list[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--out", type=Path, default=ROOT / "capbench" / "weights" / "sample", help="folder of the weights"
    )
    parser.add_argument("--steps", type=at_least(1), default=STEPS, help="training steps")
    parser.add_argument(
        "--check", action="store_true", help="train nothing; tell the mAP of the weights that are there"
    )
    parser.add_argument("--only", choices=("detector", "scan", "faier", "vilbert"), help="train this one only")
    parser.add_argument("--work", type=Path, help="folder of the trainings but the detector's; a rerun goes on from it")
    options = parser.parse_args(arguments)
    target = options.out / "sample_detector.safetensors"
    try:
        if options.check:
            require_file(target)
        else:
            require_writable(options.out)
        if options.work is not None:
            require_writable(options.work)
    except CapbenchError as error:
        parser.error(str(error))
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.set_num_threads(THREADS)
    torch.use_deterministic_algorithms(True)
    held_out = read_split("held-out")
    if options.check:
        detector = SampleDetector.open(SampleOptions(**BOXES), weights=target, device="cpu", variant="")
        print(json.dumps(evaluate(detector, held_out), indent=2))
        return 0
    if options.only in (None, "detector"):
        train_detector(target, options.steps, held_out)
    torch.use_deterministic_algorithms(False)  # the other trainings have their own care for equal bits
    with tempfile.TemporaryDirectory() as scratch:
        work = options.work or Path(scratch)
        for name, module in (("scan", sample_scan), ("faier", sample_faier), ("vilbert", sample_vilbert)):
            if options.only in (None, name):
                card = module.train(work, options.out / f"sample_{name}.safetensors")
                print(json.dumps(card, indent=2))
    return 0


def train_detector(target: Path, steps: int, held_out: list[Picture]) -> None:
    """Train the detector, write weights and card, and print what it finds in held-out pictures."""
    sample_pictures = read_split("train")
    pictures = sample_pictures + draw(DRAWN)
    print(f"{len(pictures)} training pictures, {len(held_out)} held out", file=sys.stderr, flush=True)
    network = train(pictures, steps)
    data = safetensors_bytes(network.state_dict())
    with atomic_write(target, "wb") as file:
        file.write(data)
    # What is measured is what was written: in half precision.
    state = {name: t.half().float() if t.is_floating_point() else t for name, t in network.state_dict().items()}
    network.load_state_dict(state)
    digest = hashlib.sha256(data).hexdigest()
    detector = SampleDetector(network, CLASSES, COLOUR_NAMES, digest, "cpu", SampleOptions(**BOXES))
    card = {
        "what": "Small Faster R-CNN for the synthetic scenes of the embedded sample. It knows nothing of photographs.",
        "sha256": digest,
        "bytes": len(data),
        "classes": CLASSES,
        "colours": COLOUR_NAMES,
        "training": {
            "pictures_of_the_sample": len(sample_pictures),
            "pictures_drawn": len(pictures) - len(sample_pictures),
            "steps": steps,
            "batch": BATCH,
            "seed": SEED,
            "threads": THREADS,
            "torch": torch.__version__.split("+")[0],
        },
        "held_out": evaluate(detector, held_out),
        "licence": "Apache-2.0",
    }
    with atomic_write(target.with_suffix(".json")) as file:
        file.write(json.dumps(card, indent=2) + "\n")
    print(json.dumps(card["held_out"], indent=2))


if __name__ == "__main__":
    sys.exit(main())
