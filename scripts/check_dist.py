"""Check the wheel and the source distribution in a folder: exactly the tracked files, and nothing published by others.

python scripts/check_dist.py [FOLDER]

Prints each problem and exits with code 1 if there is one. Requires git and a checkout.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from capbench import __version__  # noqa: E402
from capbench.datasets.catalog import catalog  # noqa: E402

# By suffix. The leaderboard's score files are 15 MB of the source distribution.
MAX_BYTES = {".whl": 15_000_000, ".gz": 30_000_000}
_NAME = f"capbench-{__version__}"
_IN_WHEEL = {
    "capbench/": "capbench/",
    "configs/": "capbench/_configs/",
    "data/sample/": "capbench/_sample/",
    "results/leaderboard/leaderboard.json": "capbench/_leaderboard.json",
}
_METADATA = ("METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE")
_NOT_IN_SDIST = (".ci/", ".github/", "Dockerfile")


def tracked_files(root: Path = ROOT) -> list[str]:
    """Paths of all files that git tracks, relative to the checkout."""
    ran = subprocess.run(["git", "ls-files", "-z"], cwd=root, capture_output=True, text=True, check=True)
    return [path for path in ran.stdout.split("\0") if path and (root / path).exists()]


def wheel_paths(tracked: Iterable[str]) -> set[str]:
    """Paths in the wheel: the package, and the configs and the sample inside it."""
    packed = {
        folder + path.removeprefix(source)
        for path in tracked
        for source, folder in _IN_WHEEL.items()
        if path.startswith(source)
    }
    return packed | {f"{_NAME}.dist-info/{name}" for name in _METADATA}


def sdist_paths(tracked: Iterable[str]) -> set[str]:
    """Paths in the source distribution: everything except the files that only the repository needs."""
    return {f"{_NAME}/{path}" for path in (*tracked, "PKG-INFO") if not path.startswith(_NOT_IN_SDIST)}


def published_checksums() -> dict[str, str]:
    """SHA-256 → path in the data folder, of every file of others that the catalog has a checksum of."""
    return {entry.sha256.value: path for path, entry in catalog().files.items() if entry.sha256}


def _contents(archive: Path) -> Iterator[tuple[str, bytes]]:
    """Path and content of every file in a wheel or source distribution."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            yield from ((name, wheel.read(name)) for name in wheel.namelist())
        return
    with tarfile.open(archive) as sdist:
        for member in sdist:
            if (opened := sdist.extractfile(member)) is not None:
                yield member.name, opened.read()


def check(folder: Path, tracked: Iterable[str], published: Mapping[str, str]) -> list[str]:
    """Problems of the archives in a folder, one line each.

    ``folder``: the folder that contains the wheel and the source distribution, and no other file; ``tracked``: paths of
    the tracked files; ``published``: SHA-256 → name, of files that must not be distributed.
    """
    tracked = list(tracked)
    expected = {f"{_NAME}-py3-none-any.whl": wheel_paths(tracked), f"{_NAME}.tar.gz": sdist_paths(tracked)}
    present = {path.name for path in folder.iterdir()}
    problems = [f"{name}: unexpected in {folder}" for name in sorted(present - expected.keys())]
    for name, paths in expected.items():
        if name not in present:
            problems.append(f"{name}: missing in {folder}")
            continue
        size, most = (folder / name).stat().st_size, MAX_BYTES[Path(name).suffix]
        if size > most:
            problems.append(f"{name}: {size:,} bytes, more than {most:,}")
        contents = dict(_contents(folder / name))
        problems += [f"{name}: {path} is missing" for path in sorted(paths - contents.keys())]
        problems += [f"{name}: {path} is not tracked by git" for path in sorted(contents.keys() - paths)]
        for path, content in sorted(contents.items()):
            if (source := published.get(hashlib.sha256(content).hexdigest())) is not None:
                problems.append(f"{name}: {path} is the published file {source}")
    return problems


def main() -> int:
    """Check the folder named on the command line, or ``dist``. Returns the exit code."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "dist"
    problems = check(folder, tracked_files(), published_checksums())
    for problem in problems:
        print(problem, file=sys.stderr)
    if not problems:
        for path in sorted(folder.iterdir()):
            print(f"{path.name}: {path.stat().st_size / 1e6:.1f} MB, contents as expected")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
