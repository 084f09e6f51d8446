"""Everything a simulated run is made of: numbers, and the parts (functions) in which a fault can sit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from assay.doctor.simulate import parts

Array = npt.NDArray[np.float64]
Ids = npt.NDArray[np.int64]

RewardPart = Callable[[str, "parts.Facts"], float | Mapping[str, float] | None]
DecodePart = Callable[[str, str, np.random.Generator], str]
AdvantagePart = Callable[[Array, Array], Array]
ScorePart = Callable[[Array, Ids], Array]


@dataclass(frozen=True)
class World:
    """A run's settings. The defaults learn: about 0.35 to 0.7 in 200 steps.

    Sizes: ``steps``, ``prompts`` a step, ``group`` completions a prompt, ``pool`` distinct prompts.

    Policy: ``skill``, the logit of being right; ``difficulty``, its standard deviation over prompts;
    ``easy``, share of prompts that are always or never solved; ``form``, logit of writing the asked format;
    ``hack``, logit of using the exploit (None: it cannot); ``hack_cost``, share of truth that it costs;
    ``length``, mean tokens; ``longer_helps``, logits of success per e-fold of length; ``tags``: answers stand
    between special tags; ``ending``, ``blank``, ``loops``: probability of the end token, of an empty
    completion, of repeating one phrase; ``same``: one text for the whole group (greedy sampling).

    Training: ``learning_rate`` of the policy's own logits, ``logged_rate``, what the log says; ``beta`` of
    the KL, ``updates`` a batch, ``clip``; ``epsilon``, ``ddof``, ``dtype`` as the configuration states them;
    ``noise``, nats between sampler and trainer; ``refill``: DAPO's dynamic sampling.

    Faults of the optimiser: ``sign``, ``detached``, ``frozen``, ``explode_from``, ``nan_from``, ``stale``
    (the sampler keeps the first weights), ``old_is_other`` (old log-probs of another model),
    ``start_is_other`` (so is the reference), ``replay_at`` (data repeat), ``other_log`` (another run's
    metrics), ``micro_batches`` (each divides by its own tokens, unless ``one_denominator``), ``own_length``
    (each completion's loss is divided by its own length), ``suppressed`` (words that the sampler never
    writes, though training raises them).

    What else is logged: ``starts``, start tokens before each prompt's ids; ``wordy``: prompts of unequal
    length, with ``count_pads`` scored at positions that count their padding; ``score_at``: token rewards,
    with the score so many places after the last token; ``shared``: share of the evaluation's prompts that
    are trained on (None: no evaluation is logged). ``overlap``: a preference run instead, with rejected
    answers that move this much with the chosen ones.
    """

    steps: int = 200
    prompts: int = 16
    group: int = 8
    pool: int = 400
    skill: float = -0.7
    difficulty: float = 1.0
    easy: float = 0.0
    form: float = 3.5
    hack: float | None = None
    hack_cost: float = 0.0
    length: float = 40.0
    length_spread: float = 0.3
    max_length: int = 160
    longer_helps: float = 0.0
    tags: str = ""
    prompt_tail: str = ""
    ending: float = 1.0
    blank: float = 0.0
    loops: float = 0.0
    same: bool = False
    learning_rate: float = 0.025
    logged_rate: float = 1e-6
    beta: float = 0.04
    updates: int = 1
    clip: float = 0.2
    epsilon: float = 1e-4
    ddof: int = 0
    dtype: str = "float32"
    normalised: bool = True
    noise: float = 0.006
    temperature: float = 1.0
    top_p: float = 1.0
    sharpen: float = 0.08
    sign: float = 1.0
    detached: bool = False
    frozen: bool = False
    explode_from: int | None = None
    nan_from: int | None = None
    stale: bool = False
    old_is_other: bool = False
    start_is_other: bool = False
    replay_at: int | None = None
    other_log: bool = False
    refill: bool = False
    whole: bool = False
    respell: bool = False
    keep_logits: bool = False
    mask_everything: bool = False
    micro_batches: int = 1
    one_denominator: bool = True
    own_length: bool = False
    suppressed: bool = False
    starts: int = 0
    wordy: bool = False
    count_pads: bool = False
    score_at: int | None = None
    shared: float | None = None
    overlap: float | None = None
    shift_texts: bool = False
    log_every: int = 16
    logged_groups: int = 6
    reward: RewardPart = parts.correct
    decode: DecodePart = parts.plain_text
    advantage: AdvantagePart = parts.group_normalised
    trainer_score: ScorePart = parts.log_softmax_scores
    config: Mapping[str, Any] | None = None
