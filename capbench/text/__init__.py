"""Text processing: PTB tokenisation, n-grams, METEOR, SPICE, vocabularies, word vectors."""
