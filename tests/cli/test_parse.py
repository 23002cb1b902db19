from __future__ import annotations

import json

import typer
from typer.testing import CliRunner, Result

from capbench.cli.explore import parse
from capbench.cli.options import with_groups
from capbench.core.errors import ToolError
from tests.installed_parser import parsed
from tests.text.parsed_captions import CAPTIONS

app = typer.Typer()
app.command()(with_groups(parse))


def _run(*arguments: str) -> Result:
    with parsed(CAPTIONS):
        return CliRunner().invoke(app, arguments)


def test_a_caption_is_shown_with_its_objects() -> None:
    result = _run("A woman's green umbrella lies behind the bench.")
    assert result.exit_code == 0
    assert [line.rstrip() for line in result.output.splitlines()] == [
        "A woman's green umbrella lies behind the bench.",
        "  umbrella: green; lie behind → bench",
        "  bench",
        "  woman: have → umbrella",
    ]


def test_json() -> None:
    result = _run("A dog runs!", "Kids are being watched by their teacher", "--json")
    assert json.loads(result.output) == [
        {"caption": "A dog runs!", "objects": ["dog"], "attributes": {"dog": ["run"]}, "triplets": []},
        {
            "caption": "Kids are being watched by their teacher",
            "objects": ["kid", "teacher"],
            "attributes": {},
            "triplets": [["kid", "have", "teacher"], ["teacher", "watch", "kid"]],
        },
    ]


def test_a_new_caption_without_parser_says_what_to_run() -> None:
    error = _run("a zebra").exception
    assert isinstance(error, ToolError)
    assert "capbench doctor --install spice" in str(error)
