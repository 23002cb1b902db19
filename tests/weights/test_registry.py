from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest
import torch

from capbench.core.errors import DataError, MissingFileError, ModelError, UsageError
from capbench.features.detectors.base import names
from capbench.weights import registry
from tests.errors import raises

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def models(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("CAPBENCH_MODELS", str(tmp_path / "models"))
    return tmp_path / "models"


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    path = tmp_path / "download.pth"
    torch.save({"x": torch.ones(3)}, path)
    return path


def test_every_entry_says_where_from_and_under_which_terms() -> None:
    used = {name for entry in registry.entries().values() for name in entry.used_by}
    detectors = {"bottom-up-hf", "bottom-up-caffe", "x152-fpn", "torchvision-frcnn"}
    metrics = {
        "tiger", "reo", "vilbertscore", "clipscore", "pac-s", "bertscore", "bert-tbr",
    }  # fmt: skip
    assert used == detectors | metrics
    assert used - metrics < set(names())
    for entry in registry.entries().values():
        assert entry.page.startswith("https://")
        assert entry.terms
        assert entry.url is None or entry.sha256 or entry.sha256_prefix or entry.sha256_observed
        if digits := re.search(r"-([0-9a-f]{8})\.pth$", entry.file):
            assert entry.sha256_prefix == digits.group(1)


def test_backbones_are_asked_of_torchvision() -> None:
    entry = registry.entry("grid:resnet50")
    assert entry.url is not None
    assert entry.url.endswith(entry.file)
    assert entry.file == f"resnet50-{entry.sha256_prefix}.pth"
    assert "ImageNet" in entry.terms
    # torchvision's two default weights with a licence of their own
    assert registry.entry("grid:regnet_y_128gf").terms.startswith("CC BY-NC 4.0")
    assert registry.entry("grid:vit_h_14").terms.startswith("CC BY-NC 4.0")
    with raises(UsageError, "unknown-name", value="resnet55") as caught:
        registry.entry("grid:resnet55")
    assert "'resnet50'" in (caught.value.hint or "")
    with raises(UsageError, "unknown-name", value="x152") as caught:
        registry.entry("x152")
    assert "'x152-fpn'" in (caught.value.hint or "")


def test_an_address_without_a_stated_checksum_says_so() -> None:
    unknown = {name for name, entry in registry.entries().items() if entry.sha256 == registry.UNKNOWN}
    assert unknown == {
        "frcnn-vg-finetuned", "bottom-up-d2", "bottom-up-caffemodel", "x152-fpn", "vilbert-pretrained",
        "vilbert-multi-task", "bert-base-uncased", "roberta-large",
    }  # fmt: skip
    assert {registry.entry(name).expected for name in unknown} == {None}


def test_a_wrong_file_is_rejected_with_expected_and_actual_hash(weights: Path, models: Path) -> None:
    digest = hashlib.sha256(weights.read_bytes()).hexdigest()
    with raises(ModelError, "wrong-weights", path=weights, value=digest) as caught:
        registry.add("torchvision-frcnn", weights)
    assert "dd69338a" in caught.value.message
    assert not (models / "torchvision-frcnn").exists()


def test_a_file_that_differs_from_what_others_report_is_taken_and_that_is_said(weights: Path, models: Path) -> None:
    observed = registry.entry("clip-vit-b32").sha256_observed
    assert observed is not None
    assert registry.entry("clip-vit-b32").expected is None
    done = registry.add("clip-vit-b32", weights)
    assert (done.state, done.official) == ("here", False)
    assert done.remark is not None
    assert observed in done.remark
    assert registry.find_weights("clipscore") == models / "clip-vit-b32" / "pytorch_model.bin"
    # From then on its own digits guard it.
    (models / "clip-vit-b32" / "pytorch_model.bin").write_bytes(b"something else")
    assert registry.status("clip-vit-b32").state == "wrong"


def test_the_copy_that_others_report_raises_no_remark(weights: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    digest = hashlib.sha256(weights.read_bytes()).hexdigest()
    known = {
        name: entry.model_copy(update={"sha256_observed": digest, "shapes": {}}) if name == "clip-vit-b32" else entry
        for name, entry in registry.entries().items()
    }
    monkeypatch.setattr(registry, "entries", lambda: known)
    assert registry.add("clip-vit-b32", weights).remark is None
    assert registry.add("x152-fpn", weights).remark is None


def test_a_file_without_official_hash_is_recorded_and_guarded(weights: Path, models: Path) -> None:
    assert registry.status("x152-fpn").state == "missing"
    done = registry.add("x152-fpn", weights)
    file = models / "x152-fpn" / "detectron_model.pth"
    assert done.state == "here"
    assert not done.official
    assert file.read_bytes() == weights.read_bytes()
    assert registry.find_weights("x152-fpn") == file
    file.write_bytes(b"something else")
    assert registry.status("x152-fpn").state == "wrong"
    with raises(ModelError, "wrong-weights", path=file, value=hashlib.sha256(b"something else").hexdigest()) as caught:
        registry.find_weights("x152-fpn")
    assert str(done.sha256) in caught.value.message


def test_other_weights_are_replaced_only_on_request(weights: Path, tmp_path: Path) -> None:
    first = registry.add("x152-fpn", weights)
    assert registry.add("x152-fpn", weights) == first  # the same file again is no change
    torch.save({"x": torch.zeros(3)}, tmp_path / "new.pth")
    with raises(ModelError, "exists", value=first.sha256):
        registry.add("x152-fpn", tmp_path / "new.pth")
    assert registry.status("x152-fpn") == first
    second = registry.add("x152-fpn", tmp_path / "new.pth", replace=True)
    assert second.state == "here"
    assert second.sha256 != first.sha256


def test_a_file_already_in_place_is_recorded(weights: Path, models: Path) -> None:
    file = models / "bottom-up-d2" / "faster_rcnn_from_caffe_attr.pkl"
    file.parent.mkdir(parents=True)
    file.write_bytes(weights.read_bytes())
    assert registry.status("bottom-up-d2").expected is None
    assert registry.add("bottom-up-d2", file).expected == hashlib.sha256(weights.read_bytes()).hexdigest()
    assert registry.find_weights("bottom-up-hf") == file  # the second of its entries


def test_files_without_weights_are_rejected(tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text("<html>404</html>")
    with raises(ModelError, "wrong-format", path=tmp_path / "page.html"):
        registry.add("x152-fpn", tmp_path / "page.html")
    with raises(MissingFileError, "missing-file", path=tmp_path / "none.pth") as caught:
        registry.add("x152-fpn", tmp_path / "none.pth")
    assert "capbench models list x152-fpn" in (caught.value.hint or "")


def test_the_error_for_missing_weights_names_the_commands() -> None:
    with raises(ModelError, "missing-weights", value="bua-caffe-r101") as caught:
        registry.find_weights("bottom-up-caffe")
    assert "bua-caffe-frcn-r101_with_attributes.pth" in str(caught.value)
    assert "capbench models add bua-caffe-r101 FILE" in str(caught.value)


def test_a_damaged_record_is_reported(weights: Path, models: Path) -> None:
    registry.add("x152-fpn", weights)
    (models / "x152-fpn" / "detectron_model.pth.record.json").write_text("{}")
    with raises(DataError, "damaged", value="sha256"):
        registry.status("x152-fpn")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("schema: 2\nmodels: {}", "schema"),
        ("schema: 1\nmodels: {a: {title: t}}", "models.a"),
        (
            "schema: 1\nmodels: {a: {title: t, for: [b], file: ../x, page: p, terms: t, manual: m}}",
            "models.a.file",
        ),
        (
            "schema: 1\nmodels: {a: {title: t, for: [b], file: x, page: p, terms: t, manual: m, sha256: 12}}",
            "models.a.sha256",
        ),
        (
            "schema: 1\nmodels: {a: {title: t, for: [b], file: x, page: p, terms: t, manual: m, url: u}}",
            "models.a: an address requires a checksum, or 'sha256: unknown' if it is unknown",
        ),
        ("a: [", "not YAML"),
    ],
)
def test_a_wrong_registry_names_the_key(text: str, message: str) -> None:
    with pytest.raises(DataError, match=re.escape(message)):
        registry.parse_registry(text)


def test_the_folder_follows_the_users_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert registry.models_dir() == tmp_path / "models"
    monkeypatch.delenv("CAPBENCH_MODELS")
    monkeypatch.setenv("CAPBENCH_HOME", str(tmp_path / "home"))
    assert registry.models_dir() == tmp_path / "home" / "models"


def test_each_kind_of_model_has_a_sample_and_a_name_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("importlib.resources.files", lambda _: tmp_path)
    (tmp_path / "sample").mkdir()
    assert not registry.has_sample("faier")
    with raises(ModelError, "missing-weights", value="x" * 5000):
        registry.locate("x" * 5000, "faier")
    with raises(ModelError, "missing-weights", value="sample"):
        registry.locate("sample", "faier")
    (tmp_path / "sample" / "sample_faier.safetensors").write_bytes(b"")
    assert registry.has_sample("faier")
    assert registry.locate("sample", "faier").name == "sample_faier.safetensors"
    for metric, noun in (
        ("faier", "FAIEr model"),
        ("reo", "grounding model"),
        ("a-plug-ins-metric", "file of weights"),
    ):
        with raises(ModelError, "missing-weights", path="nowhere.safetensors") as caught:
            registry.locate("nowhere.safetensors", metric)
        assert noun in caught.value.message


@pytest.mark.parametrize(
    ("metric", "remedy"),
    [
        ("bertscore", "--model bertscore=FOLDER"),
        ("bert-tbr", "--model bert-tbr=FOLDER"),
        ("leic", "'capbench train leic'"),
        ("nneval", "'capbench train nneval'"),
    ],
)
def test_a_sample_of_another_network_is_not_used(metric: str, remedy: str) -> None:
    with raises(ModelError, "missing-weights", value="sample") as caught:
        registry.locate("sample", metric)
    assert remedy in (caught.value.hint or "")
