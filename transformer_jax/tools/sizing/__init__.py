"""Sizes and length of a run that follow from its text and a time budget (``--budget``), and the
watch on that budget.
"""
