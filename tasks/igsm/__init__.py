"""iGSM: synthetic word problems of many steps, with solutions that can be checked clause by clause."""

from tasks.igsm.task import IGSMTask, Problems

__all__ = ["IGSMTask", "Problems"]
