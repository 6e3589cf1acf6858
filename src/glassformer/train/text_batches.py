"""Windows of running text as batches, by what is learned from them."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from glassformer.data.batch import Batch
from glassformer.data.config import DataConfig
from glassformer.data.token_file import TokenFile


def next_tokens(tokens: TokenFile, starts: NDArray[np.int64], length: int, data: DataConfig) -> Batch:
    """Rows of `length` tokens to read, and the one behind them: the objective shifts."""
    return Batch(torch.from_numpy(tokens.take(starts, length + 1)))
