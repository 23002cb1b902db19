"""One group of a data set (``composite@8k``) in every command, and what commands on one protocol say first."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import scipy.stats

from capbench.datasets.opening import open_dataset
from capbench.datasets.root import find_root
from capbench.metrics.scan import encode
from capbench.studies.results import load_result
from tests.conftest import Ran
from tests.metrics.scan.models import make_files

ID = "composite@8k/any-candidate-out/correctness-tau-c"
PRINTED = "composite:1@8k/any-candidate-out/correctness-tau-c"
LENGTH = "tests.studies.toys:Length"
KEPT = "Composite, 8k: 75 of 210 items of Composite, 25 of 70 images"


def test_its_number_is_the_statistic_of_its_ratings_alone(capbench: Callable[..., Ran]) -> None:
    found = json.loads(capbench("correlate", "-d", "composite@8k", "-m", LENGTH, "--json").out)
    (judgements,) = (dataset := open_dataset("composite", find_root("sample"))).load(dataset.protocol().items)
    rated = judgements.ratings["correctness"]
    own = [k for k, i in enumerate(rated.item.tolist()) if judgements.items[i].group == "8k"]
    lengths = [len(judgements.items[rated.item[k]].candidate.split()) for k in own]
    expected = scipy.stats.kendalltau(lengths, rated.value[own], variant="c").statistic
    cell = next(cell for cell in found["cells"] if cell["column"] == "length")
    assert cell["value"] == pytest.approx(expected, abs=1e-12)
    assert (cell["group"], cell["n"], cell["protocol"]) == ("", 75, ID)
    assert found["protocols"][0]["groups"] == []


@pytest.mark.parametrize("protocol", ["same-text-out/correctness-tau-c", "one-reference/correctness-tau-c"])
def test_a_group_has_its_number_in_the_table_of_the_whole_data_set(capbench: Callable[..., Ran], protocol: str) -> None:
    both = ("-p", f"composite@8k/{protocol}", "-p", f"composite/{protocol}")
    flags = ("-m", "rouge-l", "-m", "cider", "--json")
    cells = json.loads(capbench("correlate", *both, *flags).out)["cells"]
    values = {(c["protocol"].partition("/")[0], c["group"], c["column"]): c["value"] for c in cells}
    for column in ("rouge-l", "cider"):  # document frequencies are those of the whole data set
        assert values["composite@8k", "", column] == pytest.approx(values["composite", "8k", column], abs=1e-12)


def test_a_study_file_names_groups_and_its_files_hold_them(capbench: Callable[..., Ran], tmp_path: Path) -> None:
    study = tmp_path / "study.yaml"
    study.write_text(
        "schema: 1\nname: parts\nprotocols: [composite@8k, composite, pascal-50s@MM, pascal-50s]\n"
        f"metrics: [bleu-1, rouge-l, {LENGTH}]\nbootstrap: 100\ncompare: bootstrap\n"
    )
    ran = capbench("correlate", study, "--out", tmp_path / "out")
    assert ran.code == 0, ran.err
    result = load_result(tmp_path / "out" / "results.json")
    assert [info.dataset for info in result.protocols] == ["composite@8k", "composite", "pascal-50s@MM", "pascal-50s"]
    assert [info.dataset_title for info in result.protocols][::2] == ["Composite, 8k", "PASCAL-50S, MM"]
    part, whole = (result.cell(f"{d}/random-5-refs/direct-strict", "bleu-1", g) for d, g in PASCAL)
    assert part is not None
    assert whole is not None
    assert (part.value, part.n) == (whole.value, whole.n)
    tests = result.comparison(ID)
    assert tests is not None
    assert tests.units == 25
    for name in ("results.md", "results.tex"):
        assert "Composite, 8k" in (tmp_path / "out" / name).read_text(encoding="utf-8")
    assert ID in (tmp_path / "out" / "results.csv").read_text(encoding="utf-8")


PASCAL = (("pascal-50s@MM", ""), ("pascal-50s", "MM"))


def test_protocols_without_judgements_in_the_group_are_listed_and_the_others_ranked(
    capbench: Callable[..., Ran],
) -> None:
    ran = capbench("correlate", "-d", "flickr8k-swaps@object", "--all-protocols", "-m", "bleu-1", "-m", LENGTH)
    assert ran.code == 1
    assert "flickr8k-swaps@object/changed-reference-out/attribute-strict" in ran.out
    assert "Flickr8k swaps, object has no 'attribute' judgement" in ran.out
    assert "component" in ran.out
    alone = capbench("correlate", "-p", "flickr8k-swaps@object/attribute-strict", "-m", "bleu-1")
    assert alone.code == 2
    assert "has no 'attribute' judgement. Choose another statistic or group." in alone.err


def test_a_users_file_is_named_with_its_folder_group_and_protocol(capbench: Callable[..., Ran], tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    rows = [f"{i}.jpg,{'a kite ' * (i % 4 + 1)},a red kite,{i % 5},{'in' if i < 6 else 'out'}" for i in range(12)]
    path.write_text("image,candidate,reference_1,rating,group\n" + "\n".join(rows) + "\n", encoding="utf-8")
    ran = capbench("correlate", "-d", f"{path}@in", "-p", "as-given/tau-c", "-m", LENGTH, "--json")
    assert ran.code == 0, ran.err
    (info,) = json.loads(ran.out)["protocols"]
    assert (info["id"], info["n_items"]) == ("mine.csv@in/as-given/tau-c", 6)
    assert "6 of 12 items" in info["notes"][0]
    whole = capbench("correlate", "-p", f"{path}/as-given/tau-c", "-m", LENGTH, "--json")
    assert json.loads(whole.out)["protocols"][0]["n_items"] == 12
    assert (
        capbench("compare", LENGTH, "bleu-1", "-d", f"{path}@in", "--bootstrap", "100", "--permutations", "100").code
        == 0
    )


@pytest.mark.parametrize("named", [("-d", "composite@8k"), ("-d", "composite", "-p", ID)])
def test_compare_and_power_take_a_group_and_say_what_is_kept(
    named: tuple[str, ...], capbench: Callable[..., Ran]
) -> None:
    for command in (("compare", "--permutations", "100"), ("compare", "--power")):
        ran = capbench(*command, "rouge-l", "bleu-1", *named, "--bootstrap", "100", "--details")
        assert ran.code == 0, ran.err
        assert f"{PRINTED}: 75 " in ran.out
        assert KEPT in ran.out
        found = json.loads(capbench(*command, "rouge-l", "bleu-1", *named, "--bootstrap", "100", "--json").out)
        assert KEPT in found.get("notes", ()) or KEPT in found["protocols"][0]["notes"]


def test_examples_references_score_and_figures_take_a_group(capbench: Callable[..., Ran], tmp_path: Path) -> None:
    ran = capbench("explore", "examples", "-d", "composite@8k", "-m", "rouge-l", "--json")
    assert ran.code == 0, ran.err
    assert json.loads(ran.out)["protocol"] == ID
    assert KEPT in ran.err
    few = ("--counts", "1,2", "--draws", "2", "--json")
    ran = capbench("correlate", "--references-curve", "-d", "composite@8k", "-m", "rouge-l", *few)
    assert ran.code == 0, ran.err
    assert json.loads(ran.out)["protocol"] == ID
    assert json.loads(ran.out)["n_items"] == 75
    ran = capbench("score", "-d", "composite@8k", "-m", "rouge-l", "--json")
    assert json.loads(ran.out)["n"] == 75
    assert KEPT in ran.err
    for figure in ("ratings", "score-groups"):
        ran = capbench("figure", figure, "rouge-l", "-d", "composite@8k", "--out", tmp_path / "f.svg", "--json")
        assert json.loads(ran.out)["protocol"] == ID
        assert KEPT in ran.err
    flags = ("-p", ID, "-d", "composite", "--bootstrap", "100", "-o", tmp_path / "g.svg")
    ran = capbench("figure", "forest", "rouge-l", "bleu-1", *flags)
    assert ran.code == 0, ran.err
    assert KEPT in ran.err
    assert PRINTED in (tmp_path / "g.svg").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "command",
    [
        ("correlate", "-m", "bleu-1"),
        ("compare", "bleu-1", "rouge-l"),
        ("explore", "examples", "-m", "bleu-1"),
        ("score", "-m", "bleu-1"),
        ("data", "info", "--protocols"),
    ],
)
def test_an_unknown_group_is_one_line_with_the_groups_there_are(
    command: tuple[str, ...], capbench: Callable[..., Ran]
) -> None:
    name = ("composite@80k",) if command[0] == "data" else ("-d", "composite@80k")
    ran = capbench(*command, *name)
    assert ran.code == 2
    (line,) = ran.err.splitlines()
    assert line == "error: composite has no group '80k'. Did you mean '8k'? Choices: 8k, 30k, coco."
    assert ran.out == ""


def test_features_of_one_group_say_that_it_can_be_asked_for(capbench: Callable[..., Ran], tmp_path: Path) -> None:
    encode._open.clear()
    dataset = open_dataset("composite@8k", find_root("sample"))
    images = [item.image for item in dataset.load(dataset.protocol().items)[0].items]
    made = make_files(tmp_path, images)
    given = ("--features", made.features, "--model", made.model)
    ran = capbench("correlate", "-d", "composite", "-m", "rrs", "-m", "rouge-l", *given)
    assert ran.code == 1, ran.err
    assert ": request composite@8k." in ran.out
    asked = capbench("correlate", "-d", "composite@8k", "-m", "rrs", *given, "--json")
    (alone,) = json.loads(asked.out)["cells"]
    assert alone["n"] == 75
    for more in ((), ("-m", "rouge-l")):  # the study fills that group's cell, with other metrics or without
        whole = json.loads(capbench("correlate", "-d", "composite", "-m", "rrs", *more, *given, "--json").out)
        (cell,) = [cell for cell in whole["cells"] if cell["column"] == "rrs"]
        assert (cell["group"], cell["n"], cell["value"]) == ("8k", 75, alone["value"])
        assert "45 of 70 images" in whole["missing"][0]["reason"]  # also when others' scores are in the cache
        assert whole["protocols"][0]["groups"] == (["8k", "30k", "coco"] if more else ["8k"])
        assert [missing["column"] for missing in whole["missing"]] == ["rrs"]
    sure = ("--bootstrap", "200", "--json")
    (alone,) = json.loads(capbench("correlate", "-d", "composite@8k", "-m", "rrs", *given, *sure).out)["cells"]
    (cell,) = json.loads(capbench("correlate", "-d", "composite", "-m", "rrs", *given, *sure).out)["cells"]
    assert cell == alone | {"group": "8k", "protocol": cell["protocol"]}
    assert cell["low"] < cell["value"] < cell["high"]
    failed = capbench("compare", "rrs", "rouge-l", "-d", "composite", *given)
    assert failed.code == 2
    assert failed.err.splitlines()[-1].endswith(": request composite@8k.")
    (tmp_path / "few").mkdir()
    few = make_files(tmp_path / "few", images[:-3])
    encode._open.clear()
    ran = capbench("correlate", "-d", "composite", "-m", "rrs", "-m", "rouge-l", "--features", few.features, *given[2:])
    assert "under the same ids." in ran.out
    assert "ask for" not in ran.out


ONE_PROTOCOL = [
    ("compare", "{m}", "rouge-l"),
    ("figure", "score-groups", "{m}"),
    ("explore", "examples", "-m", "{m}"),
    ("correlate", "--references-curve", "-m", "{m}"),
]


@pytest.mark.parametrize("command", ONE_PROTOCOL)
def test_of_several_errors_the_first_is_told_folder_metric_data_set_protocol(
    command: tuple[str, ...], capbench: Callable[..., Ran]
) -> None:
    def error(metric: str, *flags: str) -> str:
        ran = capbench(*(part.format(m=metric) for part in command), *flags)
        assert ran.code == 2
        assert ran.out == ""
        return ran.err.splitlines()[-1]

    folder, name, protocol = ("--data", "nowhere"), ("-d", "composit"), ("-p", "tau-x")
    assert "nowhere: the data folder from --data does not exist" in error("bleux", *folder, *name, *protocol)
    assert "unknown metric 'bleux'" in error("bleux", *name, *protocol)
    assert "unknown data set 'composit'" in error("bleu-1", *name, *protocol)
    assert "unknown items 'tau-x' of composite" in error("bleu-1", "-d", "composite", *protocol)


@pytest.mark.real_data
def test_composites_flickr8k_third_has_its_published_judgements_numbers(
    real_data: Path, capbench: Callable[..., Ran]
) -> None:
    other = "composite@8k/same-text-out/correctness-tau-c"
    flags = ("-p", ID, "-p", other, "-m", "cider", "-m", "rouge-l", "--data", real_data, "--json")
    ran = capbench("correlate", *flags)
    assert ran.code == 0, ran.err
    found = {(cell["protocol"], cell["column"]): round(cell["value"], 4) for cell in json.loads(ran.out)["cells"]}
    assert (found[ID, "cider"], found[other, "cider"], found[other, "rouge-l"]) == (0.3130, 0.3179, 0.2327)
