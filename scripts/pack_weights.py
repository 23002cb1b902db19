"""Pack the networks that recipes trained into a folder for a release, with an index.

python scripts/pack_weights.py [--runs results] [--out dist/weights]

Packs each network that the registry of weights names a recipe for, if RUNS/RECIPE contains it with the SHA-256 that the
recipe recorded. ``capbench models download NAME --from ADDRESS`` reads the folder wherever it is hosted. If
pyproject.toml names a repository, the index also has the addresses of this version's release there, for ``url`` and
``sha256`` in the registry. Uploads nothing.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from capbench import __version__  # noqa: E402
from capbench.core.errors import CapbenchError, DataError  # noqa: E402
from capbench.core.files import atomic_write, read_json, sha256_file, write_text  # noqa: E402
from capbench.weights.download import Index, IndexedFile  # noqa: E402
from capbench.weights.registry import Entry, entries  # noqa: E402

__all__ = ["pack", "release_address"]


def release_address(pyproject: Path = ROOT / "pyproject.toml") -> str | None:
    """Address of the files of this version's release on GitHub; None if pyproject.toml names no repository."""
    urls: dict[str, str] = tomllib.loads(pyproject.read_text(encoding="utf-8"))["project"].get("urls", {})
    repository = next((url for name, url in urls.items() if name.lower() in ("repository", "source")), "")
    if not repository.startswith("https://github.com/"):
        return None
    return f"{repository.rstrip('/')}/releases/download/v{__version__}"


def pack(runs: Path, out: Path, address: str | None = None) -> Index:
    """Copy the trained networks and write ``index.json``.

    Args:
        runs: folder with a folder for each recipe.
        out: folder to write.
        address: address of the release's files, if any.

    Raises:
        DataError: a network is not the file that its recipe recorded.
    """
    packed: dict[str, IndexedFile] = {}
    absent: dict[str, str] = {}
    for name, weights in entries().items():
        if weights.recipe is None:
            continue
        found = _recorded(runs / weights.recipe, weights)
        if found is None:
            absent[name] = f"not trained: {weights.manual.removeprefix('Train it with ')}"
        else:
            packed[name] = _pack_one(weights, *found, out, address)
    index = Index(schema=1, weights=packed, absent=absent)
    text = json.dumps(index.model_dump(by_alias=True, exclude_none=True), indent=2, ensure_ascii=False)
    write_text(out / "index.json", text + "\n")
    return index


def _recorded(folder: Path, weights: Entry) -> tuple[Path, str] | None:
    """The file of a finished training and its recorded SHA-256; None if the recipe has not recorded one."""
    assert weights.made_as is not None
    for record in sorted((folder / ".recipe").glob("*.json")):
        facts = read_json(record)
        digest = facts.get("outputs", {}).get(weights.made_as)
        if facts.get("kind") == "train" and digest is not None:
            return folder / weights.made_as, digest
    return None


def _pack_one(weights: Entry, file: Path, digest: str, out: Path, address: str | None) -> IndexedFile:
    target = out / weights.file
    with open(file, "rb") as stream, atomic_write(target, "wb") as copy:
        shutil.copyfileobj(stream, copy, 1 << 20)
    if sha256_file(target) != digest:
        target.unlink()
        raise DataError("is not the file that its recipe recorded", code="changed", path=file, hint="Train it again")
    run: dict[str, Any] = read_json(file.parent / "run.json")
    captions = run["config"].get("captions")
    training_data = {key: str(value) for key, value in run["data"].items()}
    if isinstance(captions, str):
        training_data = {"name": Path(captions).name, **training_data}
    return IndexedFile(
        file=weights.file,
        sha256=digest,
        bytes=target.stat().st_size,
        url=None if address is None else f"{address}/{weights.file}",
        recipe=weights.recipe,
        seed=run["config"]["seed"],
        training_data=training_data,
        terms=weights.terms,
        capbench=_trained_by(file),
    )


def _trained_by(file: Path) -> str | None:
    """The version of capbench that trained a network, from the file's metadata."""
    from safetensors import safe_open

    with safe_open(file, "pt") as opened:
        training = json.loads((opened.metadata() or {}).get("training", "{}"))
    version = training.get("versions", {}).get("capbench")
    return None if version is None else str(version)


def main() -> int:
    """Pack, and print one line per network. Returns the exit code."""
    parser = argparse.ArgumentParser(description="Pack trained networks for a release.")
    parser.add_argument("--runs", type=Path, default=ROOT / "results", help="folder of the recipes' folders")
    parser.add_argument("--out", type=Path, default=ROOT / "dist" / "weights", help="folder to write")
    arguments = parser.parse_args()
    address = release_address()
    try:
        index = pack(arguments.runs, arguments.out, address)
    except CapbenchError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    for name, file in index.weights.items():
        print(f"{name}: {file.bytes or 0:,} bytes, SHA-256 {file.sha256}")
    for name, reason in index.absent.items():
        print(f"{name}: absent, {reason}")
    print(f"{len(index.weights)} packed, {len(index.absent)} absent: {arguments.out / 'index.json'}")
    if address is None:
        print("pyproject.toml names no repository on GitHub: the files have no address yet", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
