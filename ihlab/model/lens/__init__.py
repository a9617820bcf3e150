"""TransformerLens' interface: its names for weights, and ids, texts and masks in the forms that its
tools use.
"""
