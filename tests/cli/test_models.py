from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import typer
from typer.testing import CliRunner, Result

from capbench.cli import models
from capbench.errors import ModelError, UsageError


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("CAPBENCH_MODELS", str(tmp_path / "models"))
    return tmp_path / "models"


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(models.app, [str(a) for a in arguments])


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    torch.save({"x": torch.ones(3)}, tmp_path / "w.pth")
    return tmp_path / "w.pth"


def test_list_names_every_model_and_its_state(folder: Path) -> None:
    ran = run("list")
    assert ran.exit_code == 0
    for name in ("frcnn-vg-finetuned", "bua-caffe-r101", "x152-fpn", "torchvision-frcnn", "grid:BACKBONE"):
        assert name in ran.stdout
    found = json.loads(run("list", "--json").stdout)
    assert found["folder"] == str(folder)
    assert {entry["state"] for entry in found["models"]} == {"missing"}


def test_info_tells_source_terms_and_where_to_put_it() -> None:
    ran = run("info", "torchvision-frcnn")
    assert ran.exit_code == 0
    for words in (
        "https://download.pytorch.org",
        "begins with dd69338a",
        "BSD",
        "capbench models add torchvision-frcnn",
    ):
        assert words in ran.stdout
    found = json.loads(run("info", "grid:resnet18", "--json").stdout)
    assert found["for"] == ["grid:resnet18"]
    assert found["official"] is True
    assert isinstance(run("info", "vgg").exception, UsageError)


def test_add_keeps_a_file_and_tells_when_it_changes(folder: Path, weights: Path) -> None:
    ran = run("add", "x152-fpn", weights)
    assert ran.exit_code == 0
    assert "no official one is known; recorded" in ran.stdout
    assert run("info", "x152-fpn").exit_code == 0
    again = json.loads(run("add", "x152-fpn", weights, "--json").stdout)
    assert again["state"] == "here"
    (folder / "x152-fpn" / "detectron_model.pth").write_bytes(b"changed")
    ran = run("info", "x152-fpn")
    assert ran.exit_code == 1
    assert "state:   wrong" in ran.stdout
    assert run("list").exit_code == 1


def test_another_file_than_others_report_is_added_with_a_line(folder: Path, weights: Path) -> None:
    assert "(unverified)" in run("info", "clip-vit-b32").stdout
    ran = run("add", "clip-vit-b32", weights)
    assert ran.exit_code == 0
    assert "that others report" in ran.stderr
    assert len(ran.stderr.strip().splitlines()) == 1
    told = run("info", "clip-vit-b32")
    assert told.exit_code == 0
    assert "that others report" in told.stdout
    assert "that others report" in json.loads(run("info", "clip-vit-b32", "--json").stdout)["remark"]


def test_add_refuses_a_wrong_file(weights: Path) -> None:
    error = run("add", "torchvision-frcnn", weights).exception
    assert isinstance(error, ModelError)
    assert error.exit_code == 2
    assert "expected SHA-256 dd69338a" in str(error)


def test_every_command_has_an_example() -> None:
    group = typer.main.get_command(models.app)
    commands = getattr(group, "commands", {})
    assert set(commands) == {"list", "info", "add", "ensemble", "merge"}
    for command in commands.values():
        assert "Example: capbench models" in (command.help or "")
