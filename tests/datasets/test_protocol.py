"""Protocol ids: every built-in data set's defaults, names and other spellings."""

from __future__ import annotations

import pytest

from capbench.core.errors import ProtocolError
from capbench.datasets.base import Dataset, load_dataset
from tests.errors import raises

BUILT_IN = (
    *("flickr8k-expert", "flickr8k-crowdflower", "composite", "pascal-50s", "nocaps", "foil", "foil-full"),
    *("flickr8k-pseudo", "flickr8k-swaps", "distractions", "thumb", "nebula", "polaris", "hm-coco", "hm-flickr8k"),
    *("valse", "sugarcrepe", "iiw", "context-sighted", "context-blv"),
)


@pytest.fixture(params=BUILT_IN)
def dataset(request: pytest.FixtureRequest) -> type[Dataset]:
    return load_dataset(request.param)


def test_every_id_leads_back_to_itself(dataset: type[Dataset]) -> None:
    for items in dataset.selections:
        for statistic in dataset.statistics:
            text = f"{dataset.name}/{items}/{statistic}"
            assert str(dataset.protocol(text)) == text
            assert str(dataset.protocol(f"{items}/{statistic}")) == text


@pytest.mark.parametrize(
    ("name", "text", "meant"),
    [
        ("flickr8k-expert", "mean-spearman", "no-own-captions/mean-spearman"),
        ("flickr8k-expert", "one-reference", "one-reference/unaggregated-tau-c"),
        ("flickr8k-crowdflower", "spearman", "own-reference-out/spearman"),
        ("composite", "same-text-out/tau-c", "same-text-out/correctness-tau-c"),
        ("composite", "composite/any-candidate-out/spearman", "any-candidate-out/correctness-spearman"),
        ("composite", "tau-b", "any-candidate-out/correctness-tau-b"),
        ("pascal-50s", "consensus", "random-5-refs/consensus-strict"),
        ("nocaps", "nocaps", "first-vs-rest/mean"),
        ("foil", "ties-half", "own-caption-out/right-ties-half"),
        ("flickr8k-swaps", "attribute", "changed-reference-out/attribute-strict"),
    ],
)
def test_other_spellings_are_understood(name: str, text: str, meant: str) -> None:
    assert str(load_dataset(name).protocol(text)) == f"{name}/{meant}"


@pytest.mark.parametrize(
    ("text", "code", "value"),
    [
        ("no-own-caption", "unknown-name", "no-own-caption"),
        ("all-pairs/tau-d", "unknown-name", "tau-d"),
        ("composite/same-text-out/tau-c", "mismatch", "composite/same-text-out/tau-c"),
        ("a/b/c/d", "wrong-value", "a/b/c/d"),
        ("within-source-tau-b", "unsupported", "within-source-tau-b"),
        ("all-pairs/system-pearson", "unsupported", "system-pearson"),
        ("within-image-tau-d", "unknown-name", "within-image-tau-d"),
        ("tau-b", "ambiguous", "tau-b"),
    ],
)
def test_unknown_protocols_are_refused_with_the_choices(text: str, code: str, value: object) -> None:
    with raises(ProtocolError, code, value=value):
        load_dataset("flickr8k-expert").protocol(text)
