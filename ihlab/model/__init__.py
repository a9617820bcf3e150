"""The network: a Llama-style transformer, vanilla or with KV shifting attention, that
TransformerLens can hook.
"""
