"""Real text as a task: sources of the standard library, or a folder of files, as bytes or byte-pair tokens."""

from tasks.text.task import TextTask

__all__ = ["TextTask"]
