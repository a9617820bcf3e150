"""Labels of attention variants, in tables, claims and pictures."""

ATTENTION_LABELS = {
    "vanilla": "vanilla",
    "kv_shift": "KV shifting",
    "k_shift": "K only",
    "v_shift": "V only",
}
"""Label of each attention variant, by its value of `ModelConfig.attention`."""

VANILLA, KV, K_ONLY, V_ONLY = ATTENTION_LABELS.values()
