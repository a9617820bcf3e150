"""From a `RunConfig` to a finished run folder."""
