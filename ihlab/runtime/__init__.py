"""The process that computes: settings of torch, evaluation mode, imports on first use, progress."""
