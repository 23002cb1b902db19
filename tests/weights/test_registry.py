from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest
import torch

from capbench.core.errors import DataError, MissingFileError, ModelError, UsageError
from capbench.features.detectors.base import names
from capbench.weights import registry


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
    metrics = {"tiger", "reo", "vilbertscore", "clipscore", "pac-s"}
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
    with pytest.raises(UsageError, match="Did you mean 'resnet50'"):
        registry.entry("grid:resnet55")
    with pytest.raises(UsageError, match="Did you mean 'x152-fpn'"):
        registry.entry("x152")


def test_an_address_without_a_stated_checksum_says_so() -> None:
    unknown = {name for name, entry in registry.entries().items() if entry.sha256 == registry.UNKNOWN}
    assert unknown == {
        "frcnn-vg-finetuned", "bottom-up-d2", "bottom-up-caffemodel", "x152-fpn", "vilbert-pretrained",
        "vilbert-multi-task",
    }  # fmt: skip
    assert {registry.entry(name).expected for name in unknown} == {None}


def test_a_wrong_file_is_refused_with_expected_and_found_hash(weights: Path, models: Path) -> None:
    digest = hashlib.sha256(weights.read_bytes()).hexdigest()
    with pytest.raises(ModelError) as caught:
        registry.add("torchvision-frcnn", weights)
    assert "expected SHA-256 dd69338a..." in str(caught.value)
    assert f"found {digest}" in str(caught.value)
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
    with pytest.raises(
        ModelError, match=rf"expected SHA-256 {done.sha256}, recorded when it was added; found [0-9a-f]"
    ):
        registry.find_weights("x152-fpn")


def test_other_weights_are_replaced_only_when_asked(weights: Path, tmp_path: Path) -> None:
    first = registry.add("x152-fpn", weights)
    assert registry.add("x152-fpn", weights) == first  # the same file again is no change
    torch.save({"x": torch.zeros(3)}, tmp_path / "new.pth")
    with pytest.raises(ModelError, match="--replace"):
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


def test_what_holds_no_weights_is_refused(tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text("<html>404</html>")
    with pytest.raises(ModelError, match=r"page\.html"):
        registry.add("x152-fpn", tmp_path / "page.html")
    with pytest.raises(MissingFileError, match="capbench models info x152-fpn"):
        registry.add("x152-fpn", tmp_path / "none.pth")


def test_missing_weights_say_what_to_do() -> None:
    with pytest.raises(ModelError) as caught:
        registry.find_weights("bottom-up-caffe")
    assert "bua-caffe-frcn-r101_with_attributes.pth" in str(caught.value)
    assert "capbench models add bua-caffe-r101 FILE" in str(caught.value)


def test_a_damaged_record_is_told(weights: Path, models: Path) -> None:
    registry.add("x152-fpn", weights)
    (models / "x152-fpn" / "detectron_model.pth.record.json").write_text("{}")
    with pytest.raises(DataError, match="holds no SHA-256"):
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
            "models.a: Value error, an address needs a checksum, or 'sha256: unknown' where none is known",
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
    with pytest.raises(ModelError, match="there is no such FAIEr model"):
        registry.locate("x" * 5000, "faier")
    with pytest.raises(ModelError, match="no sample of a FAIEr model"):
        registry.locate("sample", "faier")
    (tmp_path / "sample" / "sample_faier.safetensors").write_bytes(b"")
    assert registry.has_sample("faier")
    assert registry.locate("sample", "faier").name == "sample_faier.safetensors"
    with pytest.raises(ModelError, match="there is no such FAIEr model"):
        registry.locate("nowhere.safetensors", "faier")
    with pytest.raises(ModelError, match="there is no such grounding model"):
        registry.locate("nowhere.safetensors", "reo")
    with pytest.raises(ModelError, match="there is no such file of weights"):
        registry.locate("nowhere.safetensors", "a-plug-ins-metric")


@pytest.mark.parametrize(
    ("metric", "message"),
    [
        ("bertscore", "no sample of a BERT-like model. Give a folder: --model bertscore=FOLDER"),
        ("bert-tbr", "no sample of a BERT-like model. Give a folder: --model bert-tbr=FOLDER"),
        ("leic", "no sample of a network of LEIC. Make one with 'capbench train leic'"),
        ("nneval", "no sample of a network of NNEval. Make one with 'capbench train nneval'"),
    ],
)
def test_a_sample_of_another_network_is_not_taken(metric: str, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        registry.locate("sample", metric)
