"""Scripts refuse what does not fit before they begin to work."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from capbench.core.records import Item
from scripts import checks, flickr8k_steps, make_cli_docs, make_sample, reproduce_flickr8k_grid, select_flickr8k_grid
from scripts.flickr8k_grid import Grounded
from scripts.flickr8k_grid_tables import tables
from tests.metrics.grounding.models import write_features

Script = Callable[[list[str]], object]


@pytest.fixture
def no_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a script would work on first fails the test."""

    def began(*_: object, **__: object) -> None:
        pytest.fail("the script began to work")

    monkeypatch.setattr(reproduce_flickr8k_grid, "make_features", began)
    monkeypatch.setattr(select_flickr8k_grid, "pseudo_items", began)
    monkeypatch.setattr(make_sample, "build", began)


def refusal(script: Script, arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The line that a script leaves with."""
    with pytest.raises(SystemExit) as left:
        script(arguments)
    assert left.value.code not in (0, None)
    return f"{left.value} {capsys.readouterr().err}"


@pytest.mark.usefixtures("no_work")
@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--resamples", "99"], "99 is too few: give 100 or more"),
        (["--seeds", "1", "2", "1"], "a seed stands twice"),
        (["--threads", "0"], "0 is too few: give 1 or more"),
        (["--set", "stepps=3"], "stepps"),
        (["--config", "no-such-training"], "no-such-training"),
        (["--data", "no-such-folder"], "no-such-folder"),
        (["--data", "sample"], "mobilenetv2_grid49_pca256_int8.npz"),
    ],
)
def test_a_grid_run_that_cannot_end_does_not_begin(
    arguments: list[str], line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert line in refusal(reproduce_flickr8k_grid.main, [*arguments, "--out", str(tmp_path / "out")], capsys)


@pytest.mark.usefixtures("no_work")
def test_a_grid_run_needs_peoples_ratings_before_it_trains(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = tmp_path / "data" / "flickr8k"
    data.mkdir(parents=True)
    for name in flickr8k_steps.INPUTS:
        (data.parent / name).write_bytes(b"")
    (data / "Flickr8k.token.txt").write_text("a.jpg#0\ta dog\n", encoding="utf-8")
    arguments = ["--data", str(data.parent), "--out", str(tmp_path / "out")]
    assert "ExpertAnnotations.txt" in refusal(reproduce_flickr8k_grid.main, arguments, capsys)


@pytest.mark.usefixtures("no_work")
def test_places_that_cannot_be_written_to_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    taken = str(tmp_path / "file" / "out")
    assert "cannot be written to" in refusal(reproduce_flickr8k_grid.main, ["--out", taken], capsys)
    assert "cannot be written to" in refusal(make_sample.main, ["--out", taken], capsys)
    select = ["model", "--data", "sample", "--features", "none.h5", "--out", f"{taken}/rows.json"]
    assert "cannot be written to" in refusal(select_flickr8k_grid.main, select, capsys)


@pytest.mark.usefixtures("no_work")
def test_models_that_are_not_there_are_refused_before_text_metrics_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    features = tmp_path / "features.h5"
    select = ["none.safetensors", "--data", "sample", "--features", str(features)]
    assert "there is no" in refusal(select_flickr8k_grid.main, select, capsys)
    write_features(features, ["f8k_000"], 8)
    assert "none.safetensors" in refusal(select_flickr8k_grid.main, select, capsys)


@pytest.mark.usefixtures("no_work")
def test_there_must_be_a_sample_to_check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "no such folder to check" in refusal(make_sample.main, ["--check", "--out", str(tmp_path / "no")], capsys)


def test_an_unknown_argument_writes_no_command_line_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["make_cli_docs.py", "--chek"])
    with pytest.raises(SystemExit, match="unknown arguments: --chek"):
        make_cli_docs.main()


def test_a_folder_is_made_and_left_empty(tmp_path: Path) -> None:
    checks.require_writable(tmp_path / "a" / "b")
    assert list((tmp_path / "a" / "b").iterdir()) == []


@pytest.mark.parametrize("seeds", [1, 4, 9])
def test_the_fewest_resamples_give_all_tables(seeds: int) -> None:
    rng = np.random.default_rng(seeds)
    items = tuple(Item(f"i{i // 4}", "a dog " * (1 + i % 3), ("a cat",), str(i)) for i in range(160))
    ratings = flickr8k_steps.Rated(
        items, np.arange(160), rng.integers(1, 5, 160).astype(np.float64), "flickr8k-expert/made/up"
    )

    def networks(count: int) -> list[Grounded]:
        vectors = rng.uniform(0.1, 0.9, (count, 2, 160, 9))
        return [Grounded(candidate, references, np.full(160, 5)) for candidate, references in vectors]

    def reo_columns(count: int) -> list[dict[str, np.ndarray]]:
        names = ("reo-relevance", "reo-extraness", "reo-omission")
        return [{name: rng.normal(size=160) for name in names} for _ in range(count)]

    joined = seeds // flickr8k_steps.GROUP
    reo = {"": reo_columns(seeds), ", ensemble": reo_columns(joined), ", merged": reo_columns(joined)}
    text = {name: rng.normal(size=160) for name in flickr8k_steps.TEXT}
    result = reproduce_flickr8k_grid.report(ratings, networks(seeds), networks(joined), reo, text, 100)
    metrics = len(result["intervals"])
    assert len(result["comparison"]["pairs"]) == metrics * (metrics - 1) // 2
    recalls = {way: {f"r@{k}": 1.0 for k in (1, 5, 10)} for way in ("image_to_text", "text_to_image")}
    shown = tables({"seeds": list(range(seeds)), "recall": {"seed0": recalls}, "expert": result})
    assert "reo-relevance over SPICE" in shown or "SPICE over reo-relevance" in shown
