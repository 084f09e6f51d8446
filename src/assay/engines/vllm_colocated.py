"""Sampling by vLLM inside the training process: the weights are handed over in memory, no server and no file.

The engine is made on the first call, from the configuration of the policy's model alone; its weights come by the
first push. Evaluation stays with this package's own engine. Left out: vLLM's sleep mode, so its cache keeps its
share of the accelerator's memory during an update; several ranks.
"""

from __future__ import annotations

import importlib
import importlib.util
import math
import os
import tempfile
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from assay.config import VllmOptions
from assay.engines.pushed import PROBE_TOKENS, UNLIKELY, PushedSampler
from assay.engines.request import Request, Sampled, SamplingSettings, expect_fit
from assay.engines.uniforms import keyed_integer
from assay.errors import BadInput, ContractBroken
from assay.models.huggingface import HuggingFacePolicy
from assay.models.policy import Policy

IN_THIS_PROCESS = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # else the engine is a process of its own and tensors are copied to it
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # else it binds this process's threads to processors
    "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
}


ENOUGH, ROOM = (
    2048,
    4,
)  # positions the engine is made for: these, or so many times the first batch's longest row


class ColocatedVllm(PushedSampler):
    """Draws completions from a vLLM engine in this process that is given the policy's weights.

    Raises:
        BadInput: vLLM is not installed beside this package.
    """

    def __init__(self, options: VllmOptions) -> None:
        if importlib.util.find_spec("vllm") is None:
            raise BadInput("vllm.colocated=true: vLLM is not installed in this environment; see docs/vllm.md")
        self.options = options
        self.engine: Any = None

    def __call__(
        self, policy: Policy, requests: Sequence[Request], settings: SamplingSettings
    ) -> list[Sampled]:
        """Sample one completion a request, in order, from the policy's present weights.

        Raises:
            ContractBroken: the engine's log-probs did not change with the weights.
        """
        if not requests:
            return []
        assert isinstance(policy, HuggingFacePolicy)  # the configuration refuses any other
        columns = expect_fit(requests, settings, policy.max_positions)
        if self.engine is None:
            self.engine = self._make(policy, min(policy.max_positions, max(ROOM * columns, ENOUGH)))
        self.push(policy, requests[0].prompt_ids)
        bias = dict.fromkeys(policy.forbidden, UNLIKELY)
        common = {
            "max_tokens": settings.max_new_tokens, "temperature": settings.temperature, "logprobs": 0,
            "stop_token_ids": sorted(policy.eos_ids), "logit_bias": bias or None, "detokenize": False,
        }  # fmt: skip
        seeds = [keyed_integer(settings.seed, *request.key) % (1 << 31) for request in requests]
        drawn = self._generate([r.prompt_ids for r in requests], [{**common, "seed": seed} for seed in seeds])
        return [
            Sampled(ids, logps, [math.nan] * len(ids), "eos" if ids[-1] in policy.eos_ids else "length")
            for ids, logps in drawn
        ]

    def load(self, weights: dict[str, Tensor]) -> None:
        """Hand the tensors to the engine and forget its prefix cache."""
        self.engine.collective_rpc("reload_weights", kwargs={"weights_iterator": list(weights.items())})
        self.engine.reset_prefix_cache()

    def stale(self) -> str:
        """This vLLM took the weights and did not use them."""
        return f"vLLM {importlib.import_module('vllm').__version__} was given new weights and samples from the old ones"

    def probe(self, prompt: Sequence[int]) -> list[float]:
        """Greedy, a few tokens."""
        common = {"max_tokens": PROBE_TOKENS, "temperature": 0.0, "logprobs": 0, "detokenize": False}
        return self._generate([prompt], [{**common, "ignore_eos": True}])[0][1]

    def _make(self, policy: HuggingFacePolicy, positions: int) -> Any:
        for name, value in IN_THIS_PROCESS.items():
            os.environ.setdefault(name, value)
        vllm: Any = importlib.import_module("vllm")
        with tempfile.TemporaryDirectory() as folder:
            policy.module.config.save_pretrained(folder)
            try:
                return vllm.LLM(
                    model=folder, skip_tokenizer_init=True, load_format="dummy", dtype=policy.dtype,
                    max_model_len=positions, enforce_eager=True, logprobs_mode="processed_logprobs",
                    generation_config="vllm", seed=0, gpu_memory_utilization=self.options.memory,
                )  # fmt: skip
            except (ValueError, RuntimeError) as error:
                raise BadInput(f"vllm.colocated=true: vLLM could not start: {error}") from error

    def _generate(
        self, prompts: Sequence[Sequence[int]], parameters: Sequence[dict[str, Any]]
    ) -> list[tuple[list[int], list[float]]]:
        """Ids and log-probs of one completion a prompt, in order."""
        vllm: Any = importlib.import_module("vllm")
        answers = self.engine.generate(
            [{"prompt_token_ids": list(ids)} for ids in prompts],
            [vllm.SamplingParams(**given) for given in parameters],
            use_tqdm=False,
        )
        found = list[tuple[list[int], list[float]]]()
        for answer in answers:
            ids = [int(token) for token in answer.outputs[0].token_ids]
            logps = [
                float(at[token].logprob) for token, at in zip(ids, answer.outputs[0].logprobs, strict=True)
            ]
            if not ids:
                raise ContractBroken("vLLM answered with a completion of no token")
            found.append((ids, logps))
        return found
