"""Training on several processes: rows are shared out, and gradients are those of the whole batch.

Every process samples and scores its own groups and then holds all rollouts, so group statistics, advantages,
the denominator and every metric are worked out on the whole batch, as in one process. Each backpropagates its
rows; DDP (through accelerate) or FSDP2 (torch's ``fully_shard``) adds up the gradients. Sampling and evaluation
use whole weights, which under FSDP2 are brought up to date after each step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from assay.algos.algorithm import LossTerms
from assay.engines.request import Request
from assay.errors import require
from assay.models.huggingface import HuggingFacePolicy
from assay.models.policy import Policy
from assay.records.rollout import Rollout
from assay.tasks.task_set import Task
from assay.train.collect import Collector
from assay.train.ranks import ranks
from assay.train.trainer import Prepared, Trainer

T = TypeVar("T")


class Collective(Collector):
    """Samples and scores this process's groups, and collects those of the others."""

    def _draw(
        self, policy: Policy, step: int, version: int, tasks: Sequence[Task], requests: Sequence[Request]
    ) -> list[Rollout]:
        size = self.config.group_size
        groups = ranks().share(len(requests) // size)
        own = slice(groups.start * size, groups.stop * size)
        rollouts = super()._draw(policy, step, version, tasks[own], requests[own]) if groups else []
        return ranks().gather(rollouts)


class Applied(nn.Module):
    """Calls a function with a policy inside a module's forward, where DDP and FSDP2 do their part."""

    def __init__(self, policy: Policy) -> None:
        super().__init__()
        self.module, self.policy = policy.module, policy

    def forward(self, function: Callable[..., T], *given: Any) -> T:
        """Return ``function(policy, *given)``."""
        return function(self.policy, *given)


@dataclass
class DistributedTrainer(Trainer):
    """The loop of :class:`Trainer`, its updates shared out.

    Attributes:
        sharded: weights, gradients and optimiser split over the processes (FSDP2); else each has them (DDP).
    """

    sharded: bool = field(kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.sharded:
            assert isinstance(self.policy, HuggingFacePolicy)  # the configuration refuses any other
            self._applied: Any = shard(Applied(self.policy.sharding_copy()))
            # By the policy's path, or their KL would be rounding, of which Adam makes a step.
            if isinstance(self.reference, HuggingFacePolicy):
                self.reference = self.reference.with_rows_whole()
            self._trainable = [p for p in self._applied.parameters() if p.requires_grad]
            settings = {
                name: self.optimiser.defaults[name] for name in ("lr", "betas", "eps", "weight_decay")
            }
            self.optimiser = torch.optim.AdamW(self._trainable, **settings, fused=True)
        else:
            self._applied = _replicate(Applied(self.policy))

    def state(self) -> dict[str, Any]:
        """Whole tensors, so that another number of processes can go on."""
        state = super().state()
        state["optimiser"]["state"] = {
            index: {name: _whole(value) for name, value in moments.items()}
            for index, moments in state["optimiser"]["state"].items()
        }
        return state

    def restore(self, state: Any) -> None:
        """Take up whole tensors, and split them where the weights are split."""
        if not self.sharded:
            super().restore(state)
            return
        self._push()
        moments = state["optimiser"]["state"]
        split = {
            index: {name: _like(value, self._trainable[index]) for name, value in moments[index].items()}
            for index in moments
        }
        super().restore({**state, "optimiser": {**state["optimiser"], "state": split}})

    def _terms(
        self, prepared: Prepared, order: list[int], denominator: float, check: bool
    ) -> list[LossTerms]:
        """Every process runs as many micro-batches; one without rows runs another's for a gradient of 0."""
        group, size = ranks(), self.config.micro_batch_size
        own = order[group.rank :: group.size]
        count = -(-len(order[:: group.size]) // size)
        terms = super()._terms(prepared, own, denominator, check)
        for _ in range(count - len(terms)):
            self._micro_batch(prepared, order[:1], math.inf, check)
        return group.gather(terms)

    def _update(self, prepared: Prepared) -> dict[str, float]:
        metrics = super()._update(prepared)
        if self.sharded:
            self._pull()
        return metrics

    def _with_policy(self, function: Callable[..., T], *given: Any) -> T:
        return self._applied(function, *given)

    def _backward(self, loss: Tensor) -> None:
        super()._backward(loss * ranks().size)  # both average over the processes

    def _clip(self) -> Tensor:
        return _whole(super()._clip())

    def _pairs(self) -> list[tuple[nn.Parameter, Any]]:
        whole = [p for p in self.policy.module.parameters() if p.requires_grad]
        return list(zip(whole, self._trainable, strict=True))

    @torch.no_grad()
    def _pull(self) -> None:
        """Bring the weights that are sampled from up to date."""
        for whole, split in self._pairs():
            whole.copy_(_whole(split))

    @torch.no_grad()
    def _push(self) -> None:
        """Split the weights that a checkpoint brought."""
        for whole, split in self._pairs():
            split.copy_(_like(whole.data, split))


def shard(applied: Applied) -> Applied:
    """FSDP2: one unit a decoder layer, and one for the rest."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    module: Any = applied.module
    mesh = init_device_mesh(next(module.parameters()).device.type, (ranks().size,))
    names: set[str] = set(getattr(module, "_no_split_modules", None) or ())
    for part in [part for part in module.modules() if type(part).__name__ in names]:
        fully_shard(part, mesh=mesh)
    fully_shard(applied, mesh=mesh)  # in place
    return applied


def _replicate(applied: Applied) -> nn.Module:
    cpu = next(applied.parameters()).device.type == "cpu"
    return require("accelerate", "train").Accelerator(cpu=cpu).prepare_model(applied)


def _whole(value: Any) -> Any:
    """A split tensor's whole; anything else as it is. Every process has to call it."""
    from torch.distributed.tensor import DTensor

    return value.full_tensor() if isinstance(value, DTensor) else value


def _like(value: Any, split: Any) -> Any:
    """``value`` split as ``split`` is, if it has its shape."""
    from torch.distributed.tensor import distribute_tensor

    if not isinstance(value, Tensor) or value.shape != split.shape:
        return value
    return distribute_tensor(value.to(split.device, split.dtype), split.device_mesh, split.placements)
