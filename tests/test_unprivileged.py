"""What a user may not read or write: one line and exit code 2, or the work done without the cache.

Root may do everything, so that the commands run as a user without rights; where the tests are not run by root they
have no such user at hand.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.conftest import Ran

NOBODY = 65534
# Users without root's rights: one of another name, and, where Python itself lies in root's home, root without the right
# to pass over permissions.
USERS = {
    NOBODY: ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--"),
    0: ("setpriv", "--bounding-set=-dac_override,-dac_read_search", "--"),
}

pytestmark = pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0 or shutil.which("setpriv") is None,
    reason="only root can run a command as a user without rights, and needs setpriv for it",
)


@cache
def _user() -> int:
    for user, prefix in USERS.items():
        code = "import capbench.cli.app, os, sys; sys.exit(os.access(sys.argv[1], os.R_OK))"
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "closed"
            file.touch(mode=0o600)
            os.chown(file, _other(user), _other(user))
            tried = [*prefix, sys.executable, "-c", code, str(file)]
            if subprocess.run(tried, cwd="/", capture_output=True, check=False, env={}).returncode == 0:
                return user
    pytest.skip("no user without root's rights can run capbench here")


def _other(user: int) -> int:
    return 0 if user == NOBODY else NOBODY


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that every user can come to (pytest's own are root's), with one of the user's in it."""
    user = _user()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        place.chmod(0o755)
        (place / "own").mkdir()
        os.chown(place / "own", user, user)
        (place / "closed").mkdir()
        (place / "secret").mkdir()
        _give_away(place / "closed", 0o755)
        _give_away(place / "secret", 0o700)
        yield place


def _give_away(path: Path, mode: int) -> None:
    """Make a file or folder, with all in it, another user's."""
    for each in (path, *path.rglob("*")):
        os.chown(each, _other(_user()), _other(_user()))
    path.chmod(mode)


# Runs commands as the user whose process it is, each in a fork, which need not load Python and the libraries again.
RUNNER = """
import json, os, sys, tempfile
import capbench.api.agreement, capbench.cli.app, capbench.cli.options, capbench.features.store, capbench.studies.run

for line in sys.stdin:
    arguments, environment = json.loads(line)
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = os.fork()
        if child == 0:
            os.dup2(out.fileno(), 1), os.dup2(err.fileno(), 2)
            os.environ.clear(), os.environ.update(environment), os.chdir(environment["HOME"])
            sys.argv = ["capbench", *arguments]
            capbench.cli.app.main()
            sys.exit()
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        out.seek(0), err.seek(0)
        print(json.dumps([code, out.read().decode(), err.read().decode()]), flush=True)
"""


@pytest.fixture(scope="module")
def runner() -> Iterator[subprocess.Popen[str]]:
    """A process of the user without rights."""
    command = [*USERS[_user()], sys.executable, "-c", RUNNER]
    with subprocess.Popen(command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd="/") as process:
        yield process


Run = Callable[..., Ran]


@pytest.fixture
def run(place: Path, runner: subprocess.Popen[str]) -> Run:
    """Runs capbench as a user without rights, with a home and a cache of its own unless told otherwise."""

    def call(*arguments: str | Path, **settings: str) -> Ran:
        home = str(place / "own")
        environment = {
            "PATH": os.environ.get("PATH", ""),
            "HOME": home,
            "CAPBENCH_HOME": f"{home}/home",
            "CAPBENCH_CACHE": f"{home}/cache",
            "COLUMNS": "160",
            **settings,
        }
        assert runner.stdin is not None
        assert runner.stdout is not None
        print(json.dumps([list(map(str, arguments)), environment]), file=runner.stdin, flush=True)
        return Ran(*json.loads(runner.stdout.readline()))

    return call


def _is_one_line(ran: Ran, saying: str) -> None:
    errors = [line for line in ran.err.splitlines() if line.lower().startswith("error:")]
    assert (ran.code, len(errors)) == (2, 1), ran.err
    assert saying in errors[0]
    assert "Traceback" not in ran.out + ran.err


SCORE = ("score", "-m", "bleu-4", "-d", "flickr8k-expert", "--data")
CAPTIONS = ("score", "-m", "bleu-4", "--candidates")


def test_a_file_that_may_not_be_read_is_one_line(place: Path, run: Run) -> None:
    file = place / "secret.json"
    file.write_text('[{"image_id": "a", "caption": "a dog"}]')
    _give_away(file, 0o600)
    for path in (file, place / "secret" / "a.json"):
        _is_one_line(run(*CAPTIONS, path, "--references", path), "")
    _is_one_line(run("correlate", place / "secret" / "study.yaml"), "")
    _is_one_line(run("features", "info", place / "secret" / "a.h5"), "")


# A place below a folder that is closed to the user stands for CLOSED.
CLOSED = [
    "score -m bleu-4 -d flickr8k-expert --data CLOSED",
    "score -m tiger --data sample --features CLOSED --model CLOSED",
    "correlate -m bleu-4 -d flickr8k-expert --data sample --scores CLOSED",
    "correlate -m bleu-4 -d CLOSED.csv --data sample",
    "correlate -m tiger -d flickr8k-expert --data sample --model CLOSED",
    "compare bleu-4 cider -d flickr8k-expert --data sample --scores name=CLOSED",
    "compare-systems CLOSED CLOSED --references CLOSED",
    "explain --image CLOSED -c dog -r cat",
    "explain --image f8k_003 --features CLOSED --model CLOSED",
    "extract-features --images CLOSED",
    "extract-features --image-root CLOSED --data sample",
    "import-features CLOSED --detector bottom-up-caffe",
    "features merge CLOSED CLOSED",
    "features export CLOSED CLOSED",
    "models add x152-fpn CLOSED",
    "train scan CLOSED",
    "train word-vectors --captions CLOSED --out vectors.bin",
    "train reo-covariance --model CLOSED --captions CLOSED --features CLOSED",
    "retrieval -m cider --captions CLOSED",
    "items flickr8k-expert --data sample --out CLOSED",
    "data import CLOSED --name mine",
    "data parses import CLOSED",
    "data verify --data CLOSED",
    "doctor --no-java --data CLOSED",
]


@pytest.mark.parametrize("line", CLOSED)
def test_what_lies_below_a_closed_folder_is_one_line(line: str, place: Path, run: Run) -> None:
    if line.startswith("explain"):
        pytest.importorskip("matplotlib")
    if line.startswith("train scan"):
        pytest.importorskip("torch")
    ran = run(*line.replace("CLOSED", str(place / "secret" / "below" / "it")).split())
    _is_one_line(ran, str(place / "secret"))


def test_data_that_may_not_be_read_is_one_line(place: Path, run: Run, sample: Path) -> None:
    shutil.copytree(sample, place / "data")
    for path in (place / "data" / "flickr8k").rglob("*.txt"):
        _give_away(path, 0o600)
    _is_one_line(run(*SCORE, place / "data"), "Permission denied")
    _give_away(place / "data", 0o700)
    _is_one_line(run(*SCORE, place / "data"), "")


def test_a_folder_that_may_not_be_written_is_one_line_and_stays_as_it_is(place: Path, run: Run) -> None:
    (place / "closed" / "a.csv").write_text("old\n")
    _give_away(place / "closed" / "a.csv", 0o644)
    for out in ("a.csv", "b.csv", "below/b.csv"):
        _is_one_line(run(*SCORE, "sample", "--out", place / "closed" / out), "cannot be written")
    assert [(path.name, path.read_text()) for path in (place / "closed").iterdir()] == [("a.csv", "old\n")]


@pytest.mark.parametrize("cache", ["closed", "secret/below"])
def test_scores_need_no_cache(cache: str, place: Path, run: Run) -> None:
    nowhere = {"CAPBENCH_CACHE": str(place / cache), "CAPBENCH_HOME": str(place / "secret" / "home")}
    ran = run(*SCORE, "sample", **nowhere)
    assert ran.code == 0, ran.err
    assert ran.err.count("warning:") == 1
    assert "'scores'" in ran.err


@pytest.mark.parametrize("cache", ["closed", "secret/below"])
def test_data_is_verified_without_a_cache(cache: str, place: Path, run: Run) -> None:
    nowhere = {"CAPBENCH_CACHE": str(place / cache)}
    ran = run("data", "verify", "nocaps", "--data", "sample", **nowhere)
    assert (ran.code, ran.err.count("warning:")) == (0, 0), ran.err


@pytest.mark.parametrize("cache", ["closed", "secret/below"])
def test_setup_says_what_to_set(cache: str, place: Path, run: Run) -> None:
    _is_one_line(run("setup", "spice", CAPBENCH_CACHE=str(place / cache)), "cannot be")


def test_doctor_works_without_a_cache(place: Path, run: Run) -> None:
    told = run("doctor", "--no-java", CAPBENCH_CACHE=str(place / "secret" / "below"))
    assert told.code in (0, 1), told.err
    assert "Traceback" not in told.err


def test_judgements_are_not_imported_into_a_home_that_cannot_be_written(place: Path, run: Run) -> None:
    table = place / "own" / "j.csv"
    table.write_text("image,candidate,reference_1,rating\na,a dog,the dog,2\nb,a cat,the cat,4\n")
    for home in ("closed/home", "secret/home"):
        ran = run("data", "import", table, "--name", "mine", "--user", CAPBENCH_HOME=str(place / home))
        _is_one_line(ran, "")
