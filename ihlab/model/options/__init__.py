"""The options of a model, by family: the fields of `ModelConfig`, their meaning and their checks. No torch here."""
