"""Sampling by a vLLM server: token ids in, token ids and log-probs out, new weights after each update.

The server reads its weights from a folder that this process can write. When the policy has changed, the folder's
file is replaced, the server is told to read it again and to forget its prefix cache, and a probe has to come out
differently. Evaluation stays with this package's own engine, so matched checkpoints do not depend on the server.

Start the server on a copy of the model's folder::

    VLLM_SERVER_DEV_MODE=1 python -m vllm.entrypoints.openai.api_server --model FOLDER \
        --logprobs-mode processed_logprobs --generation-config vllm --enforce-eager
"""

from __future__ import annotations

import json
import math
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from torch import Tensor

from assay.config import VllmOptions
from assay.engines.pushed import PROBE_TOKENS, UNLIKELY, PushedSampler
from assay.engines.request import Request, Sampled, SamplingSettings, expect_fit
from assay.engines.uniforms import keyed_integer
from assay.errors import BadInput, ContractBroken, RunStopped
from assay.models.export import WEIGHTS_FILE, replace_weights
from assay.models.huggingface import HuggingFacePolicy
from assay.models.policy import Policy

AT_ONCE = 64  # requests in flight; the server batches what it gets


class VllmSampler(PushedSampler):
    """Draws completions from a vLLM server that serves the policy's weights.

    Attributes:
        options: where the server is, and the folder it reads. name: under which it serves the model.

    Raises:
        BadInput: no server answers there, or its folder holds no single weights file.
    """

    def __init__(self, options: VllmOptions) -> None:
        self.options = options
        self.folder = Path(options.folder or "")
        if not (self.folder / WEIGHTS_FILE).is_file():
            raise BadInput(
                f"vllm.folder={options.folder}: expected the served model's folder with {WEIGHTS_FILE}"
            )
        try:
            served = self._call("/v1/models", None)
        except RunStopped as error:
            raise BadInput(f"vllm.url={options.url}: {error}; start the server, see docs/vllm.md") from None
        self.name = str(served["data"][0]["id"])

    def __call__(
        self, policy: Policy, requests: Sequence[Request], settings: SamplingSettings
    ) -> list[Sampled]:
        """Sample one completion a request, in order, from the policy's present weights.

        Raises:
            ContractBroken: the server's log-probs did not change with the weights.
            RunStopped: it does not answer, or answers with an error.
        """
        if not requests:
            return []
        assert isinstance(policy, HuggingFacePolicy)  # the configuration refuses any other
        expect_fit(requests, settings, policy.max_positions)
        self.push(policy, requests[0].prompt_ids)
        with ThreadPoolExecutor(min(AT_ONCE, len(requests))) as pool:
            answers = list(pool.map(lambda request: self._complete(policy, request, settings), requests))
        return [read_choice(answer, policy.eos_ids) for answer in answers]

    def load(self, weights: dict[str, Tensor]) -> None:
        """Replace the weights in the server's folder and have it read them."""
        replace_weights(self.folder, weights)
        self._call("/collective_rpc", {"method": "reload_weights"})
        self._call("/reset_prefix_cache", {})

    def stale(self) -> str:
        """The server reads another folder, or not at all."""
        return (
            f"the server at {self.options.url} was given new weights and samples from the old ones; is "
            f"vllm.folder={self.options.folder} the folder it was started on?"
        )

    def probe(self, prompt: Sequence[int]) -> list[float]:
        """Greedy, a few tokens."""
        body = {"prompt": list(prompt), "max_tokens": PROBE_TOKENS, "temperature": 0.0, "ignore_eos": True}
        answer = self._call("/v1/completions", {"model": self.name, "logprobs": 1, **body})
        return [float(value) for value in answer["choices"][0]["logprobs"]["token_logprobs"]]

    def _complete(
        self, policy: HuggingFacePolicy, request: Request, settings: SamplingSettings
    ) -> Mapping[str, Any]:
        body = {
            "model": self.name,
            "prompt": list(request.prompt_ids),
            "max_tokens": settings.max_new_tokens,
            "temperature": settings.temperature,
            "top_p": 1.0,
            "top_k": 0,
            "seed": keyed_integer(settings.seed, *request.key) % (1 << 31),
            "logprobs": 1,
            "return_token_ids": True,
            "stop_token_ids": sorted(policy.eos_ids),
            "logit_bias": {str(index): UNLIKELY for index in policy.forbidden},
        }
        return self._call("/v1/completions", body)

    def _call(self, path: str, body: Mapping[str, Any] | None) -> Any:
        """One request: POST with a body, else GET; the answer's JSON, or None where it is empty."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            self.options.url.rstrip("/") + path, data, {"Content-Type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=self.options.timeout) as answer:
                text = answer.read()
        except urllib.error.HTTPError as error:
            said = error.read().decode("utf-8", "replace")[:300]
            raise RunStopped(f"the vLLM server answered {path} with {error.code}: {said}") from None
        except OSError as error:
            raise RunStopped(f"the vLLM server did not answer {path} ({error})") from None
        return json.loads(text) if text.strip() else None


def read_choice(answer: Mapping[str, Any], eos_ids: frozenset[int]) -> Sampled:
    """A completion from the server's answer; entropies are unknown to it, so NaN.

    Raises:
        ContractBroken: ids or log-probs are missing, or are not one a token.
    """
    choice = answer["choices"][0]
    ids = [int(token) for token in choice.get("token_ids") or ()]
    logps = [float(value) for value in (choice.get("logprobs") or {}).get("token_logprobs") or ()]
    if not ids or len(ids) != len(logps):
        raise ContractBroken(
            f"expected one log-prob a token id from the vLLM server, got {len(logps)} for {len(ids)} ids; it has to "
            "know return_token_ids (vLLM 0.10.2 or newer)"
        )
    return Sampled(ids, logps, [math.nan] * len(ids), "eos" if ids[-1] in eos_ids else "length")
