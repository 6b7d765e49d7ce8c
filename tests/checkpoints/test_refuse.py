"""What is recognised and not opened, by name and with the reason."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from driftscope.checkpoints import inspect_checkpoint, open_checkpoint
from driftscope.errors import CheckpointError
from tests.checkpoints.layouts import stored

TENSORS, CONFIG = stored(layout="vllm")
MODEL = [
    "embed_tokens.weight", "norm.weight",
    *(f"layers.{i}.{name}.weight" for i in range(3) for name in ("input_layernorm", "self_attn.q_proj", "mlp.up_proj")),
]  # fmt: skip
NO_CHAIN = "hands no state from step to step"


def add(*names: str) -> list[str]:
    return [*TENSORS, *names]


@pytest.mark.parametrize(
    ("names", "config", "pattern"),
    [
        ([f"model.{name}" for name in MODEL] + ["lm_head.weight"], {}, "full language model of 3 layers.*is it the target"),
        (["transformer.h.0.attn.c_attn.weight", "transformer.h.1.attn.c_attn.weight"], {}, "full language model of 2"),
        (["embed_tokens.weight", "norm.weight", "layers.0.mlp.up_proj.weight"], {}, "ordinary language model of one"),
        (["base_model.model.layers.0.self_attn.q_proj.lora_A.weight"], {}, "LoRA adapter.*merge"),
        (["medusa_head.0.0.linear.weight"], {}, f"Medusa heads: .*{NO_CHAIN}"),
        (["0.0.linear.weight", "0.1.weight"], {}, "Medusa heads"),
        (["hydra_mlp.0.weight"], {}, f"Hydra heads.*{NO_CHAIN}"),
        (["speculator.emb.0.weight"], {}, "MLP speculator"),
        (add(), {"eagle_config": {"parallel_draft_step": 4}}, "parallel drafting.*no mask_hidden"),
        (add(), {"parallel_drafting": True}, "parallel drafting.*no mask_hidden"),
        (add(), {"pard_token": 3}, "PARD"),
        (["fc.weight", "hidden_norm.weight", "markov_head.weight"], {}, "Markov chain.*DFlash and P-EAGLE are read"),
        (["fc.weight", "hidden_norm.weight", "layers.0.attention_conv.base_kernel"], {}, "a DFlash2 drafter"),
        (["fc.weight", "hidden_norm.weight"], {"architectures": ["DSparkDraftModel"]}, "block drafter of another kind"),
        (add(), {"speculators_model_type": "dspark"}, "of type 'dspark'; .* eagle3, eagle, mtp, peagle, dflash are read"),
        (["mtp.layers.0.enorm.weight", "mtp.layers.0.mlp.up_proj.weight"], {}, "MTP head, but not of the form of DeepSeek"),
        (["model.mtp_block.0.mlp.up_proj.weight", "model.mtp_linear_proj.0.weight"], {}, "MTP head, but not of the form"),
        (["layers.61.eh_proj.weight", "layers.62.eh_proj.weight"], {}, r"several MTP heads.*layers\.62"),
        (["mtp.pre_fc_norm_hidden.weight", "mtp.layers.1.mlp.up_proj.weight"], {}, r"several MTP heads.*mtp\.layers\.1"),
        (["fc.weight", "layers.0.mlp.experts.0.up_proj.weight", "layers.0.hidden_norm.weight"], {}, r"experts \(MoE\)"),
        (["fc.weight", "embedding_layernorm.weight", "layers.0.mlp.up_proj.weight"], {}, "EAGLE-1 variant with norms"),
        (["layers.0.self_attn.qkv_proj.weight", "fc.weight"], {}, "fused q, k and v.*unfused"),
        (["layers.0.self_attn.q_proj.qweight", "fc.weight"], {}, "GPTQ or AWQ, quantised weights.*unquantised"),
        (["fc.weight", "layers.0.mlp.up_proj.weight.quant_state.bitsandbytes__nf4"], {}, "bitsandbytes, quantised"),
        (["fc.weight", "layers.0.mlp.up_proj.weight_scale_2"], {}, "NVFP4, quantised weights"),
        (["fc.weight", "layers.0.mlp.up_proj.weight_global_scale"], {}, "NVFP4, quantised weights"),
        (["fc.weight", "layers.0.mlp.experts.gate_up_proj_blocks"], {}, "MXFP4, quantised weights"),
        (["fc.weight", "layers.0.mlp.up_proj.weight_packed"], {}, "packed or sparse, quantised weights"),
        (["encoder.weight", "decoder.weight"], {}, "no drafter layout that is known here"),
    ],
)  # fmt: skip
def test_named_and_refused(names: list[str], config: dict[str, Any], pattern: str, tmp_path: Path):
    save_file({name: torch.ones(2, 2) for name in names}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(config))
    for call in (open_checkpoint, inspect_checkpoint):
        with pytest.raises(CheckpointError, match=pattern) as caught:
            call(tmp_path)
        assert "\n" not in str(caught.value)
        assert str(caught.value).startswith(str(tmp_path))


def test_adapter_folders(tmp_path: Path):
    (tmp_path / "adapter_config.json").write_text("{}")
    save_file({"x.y": torch.ones(1)}, tmp_path / "adapter_model.safetensors")
    for path in (tmp_path, tmp_path / "adapter_model.safetensors"):
        with pytest.raises(CheckpointError, match="a LoRA adapter"):
            open_checkpoint(path)


def test_what_is_read_is_not_refused(tmp_path: Path):
    save_file(TENSORS, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(CONFIG | {"eagle_config": {"parallel_draft_step": 1}}))
    assert open_checkpoint(tmp_path).config.num_layers == 1
