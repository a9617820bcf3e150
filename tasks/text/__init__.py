"""Real text as a task: the standard library's sources or a folder of files, as bytes or byte-pair tokens."""

from tasks.text.task import TextTask

__all__ = ["TextTask"]
