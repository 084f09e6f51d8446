"""Sampling settings that a model folder brings along, and that nobody asked for.

``generation_config.json`` may set top-k, top-p or a repetition penalty for every caller of ``generate``. A
log-prob stored for training must be that of the distribution that was sampled, so they are read, reported and
not applied.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

NEUTRAL: dict[str, tuple[Any, ...]] = {
    "temperature": (1.0,),
    "top_k": (0, -1),
    "top_p": (1.0,),
    "min_p": (0.0,),
    "top_h": (),
    "typical_p": (1.0,),
    "epsilon_cutoff": (0.0,),
    "eta_cutoff": (0.0,),
    "repetition_penalty": (1.0,),
    "encoder_repetition_penalty": (1.0,),
    "presence_penalty": (0.0,),
    "frequency_penalty": (0.0,),
    "no_repeat_ngram_size": (0,),
    "length_penalty": (1.0,),
    "num_beams": (1,),
    "penalty_alpha": (0.0,),
    "bad_words_ids": (),
    "suppress_tokens": ([],),
    "begin_suppress_tokens": ([],),
    "forced_bos_token_id": (),
    "forced_eos_token_id": (),
    "guidance_scale": (1.0,),
    "sequence_bias": (),
    "exponential_decay_length_penalty": (),
}
"""The values of each setting that change nothing; null is always neutral."""


def inherited_sampling(folder: str | Path) -> dict[str, Any]:
    """Settings of ``generation_config.json`` that would change what is sampled; none of them is applied."""
    path = Path(folder) / "generation_config.json"
    if not path.is_file():
        return {}
    document = json.loads(path.read_text("utf-8"))
    return {
        name: document[name]
        for name, neutral in NEUTRAL.items()
        if document.get(name) is not None and document[name] not in neutral
    }


def inherited_sampling_note(folder: str | Path) -> str | None:
    """One line about what was found and not applied; None when there is nothing to say."""
    found = inherited_sampling(folder)
    if not found:
        return None
    listed = ", ".join(f"{name}={value}" for name, value in found.items())
    return f"generation_config.json sets {listed}; not applied: sampling is from the full distribution"
