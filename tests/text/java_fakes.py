"""Programs that replace Java in tests and misbehave in one way each."""

from __future__ import annotations

import sys
from pathlib import Path

VERSION_17 = 'openjdk version "17.0.9" 2023-10-17'

_PROGRAM = """#!{python}
import os, sys, time
if "-version" in sys.argv:
    sys.stderr.write({version!r} + "\\n")
    sys.exit(0)
state = {state!r}
def starts():
    with open(state, "a") as stream:
        stream.write("x")
    return os.path.getsize(state)
{body}
"""


def fake_java(folder: Path, body: str, version: str = VERSION_17) -> Path:
    """An executable ``java`` in ``folder`` that reports ``version`` and otherwise runs ``body``.

    ``starts()`` counts in the body how often it was started.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "java"
    path.write_text(
        _PROGRAM.format(python=sys.executable, version=version, body=body, state=str(folder / "starts")), "utf-8"
    )
    path.chmod(0o755)
    return path
