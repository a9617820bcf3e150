"""`python -m figures.results`: write the pages of results from the stored claims."""

from pathlib import Path

from .page import write_results_pages

if __name__ == "__main__":
    print(write_results_pages(Path(__file__).parents[1]))
