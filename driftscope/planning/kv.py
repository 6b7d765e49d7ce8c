"""A target with a KV cache, as an engine runs it."""

from __future__ import annotations

from typing import Any

from jaxtyping import Float, Int
from torch import Tensor
from transformers import DynamicCache

from driftscope.errors import TargetError
from driftscope.target.model import Target


class CachedTarget:
    """Forwards that continue one another; `drop` takes back the last rows."""

    def __init__(self, target: Target, cache: Any = None) -> None:
        self.target = target
        self.cache = DynamicCache(config=target.text_config) if cache is None else cache
        # Releases of transformers differ in the name.
        self._name = "cache" if target.accepts("cache") else "past_key_values"

    def forward(self, token_ids: Int[Tensor, "batch row"]) -> Float[Tensor, "batch row vocab"]:
        """Logits behind every row."""
        made = self.target.model(input_ids=token_ids.to(self.target.device), use_cache=True, **{self._name: self.cache})
        logits: Tensor = made.logits
        return logits

    def drop(self, rows: int) -> None:
        """Forget the last `rows` rows. TargetError for a target whose cache cannot."""
        if rows:
            try:
                self.cache.crop(-rows)
            except (AttributeError, NotImplementedError, ValueError) as error:
                reason = str(error).partition("\n")[0]
                raise TargetError(
                    f"target {self.target.name}: its cache cannot drop rows ({reason}): give --costs instead"
                ) from error

    def copies(self, batch: int) -> CachedTarget:
        """The same cache for each of `batch` requests; this one is left as it is."""
        import copy

        own = copy.deepcopy(self.cache)
        if batch > 1:
            own.batch_repeat_interleave(batch)
        return CachedTarget(self.target, own)
