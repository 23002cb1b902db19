"""ViLBERTScore (Lee et al., Eval4NLP 2020): greedy matching of word states that ViLBERT computes with the image."""
