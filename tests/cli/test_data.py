from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from capbench.core.files import read_json
from capbench.datasets.base import load_dataset
from capbench.datasets.catalog import catalog
from capbench.datasets.root import find_root
from tests.conftest import Ran

Call = Callable[..., Ran]

CSV = """image,candidate,reference_1,reference_2,rating
one.jpg,a red kite over a hill,a kite in the sky,someone flies a kite,4
one.jpg,two boats,a kite in the sky,someone flies a kite,1
two.jpg,a boat on a lake,a small boat on the water,a lake with one boat,5
"""


@pytest.fixture(autouse=True)
def _own_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CAPBENCH_HOME", str(tmp_path / "home"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A data folder with a part of Flickr8k whose counts are wrong."""
    (tmp_path / "data" / "flickr8k").mkdir(parents=True)
    (tmp_path / "data" / "flickr8k" / "ExpertAnnotations.txt").write_text("a.jpg\tb.jpg#0\t1\t2\t1\n")
    return tmp_path / "data"


def test_list_names_the_sample_first_and_counts_every_data_set(capbench: Call) -> None:
    ran = capbench("data", "info")
    assert ran.code == 0
    assert ran.out.startswith("data: embedded synthetic sample")
    assert re.search(r"(?m)^flickr8k-expert +\d+ expert +research +yes", ran.out)
    found = {entry["name"]: entry for entry in json.loads(capbench("data", "info", "--json").out)}
    for name in ("flickr8k-expert", "flickr8k-crowdflower", "composite", "pascal-50s", "nocaps"):
        assert found[name]["state"] == "here", found[name]
        assert found[name]["items"] > 0
    assert found["coco"]["kind"] == "captions"


def test_list_tells_what_is_missing_and_where_to_look(capbench: Call, folder: Path) -> None:
    ran = capbench("data", "info", "--data", folder)
    assert re.search(r"(?m)^flickr8k-expert +17,466 ratings +research +info flickr8k-expert", ran.out)
    assert re.search(r"(?m)^context-sighted +986 ratings +MIT +download context-sighted", ran.out)
    assert "capbench data info DATASET" in ran.err


def test_list_shows_a_damaged_file_and_goes_on(capbench: Call, folder: Path) -> None:
    (folder / "flickr8k" / "Flickr8k.token.txt").write_text("nonsense\n")
    ran = capbench("data", "info", "--data", folder)
    assert ran.code == 0
    assert "damaged" in ran.out
    assert "warning: flickr8k-expert:" in ran.err


def test_info_tells_terms_dead_links_and_protocols(capbench: Call) -> None:
    ran = capbench("data", "info", "composite")
    assert ran.code == 0
    for text in (
        "composite/composite_11985.tsv",
        "terms:",
        "manual download:",
        "dead link:",
        "default protocol: composite/",
    ):
        assert text in ran.out
    found = json.loads(capbench("data", "info", "composite", "--json").out)
    assert found["sources"]["karpathy"]["dead"]
    assert found["protocols"]["default"].startswith("composite/")


def test_variance_is_split_between_sources_and_images(capbench: Call) -> None:
    ran = capbench("data", "info", "composite", "--variance", "--json")
    assert ran.code == 0, ran.err
    rows = {(row["items"], row["aspect"]): row for row in json.loads(ran.out)}
    # Selections that differ in references only are listed once.
    assert {items for items, _ in rows} == {"any-candidate-out", "no-human"}
    row = rows["any-candidate-out", "correctness"]
    (judgements,) = load_dataset("composite")(find_root("sample")).load(
        load_dataset("composite").selections["same-text-out"]
    )
    human = judgements.ratings["correctness"].value
    of_source: dict[str, list[float]] = {}
    for item, value in zip(judgements.items, human, strict=True):
        of_source.setdefault(item.system, []).append(value)
    between = sum(len(values) * (np.mean(values) - human.mean()) ** 2 for values in of_source.values())
    assert row["sources"] == pytest.approx(between / ((human - human.mean()) ** 2).sum())
    assert row["sources"] + row["images"] + row["within"] == pytest.approx(1)
    assert (row["n_sources"], rows["no-human", "correctness"]["n_sources"]) == (3, 2)
    shown = capbench("data", "info", "composite", "--variance").out
    assert f"{100 * row['sources']:.1f} ({100 * row['sources_by_chance']:.1f})" in shown


def test_variance_of_preferences_is_refused_and_of_all_data_sets_leaves_them_out(capbench: Call, folder: Path) -> None:
    ran = capbench("data", "info", "pascal-50s", "--variance")
    assert ran.code == 2
    assert (ran.failure.code, ran.failure.value) == ("unsupported", "pascal-50s")
    both = capbench("data", "info", "--variance", "--verify")
    assert (both.code, both.failure.value) == (2, "--verify")
    none = capbench("data", "info", "--variance", "--data", folder, "--json")  # nothing there can be loaded
    assert (none.code, json.loads(none.out)) == (0, [])
    assert capbench("data", "info", "--variance", "--data", folder).out == ""


def test_an_unknown_data_set_is_a_usage_error_with_a_suggestion(capbench: Call) -> None:
    ran = capbench("data", "info", "composit")
    assert ran.code == 2
    assert (ran.failure.code, ran.failure.value) == ("unknown-name", "composit")
    assert "'composite'" in str(ran.failure.hint)


def test_verify_tells_wrong_counts_and_missing_files(capbench: Call, folder: Path) -> None:
    ran = capbench("data", "info", "--verify", "flickr8k-expert", "--data", folder)
    assert ran.code == 1
    assert "1 pairs, expected 5,822" in ran.out
    assert "flickr8k/Flickr8k.token.txt" in ran.out
    found = json.loads(capbench("data", "info", "--verify", "flickr8k-expert", "--data", folder, "--json").out)
    states = {entry["path"]: entry["state"] for entry in found["datasets"]["flickr8k-expert"]}
    assert states["flickr8k/ExpertAnnotations.txt"] == "wrong"
    assert states["flickr8k/Flickr8k.token.txt"] == "missing"
    assert not found["ok"]


def test_download_says_how_to_get_what_has_no_open_link(capbench: Call, tmp_path: Path) -> None:
    ran = capbench("data", "download", "flickr8k-expert", "--data", tmp_path)
    assert ran.code == 2
    assert "link is dead" in ran.err
    assert "Manually:" in ran.err
    ran = capbench("data", "download", "results_20130124.token", "--data", tmp_path)
    assert ran.failure.code == "download-failed"
    assert "through a form" in ran.err


def test_download_without_a_name_lists_the_open_sources(capbench: Call) -> None:
    ran = capbench("data", "download")
    assert ran.code == 0
    named = [line.partition(":")[0] for line in ran.out.splitlines()]
    listed = json.loads(capbench("data", "download", "--json").out)
    assert named == list(listed)
    known = yaml.safe_load(Path("capbench/datasets/catalog.yaml").read_text(encoding="utf-8"))
    of_files = {entry["source"] for entry in known["files"].values() if "url" in entry}
    is_open = {name: "url" in source and "dead" not in source for name, source in known["sources"].items()}
    assert named == [name for name, listed in is_open.items() if listed or name in of_files]
    for name, source in listed.items():
        assert source["terms"] == known["sources"][name]["terms"]
        assert source["files"] == sum(entry["source"] == name for entry in known["files"].values())
    assert capbench("data", "download", "--url", "http://example.org/a.zip").failure.code == "missing-option"


def test_several_open_sets_are_fetched_after_their_size_terms_and_checksums(
    capbench: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched: list[str] = []

    def fetch(url: str, target: Path, *, sha256: str, **_how: object) -> bool:
        fetched.append(url)
        assert sha256 == catalog().files[target.relative_to(tmp_path).as_posix()].sha256.value  # type: ignore[union-attr]
        target.parent.mkdir(exist_ok=True)
        target.write_text("{}")
        return True

    monkeypatch.setattr("capbench.core.download.fetch", fetch)
    ran = capbench("data", "download", "valse", "context-blv", "valse", "--data", tmp_path)
    assert ran.code == 1  # the counts of the empty files are wrong
    assert len(fetched) == len(set(fetched)) == 11
    assert all(re.match(r"https://raw\.githubusercontent\.com/[\w-]+/[\w-]+/[0-9a-f]{40}/", url) for url in fetched)
    before = ran.err.partition("warning")[0]
    assert "VALSE, ten parts: 10 files, 5.5 MB; terms: MIT" in before
    assert f"  valse/plurals.json: SHA-256 {catalog().files['valse/plurals.json'].sha256.value}" in before  # type: ignore[union-attr]
    found = json.loads(capbench("data", "download", "--open", "--data", tmp_path, "--json").out)
    assert "sugarcrepe/swap_obj.json" in found["written"]
    assert "iiw/IIW-400.jsonl" in found["written"]
    assert "context_blv/sighted_data_criticaltrials.csv" in found["written"]
    assert not any(path.startswith(("valse/", "pascal50s/", "flickr8k/")) for path in found["written"])


def test_download_does_not_write_into_the_sample(capbench: Call) -> None:
    ran = capbench("data", "download", "machine-smurf")
    assert ran.code == 2
    assert "--data DIR" in ran.err


def test_import_then_list_info_verify_and_use_the_judgements(capbench: Call, tmp_path: Path, folder: Path) -> None:
    file = tmp_path / "mine.csv"
    file.write_text(CSV)
    ran = capbench("data", "import", file, "--name", "mine", "--scale", "1-5", "--data", folder)
    assert ran.code == 0, ran.err
    assert "3 ratings of 3 items" in ran.out
    assert "default protocol: mine/as-given/tau-b" in ran.out
    # What is printed finds the judgements as it stands.
    (following,) = [line for line in ran.out.splitlines() if line.startswith("next: capbench ")]
    assert capbench(*shlex.split(following)[2:]).code == 0
    assert (
        "default protocol: mine/as-given/tau-b" in capbench("data", "info", "--protocols", "mine", "--data", folder).out
    )
    found = {entry["name"]: entry for entry in json.loads(capbench("data", "info", "--data", folder, "--json").out)}
    assert found["mine"]["state"] == "here"
    assert found["mine"]["human"] == {"rating": 3}
    assert "imported from mine.csv" in capbench("data", "info", "mine", "--data", folder).out
    assert capbench("data", "info", "--verify", "mine", "--data", folder).code == 0
    stored = folder / "imported" / "mine" / "judgements.jsonl"
    stored.write_text(stored.read_text().replace("two boats", "three boats"))
    ran = capbench("data", "info", "--verify", "mine", "--data", folder)
    assert ran.code == 1
    assert "differs" in ran.out


def test_import_reports_one_line_for_each_problem_and_json_reports_all(capbench: Call, tmp_path: Path) -> None:
    file = tmp_path / "bad.csv"
    file.write_text(CSV.replace(",4\n", ",good\n").replace("two boats", ""))
    ran = capbench("data", "import", file, "--name", "bad")
    assert ran.code == 2
    assert len(ran.err.splitlines()) == 2
    assert (ran.failure.code, ran.failure.path, ran.failure.row) == ("not-a-number", str(file), 2)
    assert "; 1 more problem:" in ran.err
    ran = capbench("data", "import", file, "--name", "bad", "--json")
    assert ran.code == 2
    found: dict[str, Any] = json.loads(ran.out)
    assert [problem["row"] for problem in found["problems"]] == [2, 3]
    assert not (tmp_path / "home").exists()


def test_hints_for_foreign_columns_keep_the_columns_of_the_command_and_the_references(
    capbench: Call, tmp_path: Path
) -> None:
    names = ["Photo", "System output", "Human caption A", "Human caption B", "Quality (1-5)"]
    lines = CSV.splitlines()
    file = tmp_path / "odd.csv"
    file.write_text("\n".join([",".join(names), *lines[1:]]) + "\n")
    command = ["correlate", "-d", file, "-m", "bleu-1"]
    for given in ([], ["--columns", "image=Photo", "--columns", "candidate=System output"]):
        ran = capbench(*command, *given)
        assert ran.code == 2
        (mapping,) = shlex.split(re.search(r"--columns (\S+=.*)\.$", ran.err.strip())[1])  # type: ignore[index]
        fields = dict(part.split("=") for part in mapping.split(","))
        assert fields == {
            "image": "Photo" if given else "COLUMN",
            "candidate": "System output" if given else "COLUMN",
            "rating": "COLUMN",
        }
    columns = "image=Photo,candidate=System output,rating=Quality (1-5)"
    ran = capbench(*command, "--columns", f"{columns},reference_1={names[2]},reference_2={names[3]}")
    assert ran.code == 0, ran.err


@pytest.mark.real_data
def test_variances_of_published_data_sets_are_the_stored_ones(capbench: Call, real_data: Path) -> None:
    stored = read_json(Path(__file__).parents[2] / "results/within-source/variance.json")
    ran = capbench("data", "info", "composite", "thumb", "nebula", "--variance", "--data", real_data, "--json")
    rows = json.loads(ran.out)
    assert rows
    for row in rows:
        (same,) = (one for one in stored if all(one[key] == row[key] for key in ("dataset", "items", "aspect")))
        assert row.pop("source_means") == pytest.approx(same.pop("source_means"))
        assert row == pytest.approx(same)


@pytest.mark.real_data
def test_published_files_are_all_right_and_counted(capbench: Call, real_data: Path) -> None:
    ran = capbench("data", "info", "--verify", "--data", real_data)
    assert ran.code == 0, ran.out
    found = {entry["name"]: entry for entry in json.loads(capbench("data", "info", "--data", real_data, "--json").out)}
    assert found["flickr8k-expert"]["items"] == 5664
    assert found["flickr8k-expert"]["human"] == {"expert": 16992}
    assert found["flickr8k-crowdflower"]["items"] == 47830
    assert found["composite"]["items"] == 11985
    assert found["pascal-50s"]["items"] == 8000
