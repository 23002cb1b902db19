"""Proof that a change of the code changes no number: run capbench's commands, keep what they answer, compare.

python scripts/golden.py run OUT                       # every command on the embedded sample, one file each, into OUT
python scripts/golden.py run OUT --real                # the commands on the published files, under CAPBENCH_DATA
python scripts/golden.py run OUT --capbench /old/.venv/bin/capbench    # by another installation
python scripts/golden.py diff BEFORE AFTER             # which places of which answers differ; exit code 1 if any does
python scripts/golden.py diff BEFORE AFTER --allow allowed.yaml
python scripts/golden.py write-tests                   # make the numbers anew that tests/test_golden*.py compare with

Each command begins with an empty cache, but METEOR's table and SPICE's parses are kept for later runs ('parse'
parses anew). Times, versions, folders and counts from the cache are not kept; golden_record.py lists them.

Differences that are meant stand in a YAML file; how often each entry was used is printed. The keys 'command' and 'path'
are regular expressions that fit as a whole; the path '' is a command that only one folder has:

    renamed:   # the first folder's texts are changed so before they are compared
      - {from: 'REO relevance', to: 'Relevance (REO)', reason: titles begin with what is measured}
    allowed:
      - {command: 'compare-.*', path: 'stdout\\.table\\.label', reason: a new key}
      - {command: 'correlate-.*', path: '.*\\.p_value', within: 1.0e-12, reason: another order of summation}
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from capbench.core.files import json_text  # noqa: E402
from scripts.golden_commands import REAL, SAMPLE, Command, choose, with_needed, write_inputs  # noqa: E402
from scripts.golden_diff import NOTHING, Allowed, Difference, differences, read_allowed  # noqa: E402
from scripts.golden_numbers import in_tests, stored, titles_of  # noqa: E402
from scripts.golden_record import Place, run_command, shared_folder, varying_names  # noqa: E402

TESTS = ROOT / "tests" / "golden"
ABOUT = "ABOUT.txt"
"""The file about a run itself, which is not compared."""


def main(arguments: list[str] | None = None) -> int:
    """Run the command line. Returns the exit code: 1 if exit codes are not those of the table, or if folders differ."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(dest="what", required=True)
    run = commands.add_parser("run", help="run the commands and keep what they answer")
    run.add_argument("out", type=Path, metavar="OUT", help="folder for one file a command")
    run.add_argument("--real", action="store_true", help="on the published files, under CAPBENCH_DATA")
    run.add_argument("--only", default="*", metavar="PATTERN", help="such as 'correlate*'; what they need runs, too")
    run.add_argument("--replace", action="store_true", help="write into a folder that holds an earlier run")
    compare = commands.add_parser("diff", help="compare what two runs answered")
    compare.add_argument("before", type=Path, metavar="BEFORE")
    compare.add_argument("after", type=Path, metavar="AFTER")
    compare.add_argument("--allow", type=Path, metavar="FILE", help="YAML: differences that are meant, with reasons")
    compare.add_argument("--limit", type=int, default=20, metavar="N", help="differences shown a command; 0: all")
    tests = commands.add_parser("write-tests", help="make the numbers anew that the tests compare with")
    for one in (run, tests):
        beside = Path(sys.executable).parent / "capbench"
        one.add_argument("--capbench", default=str(beside), metavar="CMD", help="what starts capbench")
    options = parser.parse_args(arguments)
    if options.what == "diff":
        return _diff(options.before, options.after, options.allow, options.limit)
    executable = tuple(shlex.split(options.capbench))
    if options.what == "run":
        return _run(options.out, executable, options.real, options.only, options.replace)
    return _write_tests(executable)


def _run(out: Path, executable: tuple[str, ...], real: bool, pattern: str, replace: bool) -> int:
    chosen = choose(REAL if real else SAMPLE, pattern)
    if not chosen:
        raise SystemExit(f"no command is called {pattern}")
    if not replace and any(out.glob("*.json")):
        raise SystemExit(f"{out} holds an earlier run: choose another folder, or use --replace")
    out.mkdir(parents=True, exist_ok=True)
    began = time.perf_counter()
    wrong, total = [], 0.0
    lines = [f"{shlex.join(executable)}, {'published files' if real else 'embedded sample'}"]
    for place, (command, answer, seconds) in enumerate(_answers(chosen, executable, real), 1):
        text = json.dumps(answer, ensure_ascii=False, indent=1)
        (out / f"{command.name}.json").write_text(f"{text}\n", encoding="utf-8")
        total += seconds
        lines.append(f"{command.name}: {seconds:.1f} s of processor time")
        print(f"{place} of {len(chosen)}  {lines[-1]}", file=sys.stderr)
        if answer["code"] != command.code:
            wrong.append(f"{command.name}: exit code {answer['code']}, not {command.code}: {answer['stderr'][-1:]}")
    lines.append(f"all: {time.perf_counter() - began:.0f} s, {total:.0f} s of processor time")
    (out / ABOUT).write_text("\n".join(lines) + "\n", encoding="utf-8")
    for line in wrong:
        print(line)
    print(f"{lines[-1]}; {len(chosen)} commands, {len(wrong)} with another exit code")
    return 1 if wrong else 0


def _answers(
    commands: Sequence[Command], executable: tuple[str, ...], real: bool
) -> Iterator[tuple[Command, dict[str, Any], float]]:
    """Run commands one by one in a folder that is removed at the end; yields each with its answer and seconds."""
    data = None
    if real:
        if not os.environ.get("CAPBENCH_DATA"):
            raise SystemExit("CAPBENCH_DATA is not set")
        data = Path(os.environ["CAPBENCH_DATA"]).resolve()
    if len(executable) == 1 and (path := shutil.which(executable[0])):
        executable = (str(Path(path).absolute()),)
    with tempfile.TemporaryDirectory(prefix="capbench-golden-", ignore_cleanup_errors=True) as folder:
        work, caches = Path(folder).resolve() / "work", Path(folder).resolve() / "caches"
        write_inputs(work)
        names = varying_names(executable, work, caches, data)
        place = Place(executable, work, caches, shared_folder(), data, names)
        for command in commands:
            yield (command, *run_command(command, place))


def _diff(before: Path, after: Path, allow: Path | None, limit: int) -> int:
    allowed = read_allowed(allow)
    names = [sorted(path.stem for path in folder.glob("*.json")) for folder in (before, after)]
    for folder, there in zip((before, after), names, strict=True):
        if not there:
            raise SystemExit(f"{folder} holds no run")
    every = sorted(set(names[0]) | set(names[1]))
    differing = 0
    for name in every:
        meant, wrong = 0, []
        for difference in _differences(before / f"{name}.json", after / f"{name}.json", allowed):
            if allowed.allows(name, difference):
                meant += 1
            else:
                wrong.append(difference)
        differing += bool(wrong)
        if wrong:
            print(f"{name}: {len(wrong)} different" + (f", {meant} allowed" if meant else ""))
            for difference in wrong[: limit or None]:
                print(f"  {difference}")
            if limit and len(wrong) > limit:
                print(f"  … and {len(wrong) - limit} more (--limit 0 shows all)")
    for entry in (*allowed.renamed, *allowed.allowed):
        print(f"allowed {allowed.used[entry['reason']]:,} times: {entry['reason']}")
    print(f"{len(every)} commands: {len(every) - differing} equal, {differing} differ")
    return 1 if differing else 0


def _differences(before: Path, after: Path, allowed: Allowed) -> list[Difference]:
    answers = [json.loads(path.read_text(encoding="utf-8")) if path.exists() else None for path in (before, after)]
    if None in answers:
        first, second = (NOTHING if answer is None else "this command" for answer in answers)
        return [Difference("", first, second)]
    return list(differences(allowed.rename(answers[0]), answers[1]))


def _write_tests(executable: tuple[str, ...]) -> int:
    commands = with_needed(SAMPLE, [command.name for command in in_tests()])
    payloads: dict[str, Any] = {}
    for command, answer, seconds in _answers(commands, executable, False):
        print(f"{command.name}: {seconds:.1f} s", file=sys.stderr)
        if answer["code"] != command.code:
            raise SystemExit(f"{command.name}: exit code {answer['code']}: {answer['stderr'][-1:]}")
        payloads[command.name] = answer["stdout"]
    TESTS.mkdir(exist_ok=True)
    for path in TESTS.glob("*.json"):
        path.unlink()
    for command in in_tests():
        titles = titles_of(payloads[command.titles])
        text = json_text(stored(command, payloads[command.name], titles)) + "\n"
        (TESTS / f"{command.name}.json").write_text(text, encoding="utf-8")
        print(f"wrote {command.name}.json, {len(text) / 1000:.1f} kB")
    return _write_columns()


def _write_columns() -> int:
    """Write the columns of published items, if all is there that they need."""
    if not all(os.environ.get(name) for name in ("CAPBENCH_DATA", "CAPBENCH_PARITY")):
        print("kept columns.json.gz: CAPBENCH_DATA and CAPBENCH_PARITY are not set")
        return 0
    from scripts.golden_columns import PATH, write

    print(*write(), sep="\n")
    print(f"wrote {PATH.name}, {PATH.stat().st_size / 1000:.1f} kB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
