"""The n-gram engine of BLEU, ROUGE-L and CIDEr-D."""
