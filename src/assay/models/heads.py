"""A scalar head on a policy's backbone: the learned reward (K heads at the last token) and the critic."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from assay.errors import BadInput
from assay.models.checkpoint import load_policy
from assay.models.policy import Policy

HEAD_FILE = "scalar_head.safetensors"

Ids = Sequence[Sequence[int]]


class ScalarHead(nn.Module):
    """K linear readings of a hidden state; weights start at 0, so that an untrained head says 0 everywhere.

    Attributes:
        mean_K, scale_K: what :meth:`RewardModel.calibrate` measured; outputs are ``(raw - mean) / scale``.
    """

    def __init__(self, hidden_size: int, heads: int = 1) -> None:
        super().__init__()
        if heads < 1:
            raise BadInput(f"expected at least one head, got {heads}")
        self.linear = nn.Linear(hidden_size, heads)
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)
        self.register_buffer("mean_K", torch.zeros(heads))
        self.register_buffer("scale_K", torch.ones(heads))
        self.mean_K: Tensor
        self.scale_K: Tensor

    def forward(self, hidden: Tensor) -> Tensor:
        """Readings of the last axis: (..., H) to (..., K), in float32."""
        raw = self.linear(hidden.to(self.linear.weight.dtype)).float()
        return (raw - self.mean_K) / self.scale_K


class ScalarModel(nn.Module):
    """A backbone of its own and a scalar head, trained together.

    The backbone is a copy: training it leaves the policy it came from alone.
    """

    def __init__(self, policy: Policy, heads: int = 1) -> None:
        super().__init__()
        self.policy = policy.frozen_copy()
        self.policy.module.requires_grad_(True)
        self.backbone = self.policy.module
        weight_VH = self.policy.head()[0]
        self.head = ScalarHead(weight_VH.shape[1], heads).to(weight_VH.device)

    @property
    def heads(self) -> int:
        """K."""
        return self.head.linear.out_features

    def values(self, prompt_ids: Ids, completion_ids: Ids) -> Tensor:
        """Value of the state before each completion token, first head, (B, T); padding positions undefined."""
        return self.head(self.policy.completion_hidden(prompt_ids, completion_ids))[..., 0].cpu()

    def last_token(self, prompt_ids: Ids, completion_ids: Ids) -> Tensor:
        """Readings after the last real token of each row, (B, K): never at a pad.

        The hidden state that predicts a further token is the one after the last token; which further token
        that is cannot matter, because a causal model has not read it yet.
        """
        longer = [[*ids, self.policy.pad_id] for ids in completion_ids]
        hidden_BTH = self.policy.completion_hidden(prompt_ids, longer)
        last_B = torch.tensor([len(ids) for ids in completion_ids], device=hidden_BTH.device)
        rows_B = torch.arange(len(last_B), device=hidden_BTH.device)
        return self.head(hidden_BTH[rows_B, last_B]).cpu()

    def save(self, folder: Path) -> None:
        """Write the backbone in Hugging Face format and the head beside it, into an existing folder."""
        self.policy.save(folder)
        state = {name: value.contiguous() for name, value in self.head.state_dict().items()}
        save_file(state, folder / HEAD_FILE)

    @classmethod
    def load(cls, folder: str | Path) -> ScalarModel:
        """Read a folder written by :meth:`save`."""
        path = Path(folder) / HEAD_FILE
        if not path.is_file():
            raise BadInput(f"expected a reward model's folder (with {HEAD_FILE}), got {folder}")
        state = load_file(path)
        model = cls(load_policy(folder), heads=state["linear.weight"].shape[0])
        model.head.load_state_dict(state)
        return model
