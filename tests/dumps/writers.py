"""Hidden states on disk as the peers write them, from their documented formats."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import torch
from safetensors.torch import save_file
from torch import Tensor

from driftscope.captures.capture import Capture


def stack(record: Capture, boundaries: Sequence[int]) -> Tensor:
    """[T, state, H]."""
    return torch.stack([record.boundaries[b] for b in boundaries], 1)


def mask(record: Capture) -> Tensor:
    """1 at the answer's tokens."""
    return (torch.arange(record.length) >= record.prompt_length).long()


def vllm(folder: Path, records: Sequence[Capture], boundaries: Sequence[int]) -> Path:
    """The connector of extract_hidden_states: one file a request, with a lock file beside it."""
    folder.mkdir(parents=True)
    for record in records:
        file = folder / f"cmpl-{record.prompt_id}.safetensors"
        save_file({"hidden_states": stack(record, boundaries), "token_ids": record.token_ids.clone()}, file)
        file.with_name(f"{file.name}.lock").touch()
    return folder


def speculators(folder: Path, records: Sequence[Capture], boundaries: Sequence[int]) -> Path:
    """Offline data since 0.5: an Arrow data set, and `hidden_states/hs_{row}.safetensors`."""
    states = folder / "hidden_states"
    states.mkdir(parents=True)
    columns = {
        "input_ids": [record.token_ids.tolist() for record in records],
        "loss_mask": [mask(record).tolist() for record in records],
    }
    table = pa.table(columns)
    with (
        pa.OSFile(str(folder / "data-00000-of-00001.arrow"), "wb") as sink,
        pa.ipc.new_stream(sink, table.schema) as out,
    ):
        out.write_table(table)
    for row, record in enumerate(records):
        tensors = {"hidden_states": stack(record, boundaries), "token_ids": record.token_ids.clone()}
        save_file(tensors, states / f"hs_{row}.safetensors")
    return states


def speculators_before(folder: Path, records: Sequence[Capture], boundaries: Sequence[int]) -> Path:
    """Offline data before 0.5: a list of layers a file."""
    folder.mkdir(parents=True)
    for row, record in enumerate(records):
        held = {
            "input_ids": record.token_ids,
            "hidden_states": [record.boundaries[b] for b in boundaries],
            "loss_mask": mask(record),
        }
        torch.save(held, folder / f"data_{row}.pt")
    return folder


def specforge(
    folder: Path, records: Sequence[Capture], boundaries: Sequence[int], *, packed: bool = False, padding: int = 0
) -> Path:
    """prepare_hidden_states: aux states side by side, the state after the final norm beside them."""
    group = folder / "rows_0-2000"
    group.mkdir(parents=True)

    def padded(value: Tensor) -> Tensor:
        return torch.cat([value, value[:1].expand(padding, *value.shape[1:]) * 0])

    for row, record in enumerate(records):
        held = {
            "input_ids": padded(record.token_ids),
            "loss_mask": padded(mask(record)),
            "aux_hidden_state": padded(stack(record, boundaries).flatten(1))[None],
            "hidden_state": padded(record.final)[None],
        }
        if packed:
            with gzip.open(group / f"data_{row}.ckpt.gz", "wb") as out:
                torch.save(held, out)
        else:
            torch.save(held, group / f"data_{row}.ckpt")
    return folder


def torchspec(folder: Path, records: Sequence[Capture], boundaries: Sequence[int], *, last: int | None = None) -> Path:
    """Offline features; the last state before the final norm where `last` is the boundary, else after it."""
    folder.mkdir(parents=True)
    for row, record in enumerate(records):
        state = record.final if last is None else record.boundaries[last]
        held = {
            "input_ids": record.token_ids,
            "loss_mask": mask(record),
            "aux_hidden_states": stack(record, boundaries).flatten(1)[None],
            "hidden_states": state[None],
        }
        torch.save(held, folder / f"{row}.ckpt")
    return folder


def torchspec_step(folder: Path, records: Sequence[Capture], boundaries: Sequence[int]) -> Path:
    """The debug dump of a training step: one padded batch."""
    folder.mkdir(parents=True)
    longest = max(record.length for record in records)

    def padded(values: list[Tensor]) -> Tensor:
        return torch.stack([torch.cat([v, v[:1].expand(longest - len(v), *v.shape[1:]) * 0]) for v in values])

    batch = {
        "input_ids": padded([record.token_ids for record in records]),
        "attention_mask": padded([torch.ones(record.length, dtype=torch.long) for record in records]),
        "loss_mask": padded([mask(record) for record in records]),
        "hidden_states": padded([stack(record, boundaries).flatten(1) for record in records]),
        "target": None,
        "last_hidden_states": padded([record.final for record in records]),
    }
    torch.save({"step": 1, "batch_idx": 0, "rank": 0, "batch": batch}, folder / "batch_1_0_rank0.pt")
    return folder
