"""What was drawn, row by row, while sampling goes on."""

from __future__ import annotations

import torch
from torch import Tensor

from assay.engines.inverse_cdf import Drawn
from assay.engines.request import Sampled


class Record:
    """What was drawn, (B, T) each, and where each row ended."""

    def __init__(self, rows: int, steps: int, device: torch.device) -> None:
        self.tokens = torch.zeros(rows, steps, dtype=torch.long, device=device)
        self.logps = torch.zeros(rows, steps, device=device)
        self.entropies = torch.zeros(rows, steps, device=device)
        self.lengths = torch.full((rows,), steps, device=device)
        self.ended = torch.zeros(rows, dtype=torch.bool, device=device)

    def note(self, active: Tensor, step: int, drawn: Drawn, ends: Tensor) -> Tensor:
        """Write one token a row; return which of the active rows go on."""
        self.tokens[active, step], self.logps[active, step], self.entropies[active, step] = drawn
        done = torch.isin(drawn.token_B, ends)
        self.lengths[active[done & ~self.ended[active]]] = step + 1
        self.ended[active[done]] = True
        return ~self.ended[active]

    def completions(self) -> list[Sampled]:
        """One a row, cut at its end."""
        columns = (self.tokens, self.logps, self.entropies, self.lengths, self.ended)
        return [
            Sampled(ids[:length], logps[:length], entropies[:length], "eos" if ended else "length")
            for ids, logps, entropies, length, ended in zip(*(c.tolist() for c in columns), strict=True)
        ]
