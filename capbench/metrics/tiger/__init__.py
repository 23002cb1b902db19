"""TIGEr (Jiang et al., EMNLP-IJCNLP 2019): does a caption ground in the image as people's captions do?"""
