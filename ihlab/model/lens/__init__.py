"""TransformerLens' surface: its names for weights, and ids, texts and attention masks as its tools give them."""
