"""Scripts refuse what does not fit before they begin to work."""

from __future__ import annotations

import pytest

from scripts import make_cli_docs


def test_an_unknown_argument_writes_no_command_line_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["make_cli_docs.py", "--chek"])
    with pytest.raises(SystemExit, match="unknown arguments: --chek"):
        make_cli_docs.main()
