from __future__ import annotations

import pytest

from capbench.text.spice.matching import Graph
from capbench.text.wordnet import WordNet

WORDS = WordNet(
    [
        ("couch", "1 2"),
        ("sofa", "1 2 3"),
        ("bench", "3"),
        ("dog", "10"),
        ("hound", "10 11"),
        ("chase", "11"),
        ("big", "20"),
        ("large", "20"),
        ("on", "30"),
        ("atop", "30"),
        ("side", "40"),
    ]
)


def _graph(*captions: list[list[str]]) -> Graph:
    return Graph(WORDS, captions)


def _objects(graph: Graph) -> list[set[str]]:
    return [node.concept.words for node in graph.nodes]


def test_synonyms_of_several_captions_become_one_object() -> None:
    graph = _graph([["couch"]], [["sofa"]], [["dog"]])
    assert _objects(graph) == [{"couch", "sofa"}, {"dog"}]
    assert graph.nodes[0].concept.synsets == {1, 2, 3}


def test_an_object_is_named_by_attributes_and_relations_too() -> None:
    graph = _graph([["dog", "big"], ["hound", "mat", "on"]])
    assert _objects(graph) == [{"dog", "hound"}, {"mat"}]
    assert graph.relations[0].source is graph.nodes[0]
    assert graph.relations[0].target is graph.nodes[1]


def test_the_object_with_the_greatest_share_of_synonym_sets_takes_the_new_one_in() -> None:
    # sofa {1 2 3}: couch {1 2} has two of three, bench {3} one of three
    assert _objects(_graph([["bench"], ["couch"], ["sofa"]])) == [{"bench"}, {"couch", "sofa"}]


def test_an_object_that_holds_the_word_comes_before_one_with_more_sets_in_common() -> None:
    graph = _graph([["dog"], ["chase"], ["hound"], ["hound"]])
    assert _objects(graph) == [{"dog", "hound"}, {"chase"}]


def test_of_equals_the_first_takes_it() -> None:
    # hound {10 11}: dog {10} and chase {11} have a half each
    assert _objects(_graph([["chase"], ["dog"], ["hound"]])) == [{"chase", "hound"}, {"dog"}]


def test_words_outside_wordnet_meet_only_themselves() -> None:
    assert _objects(_graph([["qwop"], ["zorp"]], [["qwop"]])) == [{"qwop"}, {"zorp"}]


def test_attributes_of_one_object_merge_and_those_of_others_do_not() -> None:
    graph = _graph([["dog", "big"]], [["hound", "large"], ["couch", "large"], ["dog", "wet"], ["dog", "wet"]])
    assert [[a.words for a in node.attributes] for node in graph.nodes] == [[{"big", "large"}, {"wet"}], [{"large"}]]


def test_relations_between_the_same_objects_merge() -> None:
    graph = _graph(
        [["dog", "couch", "on"]],
        [["hound", "sofa", "atop"], ["couch", "dog", "on"], ["dog", "couch", "beat"], ["dog", "couch", "be on"]],
    )
    assert [r.concept.words for r in graph.relations] == [{"on", "atop"}, {"on"}, {"beat"}]


@pytest.mark.parametrize(
    ("given", "kept"), [("be on", "on"), ("beside", "beside"), ("be", "be"), ("maybe on", "maybe on")]
)
def test_a_relation_loses_a_leading_be(given: str, kept: str) -> None:
    (relation,) = _graph([["dog", "couch", given]]).relations
    assert relation.concept.words == {kept}
    assert relation.concept.synsets == WORDS.synsets(kept)


def test_an_object_may_be_related_to_itself_and_tuples_of_four_do_not_count() -> None:
    graph = _graph([["dog", "hound", "on"], ["a", "b", "c", "d"], []])
    assert _objects(graph) == [{"dog", "hound"}]
    assert graph.relations[0].source is graph.relations[0].target


def test_adding_later_is_the_same_as_giving_all_at_once() -> None:
    captions = [[["couch", "big"], ["dog", "couch", "on"]], [["hound", "sofa", "atop"], ["sofa", "large"]]]
    grown = Graph(WORDS)
    for caption in captions:
        grown.add(caption)
    assert grown.nodes == _graph(*captions).nodes
    assert grown.relations == _graph(*captions).relations
