"""The script of each report runs as it is printed, in a process of its own, and prints what the
report says.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest

REPORTS = Path(__file__).parents[2] / "docs" / "issues"
PRINTED = {
    "bamba_positions": r"0\.2\d.*\n.*e-0[67]",
    "granite_attention": r"1\.1",
    "hybrid_caches_select": r"0\.[34]",
    "kimi_linear_cu_seqlens": r"kimi_linear .*None.*\n(.*\n)*bailing_hybrid .*None.*\n(.*\n)*olmo_hybrid .*\[0, 4, 9\]",
    "mamba_second_chunk": r"0\.01",
    "minimax_beams": r"\]\]",
    "nemotron_time_steps": r"0\.1 .*0\.00[456]",
    "recurrent_gemma_beams": r"0\.7",
    "rwkv_batch": r"\[2, 2, 50\]",
    "seq_idx_ignored": r"inkling_text .*0\.[56](.*\n)*lfm3",
    "xlstm_padding": r"\]\n",
}
"""What each script prints, keyed by the name of the report."""


def test_every_report_is_listed():
    names = {path.stem for path in REPORTS.glob("[a-z]*.md")}
    assert names == set(PRINTED)
    assert names == set(
        re.findall(r"\((\w+)\.md\)", (REPORTS / "README.md").read_text(encoding="utf-8"))
    )


@pytest.mark.rare
@pytest.mark.parametrize("name", PRINTED)
def test_the_script_of_a_report_shows_the_fault(name):
    (script,) = re.findall(
        r"```python\n(.*?)```", (REPORTS / f"{name}.md").read_text(encoding="utf-8"), flags=re.S
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert re.search(PRINTED[name], done.stdout), done.stdout
