"""The refusals of all commands: arguments, the code of the error, and the value or file that it names.

Whatever file they are given, they end well or with one line and exit code 2.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from capbench.datasets.root import sample_dir
from tests.conftest import Ran

NAMES = {"SYSTEMS": "base.json good.json --references r.json", "OWN": "own.jsonl --references r.json"}
NAMES["OVERLAP"] = "tests.reports.explain.overlap"
REFUSALS = """
nothing => unknown-name nothing
--nothing => unknown-option --nothing
explore nothing => unknown-name nothing
data nothing => unknown-name
score --nothing => unknown-option --nothing
score --metric => missing-value --metric
score --metric cidr => unknown-name cidr
score --metric bleu.bleu-9 => unknown-name bleu-9
score --metric no_such_module:X => import-failed no_such_module:X
score -m bleu -p flickr8k-expert/most => unknown-name most
score -m bleu --option bleu.size=4 => unknown-option size
score -m cider --option cider.df=cocoo-val => unknown-name cocoo-val
score -m bleu --draw 2 => out-of-range 2
score -m nneval => missing-weights nneval
score --candidates a --candidates b => duplicate --candidates
score -m rouge-l --seed 200 => missing-option --seed
score -m bleu-1 --keep-first => conflict flickr8k-expert
score -m bertscore --model sample => missing-weights sample
score -m bleu-1 --columns image=file --candidates x => missing-option --columns
score -m bleu-1 --features gone.h5 => missing-file gone.h5
score -m bleu,cider --candidates own.jsonl => missing-references bleu
score -m bleu --candidates OWN --fail-under bleu-1 => wrong-format bleu-1
score -m bleu --candidates OWN --fail-under cider=1 => unknown-name cider
score -m bleu --candidates OWN --fail-under bleu-1=1e999 => wrong-format bleu-1=1e999
score -m bleu --candidates OWN --fail-under bleu-1=1 --fail-under bleu-1=2 => duplicate bleu-1
score -m bleu-1 --candidates stranger.jsonl --references r.json => missing-references z
score -m tiger --data empty => missing-features tiger
correlate --data nowhere => missing-file nowhere
correlate -d pascal-50s -m bleu-1 --data empty => missing-file
correlate -m bleu-1 -d composit => unknown-name composit
correlate -m bleu-1 -d composite@80k => unknown-name 80k
correlate field-2025 -d thumb => unknown-name thumb
correlate -m bleu-1 -p flickr8k-swaps@object/attribute-strict => missing-data
correlate tiger-tabel1 => missing-file tiger-tabel1
correlate -m bleu-1 --bootstrap 50 => wrong-value bootstrap
correlate -m bleu-1,cider --permutations 50 --compare permutation => wrong-value permutations
correlate -m bleu-1 --out x.csv => wrong-value x.csv
correlate -m bleu-1 --interval bca => missing-option --interval
correlate -m bleu-1 --permutations 500 => missing-option --permutations
correlate -m bleu-1,rouge-l --compare permutation --alpha 2 => wrong-value 2.0
correlate -d flickr8k-expert -m bleu-1,rouge-l --compare williams => conflict williams
correlate -m bleu-1 --cite --json => conflict --cite
correlate -m bleu-1 --items => missing-option --items
correlate -m bleu-1 --counts 1,2 => missing-option --counts
correlate -m bleu-1 --report . => unwritable .
correlate -d composite -m bleu-1 --all-protocols -p unaggregated-tau-b => conflict --protocol
correlate -m bleu-1 --all-protocols --bootstrap 500 => conflict --bootstrap
correlate -m bleu-1 --all-protocols --sentinels => conflict --sentinels
correlate tiger-table1 --all-protocols => conflict --all-protocols
correlate -d composite -m bleu-1 --references-curve --all-protocols => conflict --references-curve
correlate -d composite -m bleu-1 --counts 1 => missing-option --counts
correlate -d pascal-50s -m bleu-1 --references-curve --counts x => wrong-value x
correlate -d pascal-50s -m bleu-1 --references-curve --counts 60 => out-of-range 60
correlate -d pascal-50s -m bleu-1 --references-curve -p random-1-ref => conflict pascal-50s/random-1-ref/direct-strict
correlate -d nocaps -m bleu-1 --references-curve => unsupported nocaps/first-vs-rest/mean
correlate -d flickr8k-expert --scores gone.csv => missing-file
correlate -d flickr8k-expert --scores cider=scores.csv => duplicate cider
correlate -d flickr8k-expert --scores a:b=scores.csv => wrong-format a:b=scores.csv
correlate -d composite --scores scores.csv => unknown-item scores.csv
correlate -d flickr8k-expert -m overlapp --scores scores.csv => unknown-name overlapp
correlate -d flickr8k-expert -m overlap --scores part.csv => missing-scores f8k_003
correlate -m bleu-1 --option cider => wrong-format cider
correlate -d norefs.csv -m bleu-1,rouge-l => missing-references bleu
correlate -m bleu-1 --columns image => wrong-format image
compare cider => too-few
compare => missing-option
compare cider nneval => missing-weights nneval
compare cider meteor --test mcnemar => conflict mcnemar
compare cider meteor --test x => wrong-value test
compare cider rouge-l -d '' --power => wrong-type
compare cider rouge-l --gap 0.1 => missing-option --gap
compare cider rouge-l --cite --json => conflict --cite
compare cider rouge-l --test bootstrap --permutations 200 => conflict --permutations
compare cider --power => wrong-value 1
compare cider rouge-l --power 80 => out-of-range 80.0
compare cider rouge-l --power --alpha 0 => out-of-range 0.0
compare bleu-1 rouge-l --power --gap nan --bootstrap 100 => out-of-range nan
compare cider rouge-l --power --test williams => conflict --test
compare cider rouge-l --power --sentinels => conflict --sentinels
compare cider rouge-l --power --report r.html => conflict --report
compare rrs tiger --data empty => missing-features tiger
compare bleux rouge-l --data nowhere -d composit -p tau-x => missing-file nowhere
compare bleu-1 rouge-l -d composit -p tau-x => unknown-name composit
compare bleu-1 rouge-l -d composite -p tau-x => unknown-name tau-x
compare --power overlap cider --scores part.csv --bootstrap 100 => missing-scores f8k_003
compare-systems base.json --references r.json => too-few
compare-systems base.json base.json --references r.json => duplicate base
compare-systems base.json none.json --references r.json => missing-file none.json
compare-systems SYSTEMS --out a.xlsx => wrong-value .xlsx
compare-systems SYSTEMS -m blue => unknown-name blue
compare-systems SYSTEMS -m bleu-1 --test bootstrap --permutations 300 => conflict --permutations
compare-systems SYSTEMS -m bleu-1 --correction x => wrong-value correction
compare-systems base.json twice.json --references r.json -m bleu-1 => duplicate a
compare-systems base.json fewer.json --references r.json -m bleu-1 => missing-image a
rank -m bleu-4 --tasks nowhere.yaml => missing-file nowhere.yaml
rank -m bleu-4 --alpha 2 => out-of-range 2.0
rank -m bleu-4 --out x.csv => wrong-value x.csv
leaderboard --sort wrong => unknown-name wrong
leaderboard --from board.json -d foil => conflict --dataset
leaderboard --from scores.csv => wrong-format scores.csv
leaderboard --from none.json => missing-file none.json
metrics bleu --model m.pt => unsupported --model
metrics --check => missing-option metric
metrics --check tiger => missing-features tiger
submit check none => missing-file none
papers tiger-figure8 --data sample --model tigre=a.pt --dry-run => unknown-name tigre
papers tiger-figure8 --data sample --option taau=2 --dry-run => unknown-name taau
papers tiger-table1 --data sample --without spicy => unknown-name spicy
papers tiger-table3 --data sample --without tiger => too-few
papers tiger-figure8 => missing-data
papers tiger-table1 --data sample --out x.csv => wrong-value x.csv
figure nothing => wrong-value kind
figure forest cider => too-few
figure forest cider meteor -o x.gif => wrong-value .gif
figure forest cider meteor --size 6 => wrong-format 6
figure forest cider meteor --size 600x4 => wrong-format 600x4
figure forest cider --from compare.json => conflict
figure significance --from gone.json => missing-file gone.json
figure ratings => missing-option
figure ratings cider --seed 1 => unsupported --seed
figure ratings cider -d pascal-50s => unsupported pascal-50s/random-5-refs/direct-strict
figure ratings overlap --scores part.csv => missing-scores f8k_003
figure curves => missing-option inputs
figure curves a.json b.json => too-many inputs
figure report => missing-option inputs
figure report list.json => wrong-format list.json
figure report x --size 6x4 => unsupported --size
figure report list.json --image-root none => missing-file none
explore explain => missing-option
explore explain -i f8k_003 -m cider => unsupported cider
explore explain -i f8k_003 -m tigre => unknown-name tigre
explore explain -i f8k_003 -c " " => missing-value
explore explain -i f8k_003 -m OVERLAP:Silent -c a -r b => unsupported silent
explore explain -i f8k_003 -m OVERLAP:Overlap -d pascal-50s => unknown-item f8k_003
explore explain -i f8k_003 -m OVERLAP:Overlap -c a -r b -o /dev/null/x => unwritable /dev/null/x.png
explore explain -i f8k_003 -m OVERLAP:Overlap --option cider.df=x => unknown-name cider
explore explain faier-figure6 -m tiger => conflict --metric
explore explain faier-table5 => missing-key image
explore examples -m cider --number 500 => too-few 72
explore examples -m cider --out x.txt => wrong-value .txt
explore examples -m overlap --scores part.csv => missing-scores f8k_003
explore examples faier-figure5 -d composite => conflict --dataset
explore examples faier-figure4 => missing-key image
explore retrieve => missing-option
explore retrieve faier-table6 -m cider => conflict
explore retrieve faier-table1 => missing-key retrieval
explore retrieve wrong.yaml => wrong-value 1
explore words faier-table5 => missing-file
explore words faier-figure5 => missing-key words
data info --protocols --verify => unsupported --verify
data info --protocols composite@80k => unknown-name 80k
data download --url http://example.org/a.zip => missing-option targets
data download machine-smurf => unsupported
data download flickr8k-expert --data empty => download-failed flickr8k-text
data download results_20130124.token --data empty => download-failed flickr30k-form
data import x.csv => missing-option name
data import x.csv --name x => missing-file x.csv
data import list.json --name x => missing-value list.json
data items nowhere --out i => unknown-name nowhere
data parses export => missing-option file
data parses export x.parses => missing-data spice-1.0+corenlp-3.6.0
data parses export a --workers 2 => unsupported --workers
data parses make --replace => unsupported --replace
data parses make flikr8k => unknown-name flikr8k
data parses make composite@moon => unknown-name moon
extract-features --workers 1 --workers 2 => duplicate --workers
extract-features --images no --out x.h5 => missing-file no
extract-features --images empty --out x.h5 => missing-image empty
extract-features --images picture.png --dataset nocaps => conflict nocaps
extract-features --images picture.png --shard 3/2 --out x.h5 => wrong-value 3/2
extract-features --images picture.png --weights random:1 => missing-option random:1
extract-features --data pictures -D sample => unsupported sample
features export x.h5 x.npz => missing-file x.h5
models list vgg => unknown-name vgg
models add x152-fpn gone.pt => missing-file gone.pt
models download pac-s-vit-b32 => missing-weights pac-s-vit-b32
models combine a.pt b.pt --out e.json => missing-weights a.pt
train scan --seed 1 => missing-option config
train scan tiny.yaml => missing-file tiny.yaml
train faier faier-flickr8k --variant fier => unknown-option --variant
train nneval nneval-coco --features x => unknown-option --features
train scan scan-flickr8k-grid --folds 5 => missing-option --folds
train scan scan-flickr8k-grid --evaluate tset => unknown-name tset
train scan scan-flickr8k-grid --evaluate test --restart => conflict
train scan scan-flickr8k-grid --set lose.kind=hinge => unknown-option lose
train combination => missing-option
train combination -m cider,rouge-l --folds 1 => wrong-value folds
train combination -m cider,rouge-l --learner x => wrong-value learner
train combination -m cider -d nocaps => unsupported nocaps/first-vs-rest/mean
train combination -m cider,rouge-l --out scores.txt => wrong-format .txt
train combination -m overlap --scores part.csv => missing-scores f8k_003
train word-vectors --captions gone.txt --out v.bin => missing-file gone.txt
train reo-covariance --model gone.pt --features gone.h5 --captions flickr8k => missing-file gone.h5
doctor more => invalid
doctor --from x => unsupported --from
doctor --install spice --no-java => unsupported --no-java
doctor --install spice --from empty => missing-file empty/stanford-corenlp-3.6.0.jar
doctor --data nowhere => missing-file nowhere
"""

UNUSABLE = """
score -m bleu-1 --candidates BAD.json --references r.json
score -m bleu-1 --candidates own.jsonl --references BAD.json
score -m bleu-1 --data BAD
score -m bleu-1 --features BAD.h5
score -m bleu-1 --model BAD.safetensors
score -m bleu-1 --scores BAD.csv
correlate BAD.yaml
correlate -d BAD.csv -m bleu-1
correlate -d BAD.jsonl -m bleu-1
rank -m bleu-1 --tasks BAD.yaml
leaderboard --from BAD.json
submit check BAD.yaml
compare-systems base.json BAD.json --references r.json -m bleu-1
figure forest --from BAD.json
figure curves BAD.json
figure report BAD.json --out new.html
explore explain BAD.yaml
explore retrieve BAD.yaml
explore retrieve -m bleu-1 --captions BAD.json
data import BAD.csv --name x
data parses make BAD.json
extract-features --images BAD.png --detector sample --out new.h5
features info BAD.h5 --verify
features import BAD.npy --format scan --ids list.json --out new.h5
features merge new.h5 BAD.h5
features pool BAD.h5 new.h5
features export BAD.h5 new.npz
models add x152-fpn BAD.pt
models combine BAD.pt BAD.pt --out e.json
train scan BAD.yaml
train scan scan-flickr8k-grid --evaluate test --model BAD.safetensors
train faier faier-flickr8k --features BAD.h5
train word-vectors --captions BAD.json --out new.bin
doctor --install spice --from BAD
"""


@pytest.fixture
def _files(part: Path, sample_store: Path) -> None:
    captions = {
        name: f"a {word} dog runs" for name, word in zip("abcde", ["big", "red", "old", "wet", "new"], strict=True)
    }
    rows = [{"image": name, "caption": text} for name, text in captions.items()]
    systems = {"base": rows, "good": rows, "fewer": rows[2:], "twice": [*rows, rows[0]]}
    files = {f"{name}.json": json.dumps(system) for name, system in systems.items()}
    files |= {
        "own.jsonl": "\n".join(map(json.dumps, rows)),
        "stranger.jsonl": '{"image": "z", "caption": "a dog"}',
        "r.json": json.dumps({name: [text] for name, text in captions.items()}),
        "list.json": "[]",
        "norefs.csv": "image,candidate,rating\na,a dog,1\nb,a cat,2\n",
        "wrong.yaml": "schema: 1\nname: w\nretrieval: {images: 1}\nmetrics: [cider]\n",
    }
    for name, text in files.items():
        Path(name).write_text(text, "utf-8")
    Path("features").symlink_to(sample_store.parent)
    Path("empty").mkdir()
    Path("pictures/flickr8k/images").mkdir(parents=True)
    for name in ("picture.png", "pictures/flickr8k/images/a.png"):
        Path(name).write_bytes((sample_dir() / "flickr8k/images/f8k_003.png").read_bytes())


@pytest.mark.usefixtures("_files")
@pytest.mark.parametrize("line", REFUSALS.strip().splitlines())
def test_a_refusal_is_one_line_with_its_code_and_value(line: str, capbench: Callable[..., Ran]) -> None:
    arguments, _, expected = line.partition(" => ")
    code, _, value = expected.partition(" ")
    for name, meaning in NAMES.items():
        arguments = arguments.replace(name, meaning)
    ran = capbench(*shlex.split(arguments))
    assert (ran.code, sum(text.startswith("error: ") for text in ran.err.splitlines())) == (2, 1), ran.err
    failure = ran.failure
    assert failure.code == code
    if value:
        assert str(failure.path if failure.value is None else failure.value) == value


@pytest.mark.usefixtures("_files")
@pytest.mark.parametrize("line", UNUSABLE.strip().splitlines())
def test_a_file_that_cannot_be_right_is_one_line(line: str, capbench: Callable[..., Ran]) -> None:
    (ending,) = {Path(word).suffix for word in line.split() if word.startswith("BAD")}
    Path(f"empty-file{ending}").write_bytes(b"")
    Path(f"binary{ending}").write_bytes(np.random.default_rng(1).bytes(5000))
    Path(f"folder{ending}").mkdir()
    for kind in ("missing", "empty-file", "binary", "folder"):
        ran = capbench(*line.replace("BAD", kind).split())
        errors = sum(text.startswith("error: ") for text in ran.err.splitlines())
        assert (ran.code in (0, 1, 2), errors) == (True, ran.code == 2), f"{kind}: {ran.code} {ran.err}"
        assert ran.code or kind != "missing"
