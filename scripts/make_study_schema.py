"""Write docs/study.schema.json, the JSON schema of study files that editors complete and check with.

Run: python scripts/make_study_schema.py
"""

from __future__ import annotations

import json
from pathlib import Path

from capbench.studies.study_file import study_schema

TARGET = Path(__file__).resolve().parent.parent / "docs" / "study.schema.json"


def text() -> str:
    """The text of the file."""
    return json.dumps(study_schema(), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    TARGET.write_text(text(), encoding="utf-8")
