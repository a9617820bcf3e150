"""Training: it turns a `RunConfig` into a finished run folder."""
