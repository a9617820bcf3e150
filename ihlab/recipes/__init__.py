"""Configs that several studies or the suite need: tasks, models, learning rates, seeds. They
contain no claims.
"""
