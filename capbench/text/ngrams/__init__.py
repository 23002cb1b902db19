"""The n-gram engine behind BLEU, ROUGE-L and CIDEr-D."""
