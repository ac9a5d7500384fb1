"""Molecules in: corpora without labels, tables with measured properties, splits, masking and batching."""
