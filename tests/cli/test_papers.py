"""``capbench papers``: the list, runs that go on where they were, failures that stop nothing, and the page."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from capbench.cli import paper_runs
from capbench.core.files import lock
from capbench.studies import papers as paper_items
from tests.conftest import Ran
from tests.reports.page.world import make_result

Run = Callable[..., Ran]
Calls = list[list[str]]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """Stands in for the processes of commands: notes them, writes what --out names, fails for REO; and for the real
    judgements, which have the images that studies name."""
    noted: Calls = []

    def call(arguments: Sequence[str]) -> tuple[int, str, list[str]]:
        noted.append(list(arguments))
        out = Path(arguments[arguments.index("--out") + 1])
        if out.suffix:
            out.parent.mkdir(parents=True, exist_ok=True)
            out.write_text("picture")
        if "reo-figure4" in arguments:
            return 2, "", ["data: here", "error: no such thing"]
        return 0, f"printed by {arguments[0]}\n", ["data: here"]

    monkeypatch.setattr(paper_runs, "call", call)
    monkeypatch.setattr(paper_items, "_absent_image", lambda plan, root: {})
    return noted


@pytest.mark.parametrize("columns", ["60", "250"])
def test_the_list_has_rows_and_a_next_command_for_each_paper_and_is_80_columns_wide(
    capbench: Run, monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    ran = capbench("papers", "--data", "sample")
    assert ran.code == 0, ran.err
    lines = ran.out.splitlines()
    assert "embedded synthetic sample" in lines[0]
    assert max(map(len, lines[1:])) <= 80
    words = " ".join(ran.out.split())
    entries = json.loads(capbench("papers", "--data", "sample", "--json").out)
    heads = {line.partition(":")[0]: line for line in lines if "; next:" in line}
    assert list(heads) == list(dict.fromkeys(entry["paper"] for entry in entries))
    for paper, line in heads.items():
        of_paper = [entry for entry in entries if entry["paper"] == paper]
        available = sum(len(entry["rows"]) for entry in of_paper if entry["state"] != "waits")
        total = sum(len(entry["rows"]) + len(entry["waiting"]) for entry in of_paper)
        command = f"capbench papers {paper.lower()} --data sample"
        assert line.startswith(f"{paper}: {available} of {total} rows available; next:")
        assert line.endswith(command) or lines[lines.index(line) + 1] == f"  {command}"
    # Every item is there, with its whole title.
    assert all(f"{entry['item']} " in words for entry in entries)
    assert all(entry["title"] in words for entry in entries)
    assert "tiger-figure8 2 of 3 Figure 8: scores on the human scale, minus the ratings" in words
    assert "ours, after the paper" in words
    assert words.count("FAIEr, Table 2: HM-MSCOCO") == 1
    # One entry for all rows that require the same kind of model.
    assert words.count("a FAIEr model") == 1
    assert "FAIEr-1 ref, FAIEr-4 ref" in words.partition("a FAIEr model")[2]


def test_the_next_command_repeats_the_inputs_and_without_data_it_lists_data_sets(
    capbench: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = ("--data", "sample", "--option", "cider.sigma=5", "--without", "spice")
    words = " ".join(capbench("papers", *given).out.replace("\\\n", "").split())
    assert words.count(f"next: capbench papers nneval {' '.join(given)}") == 1
    monkeypatch.delenv("CAPBENCH_DATA", raising=False)
    lines = capbench("papers").out.splitlines()
    assert [line.partition("next: ")[2] for line in lines if "; next: " in line] == ["capbench data info"] * 5


def test_the_list_as_json_is_whole(capbench: Run) -> None:
    ran = capbench("papers", "--data", "sample", "--json")
    assert ran.code == 0, ran.err
    entries = {entry["item"]: entry for entry in json.loads(ran.out)}
    assert len(entries) == 28
    assert entries["tiger-figure7"]["stand_in"].startswith("ours, after the paper: ")
    assert entries["tiger-table1"]["stand_in"] is None
    assert entries["tiger-table3"]["state"] == "waits"
    assert entries["reo-table1"]["never"]


def test_what_is_given_to_a_row_that_there_is_not_is_refused(capbench: Run) -> None:
    ran = capbench("papers", "tiger-figure8", "--data", "sample", "--model", "tigre=a.pt", "--dry-run")
    assert ran.code == 2
    assert (ran.failure.code, ran.failure.value) == ("unknown-name", "tigre")


def test_what_is_given_to_a_row_of_other_items_is_told_and_left_out(capbench: Run) -> None:
    given = ("--data", "sample", "--model", "nneval=n.npz", "--dry-run")
    ran = capbench("papers", "tiger-figure8", *given)
    assert ran.code == 0, ran.err
    assert "--model nneval=n.npz has no effect" in ran.err
    assert "nneval" not in ran.out


@pytest.mark.parametrize("option", ["tigre.tau=2", "taau=2"])
def test_an_option_that_no_item_has_is_refused(capbench: Run, option: str) -> None:
    ran = capbench("papers", "tiger-figure8", "--data", "sample", "--option", option, "--dry-run")
    assert ran.code == 2
    assert ran.failure.code in ("unknown-name", "unknown-option")
    assert f"--option {option}: " in ran.err


def test_an_option_goes_to_the_items_that_have_it(capbench: Run) -> None:
    given = ("--data", "sample", "--option", "sigma=8", "--dry-run")
    ran = capbench("papers", "nneval-table1", "tiger-figure6", *given)
    assert ran.code == 0, ran.err
    by_item = ran.out.split("# ")
    assert [text.split(":")[0] for text in by_item if "--option sigma=8" in text] == ["nneval-table1"]
    ran = capbench("papers", "tiger-figure6", *given)
    assert ran.code == 0, ran.err
    assert "--option sigma=8 has no effect" in ran.err


def test_a_dry_run_says_what_how_long_and_by_which_commands(capbench: Run, calls: Calls) -> None:
    ran = capbench("papers", "tiger-figure8", "tiger-table3", "--data", "sample", "--dry-run")
    assert ran.code == 0, ran.err
    assert not calls
    assert "2 items: 1 to run, about 40 seconds, 1 with missing requirements" in ran.err
    assert "capbench figure score-groups meteor cider -d composite -p same-text-out/correctness-tau-c" in ran.out
    assert "# tiger-table3: requirements missing" in ran.out
    assert not Path("results").exists()


def test_what_is_finished_is_not_done_again_until_something_changes(capbench: Run, calls: Calls) -> None:
    arguments = ("papers", "tiger-figure8", "--data", "sample", "--out", "o")
    ran = capbench(*arguments)
    assert ran.code == 1, ran.err  # TIGEr's row waits
    assert len(calls) == 2
    printed = Path("o/tiger-figure8/output.txt").read_text().splitlines()
    assert printed.count("printed by figure") == 2
    assert [line.split(" -d ")[1].split()[0] for line in printed if line.startswith("$ capbench figure")] == [
        "composite",
        "flickr8k-expert",
    ]
    again = capbench(*arguments)
    assert again.code == 1
    assert len(calls) == 2
    assert "1 already finished" in again.err
    assert capbench(*arguments, "--again").code == 1
    assert len(calls) == 4
    Path("o/tiger-figure8/composite.png").unlink()
    capbench(*arguments)
    assert len(calls) == 6
    capbench(*arguments, "--no-cache")
    assert len(calls) == 8


def test_features_and_models_reach_the_commands_that_have_a_use_for_them(capbench: Run, calls: Calls) -> None:
    for name in ("a.h5", "n.npz"):
        Path(name).write_bytes(b"")
    given = ("--features", "faier=a.h5", "--model", "nneval=n.npz", "--option", "cider.sigma=5")
    for name in ("nneval-figure4", "faier-figure5"):
        capbench("papers", name, "--data", "sample", "--out", "o", *given[2:] if name[0] == "n" else given[:2])
    nneval, faier = calls
    assert "--features" not in nneval
    assert nneval[nneval.index("--model") + 1] == "nneval=n.npz"
    assert nneval[nneval.index("--option") + 1] == "cider.sigma=5"
    assert faier[faier.index("--features") + 1] == "faier=a.h5"
    capbench("papers", "nneval-figure4", "--data", "sample", "--out", "o", *given[2:], "--features", "a.h5")
    assert len(calls) == 2  # NNEval looks at no image: nothing changed for it


def test_one_that_fails_stops_no_other_and_is_tried_again(capbench: Run, calls: Calls) -> None:
    arguments = ("papers", "reo-figure4", "tiger-figure8", "nneval-figure4", "--data", "sample", "--out", "o", "--json")
    ran = capbench(*arguments)
    assert ran.code == 2
    assert "error: 1 of 3 failed: reo-figure4" in ran.err
    runs = {run["item"]: run for run in json.loads(ran.out)}
    assert runs["reo-figure4"]["state"] == "failed"
    assert runs["reo-figure4"]["error"] == "error: no such thing"
    assert runs["tiger-figure8"]["state"] == "in part"
    number = len(calls)
    assert capbench(*arguments).code == 2
    assert [words[:3] for words in calls[number:]] == [["explore", "examples", "reo-figure4"]]
    page = Path("o/index.md").read_text()
    assert "error: no such thing" in page


def test_a_command_that_crashes_is_no_item_that_waits(capbench: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = ["Traceback (most recent call last):", '  File "x.py", line 1', "AttributeError: no such thing"]
    monkeypatch.setattr(paper_runs, "call", lambda arguments: (1, "", lines))
    ran = capbench("papers", "reo-figure4", "--data", "sample", "--out", "o", "--json")
    assert ran.code == 2
    (run,) = json.loads(ran.out)
    assert (run["state"], run["error"]) == ("failed", "AttributeError: no such thing")


def test_a_metric_is_left_out_of_all_items_that_have_it(capbench: Run, calls: Calls) -> None:
    names = ("tiger-table1", "tiger-figure8", "nneval-figure4", "tiger-table3")
    without = ("--without", "spice", "--without", "meteor", "--without", "tiger.tiger")
    ran = capbench("papers", *names, *without, "--data", "sample", "--out", "o", "--dry-run")
    assert ran.code == 0, ran.err
    assert "tiger-table3 is left out" in ran.err
    lines = ran.out.splitlines()
    (table,) = [line for line in lines if line.startswith("capbench correlate tiger-table1")]
    assert "--without spice --without meteor --without tiger.tiger" in table
    (first, _) = [line for line in lines if line.startswith("capbench figure score-groups")]
    assert first.startswith("capbench figure score-groups cider -d composite")
    (captions,) = [line for line in lines if line.startswith("capbench explore examples nneval-figure4")]
    assert "--without spice --without meteor --out" in captions
    # Columns, and whole metrics by their name.
    ran = capbench("papers", "tiger-table1", "--without", "bleu", "--without", "RRS", "--data", "sample", "--dry-run")
    assert "--without bleu --without RRS" in ran.out
    ran = capbench("papers", "tiger-table1", "--without", "spicy", "--data", "sample")
    assert (ran.code, "'spice'" in ran.err) == (2, True)
    ran = capbench("papers", "tiger-table3", "--without", "spice", "--data", "sample", "--dry-run")
    assert (ran.code, "--without spice has no effect" in ran.err) == (0, True)
    ran = capbench("papers", "tiger-table3", "--without", "tiger", "--data", "sample")
    assert ran.failure.code == "too-few"


def test_the_table_of_runs_is_80_columns_wide_and_reasons_are_whole_below_it(capbench: Run, calls: Calls) -> None:
    names = ("nneval-figure4", "tiger-table3")
    ran = capbench("papers", *names, "--data", "sample", "--out", "o")
    runs = {run["item"]: run for run in json.loads(capbench("papers", *names, "--data", "sample", "--json").out)}
    lines = ran.out.splitlines()
    assert max(map(len, lines)) <= 80
    text = " ".join(ran.out.split())
    assert runs["tiger-table3"]["waiting"]
    for reason in runs["tiger-table3"]["waiting"].values():
        assert " ".join(reason.split()) in text


def test_what_requires_the_parses_of_a_metric_that_is_left_out_is_left_out_too(capbench: Run, calls: Calls) -> None:
    given = ("--data", "sample", "--out", "o", "--without", "spice", "--json")
    ran = capbench("papers", "nneval-table1", "nneval-figure4", *given)
    assert ran.code == 0, ran.err  # NNEval, whose weights are missing, would be an item in part
    assert [run["state"] for run in json.loads(ran.out)] == ["done", "done"]
    assert [command[command.index("--without") + 1] for command in calls] == ["spice", "spice"]


def test_the_page_shows_commands_pictures_stand_ins_and_earlier_items(capbench: Run, calls: Calls) -> None:
    capbench("papers", "tiger-figure8", "--data", "sample", "--out", "o")
    capbench("papers", "nneval-figure4", "tiger-table3", "--data", "sample", "--out", "o")
    page = Path("o/index.md").read_text()
    assert "![composite](tiger-figure8/composite.png)" in page
    assert "capbench figure score-groups meteor cider -d flickr8k-expert" in page
    assert "**ours, after the paper**: the figure's captions are a picture" in page
    assert "- missing: TIGEr: region features" in page
    assert page.index("tiger-figure8") < page.index("nneval-figure4")
    assert "Unpublished requirements" in page


def test_an_interruption_leaves_what_is_finished(capbench: Run, calls: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = paper_runs.call

    def call(arguments: Sequence[str]) -> tuple[int, str, list[str]]:
        if "nneval-figure4" in arguments:
            raise KeyboardInterrupt
        return whole(arguments)

    monkeypatch.setattr(paper_runs, "call", call)
    arguments = ("papers", "tiger-figure8", "nneval-figure4", "--data", "sample", "--out", "o")
    assert capbench(*arguments).code == 130
    assert Path("o/tiger-figure8/run.json").exists()
    monkeypatch.setattr(paper_runs, "call", whole)
    number = len(calls)
    capbench(*arguments)
    assert [words[:3] for words in calls[number:]] == [["explore", "examples", "nneval-figure4"]]


def test_an_interruption_says_where_it_was_and_leaves_a_page(
    capbench: Run, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = paper_runs.call

    def call(arguments: Sequence[str]) -> tuple[int, str, list[str]]:
        # The terminal interrupts the command alike, which ends with this code.
        return (130, "", []) if "nneval-figure4" in arguments else whole(arguments)

    monkeypatch.setattr(paper_runs, "call", call)
    ran = capbench("papers", "tiger-figure8", "nneval-figure4", "--data", "sample", "--out", "o")
    assert ran.code == 130
    last = ran.err.splitlines()[-1]
    assert last.startswith("interrupted in nneval-figure4, 1 of 2 left; o/index.md ")
    assert "![composite](tiger-figure8/composite.png)" in Path("o/index.md").read_text()


def test_a_command_that_was_killed_is_told_as_that(
    capbench: Run, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paper_runs, "call", lambda arguments: (-9, "", ["composite: 5 of 9 items"]))
    ran = capbench("papers", "nneval-figure4", "--data", "sample", "--out", "o", "--json")
    assert ran.code == 2
    (run,) = json.loads(ran.out)
    assert run["error"] == "ended by SIGKILL, possibly out of memory"


def test_two_runs_do_not_share_a_folder(capbench: Run, calls: Calls) -> None:
    arguments = ("papers", "nneval-figure4", "--data", "sample", "--out", "o")
    with lock("o/.papers"):
        ran = capbench(*arguments)
        assert ran.code == 2
        assert (ran.failure.code, ran.failure.path) == ("in-use", "o")
        assert not calls
        assert capbench(*arguments, "--dry-run").code == 0
    capbench(*arguments)
    assert len(calls) == 1


def test_what_a_command_found_to_be_missing_is_told_with_the_item(
    capbench: Run, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = ["data: here", "FAIEr-4 ref missing: f.h5 has no features of 1 of 1 images"]
    said.append("TIGEr missing: f.h5 has no features of 1 of 1 images")
    monkeypatch.setattr(paper_runs, "call", lambda arguments: (1, "", said))
    ran = capbench("papers", "faier-figure5", "--data", "sample", "--out", "o", "--json")
    (run,) = json.loads(ran.out)
    assert run["state"] == "in part"
    assert run["waiting"]["FAIEr-4 ref"] == "f.h5 has no features of 1 of 1 images"
    assert "- missing: TIGEr, FAIEr-4 ref: f.h5 has no features of 1 of 1 images\n" in Path("o/index.md").read_text()


def test_an_item_of_which_every_row_waits_in_the_end_waits(
    capbench: Run, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    for state, waiting in (("in part", ["METEOR"]), ("waits", ["METEOR", "CIDEr"])):
        said = [f"{title} missing: a reason" for title in waiting]
        monkeypatch.setattr(paper_runs, "call", lambda arguments, said=said: (1, "", said))
        ran = capbench("papers", "tiger-figure8", "--data", "sample", "--out", "o", "--again", "--json")
        (run,) = json.loads(ran.out)
        assert run["state"] == state


@pytest.mark.slow
def test_a_figure_is_made_on_the_sample(capbench: Run) -> None:
    ran = capbench("papers", "tiger-figure8", "--data", "sample", "--out", "o")
    assert ran.code == 1, ran.err
    assert Path("o/tiger-figure8/composite.png").read_bytes().startswith(b"\x89PNG")
    assert "mean distance" in Path("o/tiger-figure8/output.txt").read_text()
    assert "wrote o" in Path("o/tiger-figure8/log.txt").read_text()


@pytest.mark.parametrize("record", ['{"item": ', "[1]", "", '{"item": "nothing"}', "of another item"])
def test_a_record_that_cannot_be_read_is_made_anew(capbench: Run, calls: Calls, record: str) -> None:
    given = ("papers", "tiger-figure8", "--data", "sample", "--out", "made")
    assert capbench(*given).code == 1  # in part
    sound = Path("made/tiger-figure8/run.json")
    text = sound.read_text(encoding="utf-8")
    sound.write_text(text.replace("tiger-figure8", "nothing") if record == "of another item" else record)
    (Path("made") / "tiger-table2").mkdir()
    Path("made/tiger-table2/run.json").write_text(text)  # left there by hand
    calls.clear()
    ran = capbench(*given)
    assert ran.code == 1, ran.err
    assert calls
    assert json.loads(sound.read_text(encoding="utf-8"))["item"] == "tiger-figure8"
    assert "tiger-table2" not in Path("made/index.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("content", [None, b"", b"another picture"])
def test_a_finished_item_with_a_damaged_file_is_made_again(capbench: Run, calls: Calls, content: bytes | None) -> None:
    given = ("papers", "tiger-figure8", "--data", "sample", "--out", "made")
    capbench(*given)
    picture = Path("made/tiger-figure8/composite.png")
    sound = picture.read_bytes()
    record = json.loads(Path("made/tiger-figure8/run.json").read_text())
    assert record["checksums"]["composite.png"] == hashlib.sha256(sound).hexdigest()
    assert record["checksums"].keys() == set(record["files"])
    calls.clear()
    picture.unlink()
    if content is None:
        picture.mkdir()
    else:
        picture.write_bytes(content)
    # Another item leaves what is damaged off the page, and runs.
    ran = capbench("papers", "tiger-figure6", *given[2:])
    assert ran.code in (0, 1), ran.err
    assert '<a id="tiger-figure8">' not in Path("made/index.md").read_text()
    assert "composite.png" in ran.err
    calls.clear()
    if content is None:
        picture.rmdir()
    assert capbench(*given).code == 1
    assert len(calls) == 2
    assert picture.read_bytes() == sound
    assert '<a id="tiger-figure8">' in Path("made/index.md").read_text()
    calls.clear()
    assert capbench(*given).code == 1
    assert not calls


def test_emptied_results_are_made_again_and_stop_no_later_run(capbench: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    fails, made = [False], [0]
    results = Path("made/tiger-figure8/results.json")

    def call(arguments: Sequence[str]) -> tuple[int, str, list[str]]:
        if list(arguments[:2]) == ["figure", "report"]:
            return 0, "", []
        made[0] += 1
        if not fails[0]:
            results.write_text(make_result().model_dump_json())
        return 2 * fails[0], "", ["error: no memory"]

    monkeypatch.setattr(paper_runs, "call", call)
    given = ("papers", "tiger-figure8", "--data", "sample", "--out", "made")
    assert capbench(*given).code == 1
    whole = results.read_text()
    results.write_text("")
    fails[0] = True
    ran = capbench(*given)
    assert (ran.code, made[0]) == (2, 4)
    assert "1 of 1 failed" in ran.err
    assert not results.exists()
    fails[0] = False
    assert (capbench(*given).code, made[0]) == (1, 6)
    assert results.read_text() == whole
    assert (capbench(*given).code, made[0]) == (1, 6)


def test_the_sample_is_used_only_on_request(
    capbench: Run, calls: Calls, sample: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for flags in ([], ["--dry-run"]):
        ran = capbench("papers", "tiger-figure8", *flags)
        assert ran.code == 2
        assert "--data sample" in ran.err
    monkeypatch.setenv("CAPBENCH_DATA", str(sample))
    assert capbench("papers", "tiger-figure8").code == 2
    assert not calls
    assert not Path("results").exists()
    assert capbench("papers").code == 0  # the list
