"""Pictures of tables: matplotlib, colour-blind-safe. Draws DataFrames, computes nothing."""
