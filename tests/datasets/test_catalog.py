from __future__ import annotations

import re
from pathlib import Path

from capbench.datasets.base import dataset_names, load_dataset
from capbench.datasets.captions import CORPORA
from capbench.datasets.catalog import Need, catalog


def test_every_file_belongs_to_a_data_set() -> None:
    known = catalog()
    used = {file for entry in known.datasets.values() for file in entry.files}
    alternative = {"flickr8k/dataset_flickr8k.json"}
    assert set(known.files) - used <= alternative


def test_the_captions_of_every_data_set_and_corpus_have_terms() -> None:
    terms = catalog().captions
    assert set(terms) >= {*CORPORA, *dataset_names()}
    permitted = "CC BY |BSD$|MIT$"
    restricted = "none stated|not commercial|your file"
    assert all(re.search(permitted if of.derived else restricted, of.licence) for of in terms.values())


def test_open_sets_have_addresses_sizes_and_licences() -> None:
    known = catalog()
    names = [name for name in known.datasets if known.is_open(name)]
    assert {"valse", "sugarcrepe", "iiw", "context-sighted", "context-blv"} <= set(names)
    for source in (name for name, entry in known.sources.items() if entry.open):
        assert known.sources[source].licence in ("MIT", "CC BY 4.0", "free")
        assert all(entry.url and entry.size for entry in known.of_source(source).values()), source
    assert known.address("thumb/mscoco_THumB-1.0.jsonl") is None
    assert all(entry.judgements and known.licence(name) != "see its terms" for name, entry in known.datasets.items())


def test_the_catalog_agrees_with_itself() -> None:
    known = catalog()
    assert {file for entry in known.datasets.values() for file in entry.files} <= set(known.files)
    assert {entry.source for entry in known.files.values()} <= set(known.sources)
    for path, entry in known.files.items():
        assert not Path(path).is_absolute()
        assert ".." not in Path(path).parts
        assert entry.url is None or entry.sha256 is not None
        for count in entry.counts:
            assert (count.expected is None) != (count.minimum is None)
            assert (count.how == "mat") == bool(count.variable)


def test_a_need_is_met_by_any_complete_alternative(tmp_path: Path) -> None:
    need = Need(role="captions", any_of=(("a", "b"), ("c",)))
    assert need.met(tmp_path.joinpath) is None
    (tmp_path / "a").touch()
    assert need.met(tmp_path.joinpath) is None
    (tmp_path / "c").touch()
    assert need.met(tmp_path.joinpath) == ("c",)
    (tmp_path / "b").touch()
    assert need.met(tmp_path.joinpath) == ("a", "b")


def test_the_sample_meets_the_needs_of_every_default_data_set(sample: Path) -> None:
    for name in (name for name in dataset_names() if load_dataset(name).in_default):
        needs = catalog().datasets[name].needs
        assert [need.role for need in needs if need.needed and need.met(sample.joinpath) is None] == [], name
