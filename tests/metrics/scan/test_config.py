from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from capbench.core.errors import StudyError
from capbench.metrics.scan.train import ScanTraining
from capbench.training.settings import find_training
from capbench.training.settings import load_training as load
from capbench.training.settings import parse_training as parse
from tests.errors import raises

MINIMAL = "schema: 1\nname: one\ncaptions: c.json\nfeatures: f.h5\n"


def load_training(path: Path, changes: Sequence[str] = ()) -> ScanTraining:
    return load(ScanTraining, path, changes)


def parse_training(raw: Mapping[str, object]) -> ScanTraining:
    return parse(ScanTraining, raw)


@pytest.fixture
def minimal(tmp_path: Path) -> Path:
    path = tmp_path / "one.yaml"
    path.write_text(MINIMAL, encoding="utf-8")
    return path


def test_every_problem_is_reported_at_once() -> None:
    raw = {
        "schema": 2,
        "name": "a/b",
        "feature": "x.h5",
        "captions": "c.json",
        "loss": {"temprature": 0.1, "margin": -1},
        "network": {"embed": 3, "image_dim": 4, "cross_attention": "i2i"},
        "batch": 1,
        "optimiser": {"lr": "fast"},
        "device": "gpu",
    }
    with pytest.raises(StudyError) as caught:
        parse_training(raw)
    text = str(caught.value)
    for part in (
        "schema=2: not 1, the layout that this version reads",
        "name=a/b: not a name of letters",
        "training has no option 'feature'. Did you mean 'features'?",
        "the key 'features' is missing",
        "loss has no option 'temprature'. Did you mean 'temperature'?",
        "loss.margin=-1: not a number above 0",
        "network has no option 'embed'. Did you mean 'embed_dim'?",
        "network.image_dim is decided by the data. Remove it",
        "batch=1: not a whole number from 2",
        "optimiser.lr=fast: not a number above 0",
        "device=gpu: not auto, cpu, cuda or cuda:N",
        "network.cross_attention=i2i: not one of t2i, i2t. Did you mean 't2i'",
        "12 problems",
    ):
        assert part in text


@pytest.mark.parametrize(
    ("network", "named"),
    [
        ({"cross_attention": "i2i"}, "network.cross_attention=i2i"),
        ({"embed_dim": "many"}, "network.embed_dim=many"),
        ({"lambda_softmax": -1}, "network.lambda_softmax=-1"),
    ],
)
def test_options_of_the_network_are_checked_by_the_network(network: dict[str, object], named: str) -> None:
    with raises(StudyError, "wrong-value") as caught:
        parse_training({"schema": 1, "name": "a", "captions": "c", "features": "f", "network": network})
    assert named in str(caught.value)


@pytest.mark.parametrize(
    ("section", "named"),
    [
        ({"loss": {"kind": "info-nce", "margin": 0.3}}, "'loss.margin'"),
        ({"loss": {"temperature": 0.2}}, "'loss.temperature'"),
        ({"loss": {"hardest_after": 5}}, "'loss.hardest_after'"),
        ({"vocabulary": {"file": "v.json", "min_count": 3}}, "'vocabulary.min_count'"),
    ],
)
def test_settings_that_do_nothing_are_rejected(section: dict[str, object], named: str) -> None:
    with raises(StudyError, "wrong-value") as caught:
        parse_training({"schema": 1, "name": "a", "captions": "c", "features": "f", **section})
    assert named in str(caught.value)


def test_a_key_that_is_no_text_is_named(minimal: Path) -> None:
    minimal.write_text(MINIMAL + "1: 2\n", encoding="utf-8")
    with raises(StudyError, "wrong-value", path=minimal) as caught:
        load_training(minimal)
    assert "the key 1 " in str(caught.value)


def test_scientific_notation_is_a_number(minimal: Path) -> None:
    minimal.write_text(MINIMAL + "optimiser: {lr: 5e-4}\nnetwork: {lambda_lse: 5e0}\n", encoding="utf-8")
    config = load_training(minimal)
    assert config.optimiser.lr == 0.0005
    assert config.to_dict()["network"]["lambda_lse"] == 5.0


@pytest.mark.parametrize("text", ["optimiser: {lr: '5e-4'}", "batch: '100'", "dropout: {words: '0.1'}"])
def test_a_number_in_quotes_is_a_text(minimal: Path, text: str) -> None:
    minimal.write_text(f"{MINIMAL}{text}\n", encoding="utf-8")
    with raises(StudyError, "wrong-value", path=minimal) as caught:
        load_training(minimal)
    assert "Write it without quotes" in str(caught.value)


@pytest.mark.parametrize("text", ["loss: 3", "network: [1]", "optimiser:"])
def test_a_section_that_is_no_mapping_is_refused(minimal: Path, text: str) -> None:
    minimal.write_text(f"{MINIMAL}{text}\n", encoding="utf-8")
    with raises(StudyError, "wrong-value", path=minimal) as caught:
        load_training(minimal)
    assert text.partition(":")[0] + "=" in str(caught.value)
    assert "{key: value}" in str(caught.value)


def test_what_can_be_switched_off_is_null(minimal: Path) -> None:
    config = load_training(minimal, ["optimiser.clip=null", "optimiser.lr_update=null", "ema=null"])
    assert (config.optimiser.clip, config.optimiser.lr_update, config.ema) == (None, None, None)
    for change, named in (("optimiser.clip=-1", "optimiser.clip=-1"), ("epochs=null", "epochs=None")):
        with raises(StudyError, "wrong-value", path=minimal) as caught:
            load_training(minimal, [change])
        assert named in str(caught.value)


def test_changes_replace_what_the_file_says(minimal: Path) -> None:
    config = load_training(
        minimal, ["loss.kind=info-nce", "loss.temperature=0.2", "seed=7", "splits.dev=[val, restval]"]
    )
    assert (config.loss.temperature, config.seed, config.splits.dev) == (0.2, 7, ("val", "restval"))
    assert load_training(minimal, ["vocabulary.splits=[train]"]).vocabulary.splits == ("train",)
    assert load_training(minimal, ["vocabulary.splits=dev"]).vocabulary.splits == ("dev",)
    with raises(StudyError, "wrong-format", value="seed"):
        load_training(minimal, ["seed"])
    with raises(StudyError, "unknown-key", value="name", path=minimal):
        load_training(minimal, ["name.first=x"])


def test_what_does_not_decide_the_result_may_change(minimal: Path) -> None:
    here, there = load_training(minimal), load_training(minimal, ["threads=3", "checkpoint_seconds=5", "features=g.h5"])
    assert here.deciding() == there.deciding()
    assert load_training(minimal, ["optimiser.clip=1.0"]).deciding() != here.deciding()


def test_a_default_that_is_written_out_is_the_same_setting(minimal: Path) -> None:
    written = load_training(minimal, ["network.embed_dim=1024", "network.lambda_softmax=9", "batch=128"])
    assert written.deciding() == load_training(minimal).deciding()


def test_what_a_run_notes_of_its_settings_can_be_read_again(minimal: Path) -> None:
    config = load_training(minimal, ["loss.kind=info-nce", "network.embed_dim=9"])
    assert parse_training(config.to_dict()).to_dict() == config.to_dict()


def test_published_settings_are_those_of_the_paper() -> None:
    coco, flickr30k = (load_training(find_training(name)) for name in ("scan-coco", "scan-flickr30k"))
    network = coco.to_dict()["network"]
    assert (network["cross_attention"], network["lambda_lse"], network["lambda_softmax"]) == ("t2i", 6, 9)
    assert (coco.epochs, coco.optimiser.lr, coco.optimiser.lr_update, coco.loss.hardest) == (20, 5e-4, 10, True)
    network = flickr30k.to_dict()["network"]
    assert (network["cross_attention"], network["lambda_lse"], network["lambda_softmax"]) == ("i2t", 5, 4)
    assert (flickr30k.epochs, flickr30k.optimiser.lr, flickr30k.optimiser.lr_update) == (30, 2e-4, 15)
    for config in (coco, flickr30k):
        assert (config.loss.margin, config.loss.reduction, config.optimiser.clip) == (0.2, "sum", 2.0)
        assert (config.to_dict()["network"]["embed_dim"], config.vocabulary.min_count, config.batch) == (1024, 4, 128)


def test_shipped_files_are_found_by_name_and_others_are_listed(tmp_path: Path) -> None:
    assert find_training("configs/train/scan-coco.yaml").name == "scan-coco.yaml"
    for path in find_training("scan-coco").parent.glob("scan*.yaml"):
        assert load_training(path).name == path.stem
    with raises(StudyError, "unknown-name", value="scan-coko") as caught:
        find_training("scan-coko")
    assert "'scan-coco'" in str(caught.value)


@pytest.mark.parametrize(("text", "code"), [("schema: [1", "wrong-format"), ("- 1", "wrong-type"), ("", "wrong-type")])
def test_a_file_that_is_not_a_mapping_is_rejected(tmp_path: Path, text: str, code: str) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(text, encoding="utf-8")
    with raises(StudyError, code, path=path):
        load_training(path)
