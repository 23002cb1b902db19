"""Build the documentation site out of README.md, CONTRIBUTING.md, CHANGELOG.md and docs/ (needs the extra ``docs``).

python scripts/make_docs.py               # into build/site
python scripts/make_docs.py --out DIR     # into DIR/site

The pages lie there as they lie in the repository, so that links lead to the same places. Links to files that are no
pages become plain text. Nothing is fetched, neither while the site is built nor while it is read.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from capbench.core.files import atomic_write, read_text  # noqa: E402

_LINK = re.compile(r"(?<!!)\[([^\]\n]+)\]\(([^)\s#]+)(#[^)\s]*)?\)")


def pages() -> list[str]:
    """The site's pages, as paths from the repository's root."""
    parts = [path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "docs").rglob("*.md"))]
    return ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", *parts]


def page_text(page: str, known: set[str]) -> str:
    """A page's text, in which links to files of the repository other than pages are plain text."""
    folder = (ROOT / page).parent

    def link(match: re.Match[str]) -> str:
        target = match[2]
        if "://" in target or target.startswith("mailto:"):
            return match[0]
        is_page = (folder / target).resolve().relative_to(ROOT).as_posix() in known
        return match[0] if is_page else match[1]

    return _LINK.sub(link, read_text(ROOT / page))


def stage(out: Path) -> None:
    """Lay the pages out for the builder, in ``out/docs``."""
    names = pages()
    shutil.rmtree(out / "docs", ignore_errors=True)
    shutil.copytree(ROOT / "docs" / "assets", out / "docs" / "docs" / "assets")
    for page in names:
        with atomic_write(out / "docs" / page, "w") as file:
            file.write(page_text(page, set(names)))
    settings = read_text(ROOT / "mkdocs.yml").replace("build/", "")
    with atomic_write(out / "mkdocs.yml", "w") as file:
        file.write(settings)


def main(arguments: list[str] | None = None) -> None:
    """Lay out and build; a link that leads nowhere, or a page that no menu has, is an error."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "build", help="folder of the site")
    out = parser.parse_args(arguments).out
    stage(out)
    # With --quiet, --strict would count no warnings and accept links to missing headings.
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file", str(out / "mkdocs.yml")]
    # Material for MkDocs prints an advertisement for its successor unless this is set.
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, check=False, env=environment, stderr=subprocess.PIPE, text=True)
    if built.returncode != 0:
        sys.stderr.write(built.stderr)
        raise SystemExit(built.returncode)
    print(f"{out / 'site' / 'index.html'} is written")


if __name__ == "__main__":
    main()
