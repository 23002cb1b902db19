"""What commands over metrics are given beside the metrics' names: the one door for options, files and judgements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from capbench.cli import common
from capbench.cli.groups import OptionGroup
from capbench.cli.sample import is_sample_data, with_sample
from capbench.errors import FeatureError, ModelError, UsageError, suggest

if TYPE_CHECKING:
    from capbench.datasets.base import Dataset
    from capbench.datasets.protocol import Protocol
    from capbench.datasets.root import DataRoot
    from capbench.metrics.base import Resources
    from capbench.metrics.from_file import ScoresEntry
    from capbench.metrics.requests import Asked, MetricRequest

__all__ = [
    "Cached",
    "Given",
    "Inputs",
    "Opened",
    "Target",
    "check_store",
    "note_left_out",
    "open_judged",
    "parse_files",
    "parse_options",
    "parse_scores",
    "requested",
]


@dataclass(frozen=True)
class Inputs(OptionGroup):
    """What metrics are given: their options, features and weights, and the data folder."""

    option: Annotated[
        list[str] | None,
        typer.Option(
            "--option",
            metavar="NAME.OPTION=VALUE",
            help="Option of a metric or label, such as cider.df=coco-val; OPTION=VALUE for all that have it; "
            "repeatable.",
        ),
    ] = None
    data: common.DataOption = None
    features: Annotated[
        list[str] | None,
        typer.Option(
            "--features",
            metavar="[NAME=]FILE",
            help="Region features of a metric or label, or FILE for all that look at images; repeatable.",
        ),
    ] = None
    model: Annotated[
        list[str] | None,
        typer.Option(
            "--model",
            metavar="[NAME=]FILE",
            help="Weights of a metric or label, or FILE for all that need some; repeatable.",
        ),
    ] = None
    image_root: Annotated[
        Path | None,
        typer.Option("--image-root", metavar="DIR", help="Where pictures are. Default: */images of the data folder."),
    ] = None

    def root(self) -> DataRoot:
        """The data folder. Raises UsageError if it is none."""
        from capbench.datasets.root import find_root

        return find_root(self.data)

    def options(self) -> dict[str, dict[str, Any]]:
        """Options by metric or label, see :func:`parse_options`."""
        return parse_options(self.option or [])

    def stored(self) -> tuple[ScoresEntry, ...]:
        """Files of scores that were computed elsewhere, where the command takes them."""
        return ()

    def resources(self, names: Sequence[Asked], root: DataRoot | None = None) -> Resources:
        """The files.

        Args:
            names: the metrics, with labels; files may be given to either.
            root: the data folder.

        Raises:
            UsageError: see :func:`parse_files`.
        """
        from capbench.metrics.base import Resources
        from capbench.metrics.requests import split_label

        labels = [label for label, _ in map(split_label, names) if label]
        store, stores = parse_files("--features", self.features or [], labels)
        weights, models = parse_files("--model", self.model or [], labels)
        data = None if root is None else str(root.path)
        images = self._pictures()
        return Resources(features=store, features_of=stores, model=weights, models=models, images=images, data=data)

    def _pictures(self) -> str | None:
        """The folder of the pictures. Raises UsageError if there is none."""
        from capbench.files import check_folder

        if self.image_root is None:
            return None
        check_folder(self.image_root, "--image-root")
        return str(self.image_root)


@dataclass(frozen=True)
class Cached(Inputs):
    """What metrics are given where their scores are cached."""

    no_cache: Annotated[bool, typer.Option("--no-cache", help="Score again, and do not read or write the cache.")] = (
        False
    )

    @property
    def cache(self) -> bool:
        """Whether the cache is read and written."""
        return not self.no_cache


@dataclass(frozen=True)
class Given(Cached):
    """What metrics are given, and scores from elsewhere: in all commands that score judgements or captions."""

    scores: Annotated[
        list[str] | None,
        typer.Option(
            "--scores",
            metavar="[NAME=]FILE",
            help="Scores that were computed elsewhere, on what 'capbench items' writes: every column of numbers is a "
            "metric; repeatable. CSV, TSV, JSONL, Parquet or CaptionEvalKit's JSON.",
        ),
    ] = None
    allow_missing: Annotated[
        bool,
        typer.Option("--allow-missing", help="Leave out items without a score in a file of --scores, for all metrics."),
    ] = False

    def stored(self) -> tuple[ScoresEntry, ...]:
        """The files of scores. Raises UsageError if a name cannot be one."""
        return tuple(parse_scores(text) for text in self.scores or ())

    def resources(self, names: Sequence[Asked], root: DataRoot | None = None) -> Resources:
        """The files, and whether items may lack scores. See :meth:`Inputs.resources`."""
        from dataclasses import replace

        return replace(super().resources(names, root), allow_missing=self.allow_missing)


@dataclass(frozen=True)
class Target(OptionGroup):
    """The judgements that metrics are measured against: a data set and one of its protocols."""

    dataset: Annotated[
        str, typer.Option("--dataset", "-d", metavar="NAME", help="Data set, or a file of judgements.")
    ] = "flickr8k-expert"
    protocol: Annotated[
        str | None, typer.Option("--protocol", "-p", metavar="ID", help="Protocol. Default: the literature's.")
    ] = None

    @property
    def grouped_dataset(self) -> str:
        """The data set, with the version and the group that the protocol's id may name (``composite@8k/...``)."""
        from capbench.datasets.opening import with_group_of

        return with_group_of(self.dataset, self.protocol)


def requested(
    names: Sequence[str], given: Inputs, root: DataRoot, *, sample: bool = False
) -> tuple[tuple[MetricRequest, ...], Resources]:
    """The metrics that are asked for, and what was given to them.

    Args:
        names: their names.
        given: what the command line gives them.
        root: the data folder.
        sample: whether it is the embedded sample that is scored: its features and its model stand in for none given.

    Raises:
        UsageError: a name, an option, ``--features`` or ``--model`` does not fit.
        FeatureError, ModelError: a file that is given is not there, even if none of these metrics needs it.
        MetricError: a metric needs something that is not there.
    """
    from capbench.metrics.asking import asked_metrics, refuse_waiting

    requests, resources = asked_metrics(
        names, given.options(), given.stored(), lambda left: given.resources(left, root)
    )
    _refuse_absent(requests, resources)
    note_left_out(names, resources)
    if sample:
        resources = with_sample(requests, resources, root)
    refuse_waiting(requests, resources)
    return requests, resources


def _refuse_absent(requests: Sequence[MetricRequest], resources: Resources) -> None:
    """Refuse files that are not there. What is wrong with weights that a metric takes, the metric says itself."""
    from capbench.metrics.needs import GivenModel

    for store in filter(None, (resources.features, *resources.features_of.values())):
        check_store(store)
    taking = [request for request in requests if request.needs(GivenModel)]
    taken = {name for request in taking for name in (request.label, request.metric.name)}
    left = [path for name, path in resources.models.items() if name not in taken]
    left += [resources.model] if resources.model is not None and not taking else []
    for path in left:
        if Path(path).expanduser().exists():
            continue
        from capbench.models.registry import is_known

        if not is_known(path):
            raise ModelError(
                "there is no such model, and none of these metrics takes it",
                path=path,
                hint="Correct the path, or leave it out",
            )


def check_store(path: str) -> None:
    """Raise FeatureError if there is no file of features."""
    if not Path(path).exists():
        raise FeatureError(
            "there is no such feature store", path=path, hint="Make one with 'capbench extract-features'"
        )


def note_left_out(names: Sequence[str], resources: Resources) -> None:
    """Name on stderr the metrics that ``all`` leaves out since the weights' name stands for none of theirs."""
    from capbench.metrics.requests import without_such_weights

    if "all" not in names or resources.model is None:
        return
    left_out = without_such_weights(resources)
    if left_out:
        common.note(
            f"all, without {', '.join(left_out)}: --model {resources.model} is none for them; "
            "give theirs with --model NAME=FILE"
        )


@dataclass(frozen=True)
class Opened:
    """Metrics beside a data set under one protocol: what commands that look at one protocol begin with.

    Attributes:
        dataset: the data set.
        protocol: one of its protocols.
        requests: the metrics.
        resources: what was given to them.
        sample: whether the data is the embedded sample.
    """

    dataset: Dataset
    protocol: Protocol
    requests: tuple[MetricRequest, ...]
    resources: Resources
    sample: bool


def open_judged(
    metrics: Sequence[str],
    target: Target,
    given: Given,
    *,
    resolve: Callable[[Dataset, str | None], Protocol] | None = None,
    one_alone: UsageError | None = None,
    json_output: bool = False,
) -> Opened:
    """Open what is asked for, and say on which data it is: the data folder, then metrics, data set and protocol.

    Args:
        metrics: their names.
        target: the data set and the protocol; the protocol's id may name a group of the data set.
        given: what the command line gives the metrics.
        resolve: finds the protocol; default: :meth:`capbench.datasets.base.Dataset.protocol`.
        one_alone: raised if there is but one column of scores.
        json_output: whether stdout is JSON.

    Raises:
        UsageError: the data folder, a metric, an option or the data set does not fit; the first of them is told.
        MetricError: a metric needs something that is not there.
        ProtocolError: the protocol is not one of the data set's.
        DataError: imported judgements or the file given do not hold what they should.
    """
    from capbench.datasets.opening import open_dataset

    root, name = given.root(), target.grouped_dataset
    requests, resources = requested(metrics, given, root, sample=is_sample_data(root, name))
    if one_alone is not None and sum(len(request.columns) for request in requests) < 2:
        raise one_alone
    opened = open_dataset(name, root)
    chosen = opened.protocol(target.protocol) if resolve is None else resolve(opened, target.protocol)
    common.announce_root(root, json_output=json_output, used=opened.under_root)
    return Opened(opened, chosen, requests, resources, root.is_sample and opened.under_root)


def parse_options(options: list[str]) -> dict[str, dict[str, Any]]:
    """Parse ``name.option=value`` arguments: ``cider.df=coco-val`` → ``{"cider": {"df": "coco-val"}}``.

    Without a name the owner is :data:`capbench.metrics.requests.FOR_ALL`. Values are read as YAML scalars, so
    ``1.5``, ``5e-4``, ``true`` and ``null`` are what they look like.

    Raises:
        UsageError: an argument is not of that form, or an option is given twice.
    """
    parsed: dict[str, dict[str, Any]] = {}
    if not options:
        return parsed
    from capbench.yaml_files import parse_value

    for text in options:
        name, equals, value = text.partition("=")
        owner, dot, option = name.strip().rpartition(".")
        if not equals or not option or (dot and not owner):
            raise UsageError(f"--option {text}: not of the form metric.option=value", hint="Example: cider.df=coco-val")
        if option in parsed.get(owner, {}):
            raise UsageError(f"--option {name.strip()} is given twice", hint="Give it once")
        try:
            parsed.setdefault(owner, {})[option] = parse_value(value)
        except ValueError as error:
            raise UsageError(f"--option {text}: the value cannot be read", hint="Put it in quotes") from error
    return parsed


def parse_scores(text: str) -> ScoresEntry:
    """Parse a ``--scores`` argument, ``FILE`` or ``NAME=FILE``.

    Raises:
        UsageError: the name cannot be one.
    """
    from capbench.metrics.from_file import ScoresEntry
    from capbench.metrics.requests import split_label

    # A path may hold '=', too.
    if Path(text).exists() or "=" not in text or "/" in text.partition("=")[0]:
        return ScoresEntry(text)
    try:
        label, path = split_label(text)
    except UsageError as error:
        hint = "Write NAME=FILE, with a name of letters, digits, '-', '_' and '+'"
        raise UsageError(f"--scores {text}: no name, or no file", hint=hint) from error
    return ScoresEntry(path, label)


def parse_files(flag: str, texts: Sequence[str], labels: Sequence[str]) -> tuple[str | None, dict[str, str]]:
    """Parse ``--features`` or ``--model`` arguments: the file for all, if one is given, and files by label or metric.

    Args:
        flag: the flag, for messages.
        texts: its values, ``FILE`` or ``NAME=FILE``.
        labels: labels that were given to metrics, which may be named beside the metrics themselves.

    Raises:
        UsageError: two files for all, or for one name; or a name that is neither a metric's nor a label.
    """
    from capbench import plugins

    for_all: str | None = None
    by_name: dict[str, str] = {}
    known = [*labels, *(name for name in plugins.names("capbench.metrics") if name not in labels)]
    for text in texts:
        name, equals, path = text.partition("=")
        # A path may hold '=': what stands before it is a name only if it looks like one.
        if equals and name and not Path(text).exists() and "/" not in name and "\\" not in name:
            if name not in known and ":" not in name:
                raise UsageError(f"{flag} {text}: there is no metric '{name}'", hint=suggest(name, known))
            if not path or name in by_name:
                raise UsageError(f"{flag} {text}: give one file for '{name}'", hint=f"Example: {flag} tiger=FILE")
            by_name[name] = path
        elif for_all is not None:
            raise UsageError(f"{flag} {text}: a second file for all metrics", hint="Write METRIC=FILE")
        else:
            for_all = text
    return for_all, by_name
