"""BERTScore (Zhang et al., ICLR 2020), BERT-TBR (Yi et al., ACL 2020), and BERT."""
