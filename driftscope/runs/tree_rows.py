"""From the trees of a prompt to rows of the run's table `trees`."""

from __future__ import annotations

import numpy as np
import pandas as pd
import torch

from driftscope.chain.prompt_chains import Subject
from driftscope.chain.tree import Trees


def tree_rows(subject: Subject, variant: str, trees: Trees, steps: int) -> pd.DataFrame:
    """A row per anchor and step: the smallest number of nodes with which the text's token of that step is accepted."""
    anchors = subject.anchors
    ahead = subject.text.token_ids[anchors[:, None] + 2 + torch.arange(steps, device=anchors.device)]
    nodes = trees.accepted_at(ahead).cpu().numpy()
    column = pd.array(nodes.ravel(), "Int32")
    column[nodes.ravel() == 0] = pd.NA
    return pd.DataFrame(
        {
            "variant": variant,
            "prompt": subject.capture.prompt_id,
            "anchor": np.repeat(anchors.cpu().numpy(), steps),
            "step": np.tile(np.arange(1, steps + 1), len(anchors)),
            "loop": np.repeat(subject.looping, steps),
            "nodes": column,
        }
    )
