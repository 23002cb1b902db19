from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

WORDS = """
    a the dog cat dogs run ##s ##ning sits stands on in grass ball red blue man woman two with . , ' s it is un ##known
    street photo of people water
""".split()  # noqa: SIM905  (a list of them would take a line each)


def make_bert(folder: Path, kind: str = "bert", layers: int = 3, hidden_size: int = 16) -> Path:
    import transformers
    from tokenizers.pre_tokenizers import ByteLevel

    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    shape: dict[str, Any] = {"num_hidden_layers": layers, "num_attention_heads": 2, "intermediate_size": 32}
    shape["hidden_size"] = hidden_size
    if kind == "roberta":
        # All bytes are pieces, as in the published networks.
        pieces = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", *sorted(ByteLevel.alphabet())]
        (folder / "vocab.json").write_text(json.dumps({piece: place for place, piece in enumerate(pieces)}))
        (folder / "merges.txt").write_text("#version: 0.2\n")
        # By place, since these arguments have other names before transformers 5.
        tokenizer = transformers.RobertaTokenizerFast(
            str(folder / "vocab.json"), str(folder / "merges.txt"), add_prefix_space=True
        )
        tokenizer.model_max_length = 60
        ends: dict[str, Any] = {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}
        config = transformers.RobertaConfig(vocab_size=len(pieces), max_position_embeddings=62, **ends, **shape)
        network = transformers.RobertaModel(config)
    else:
        pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
        (folder / "vocab.txt").write_text("\n".join(pieces) + "\n")
        tokenizer = transformers.BertTokenizerFast(str(folder / "vocab.txt"))
        tokenizer.model_max_length = 40
        if kind == "distilbert":
            config = transformers.DistilBertConfig(
                vocab_size=len(pieces), dim=16, n_layers=layers, n_heads=2, hidden_dim=32, max_position_embeddings=40
            )
            network = transformers.DistilBertModel(config)
        else:
            config = transformers.BertConfig(
                vocab_size=len(pieces), max_position_embeddings=40, initializer_range=0.3, **shape
            )
            network = transformers.BertModel(config)
    tokenizer.save_pretrained(folder)
    network.save_pretrained(folder)
    return folder
