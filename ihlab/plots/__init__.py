"""Pictures of tables: matplotlib for print, plotly for reading. Draws DataFrames, computes nothing."""
