def encode(tokenizer, texts, longest):
    """The tokens of texts, padded to the longest of them, none with more than so many."""
    padding = next(name for name in ("[PAD]", "<pad>", "<|pad|>") if tokenizer.token_to_id(name) is not None)
    tokenizer.enable_truncation(longest)
    tokenizer.enable_padding(pad_id=tokenizer.token_to_id(padding), pad_token=padding)
    return tokenizer.encode_batch(texts)
