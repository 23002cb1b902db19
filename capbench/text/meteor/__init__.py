"""METEOR 1.5 for English without Java: the jar's counts and scores, computed from the jar's data files.

The stages exact, stem (Snowball English), synonym (WordNet) and paraphrase, the normaliser, the beam search for the
alignment and the choice of the best reference follow the jar that pycocoevalcap runs (``-l en -norm``), also where it
differs from its paper (Denkowski and Lavie 2014, Meteor universal, WMT).
"""
