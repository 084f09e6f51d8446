"""What a user should know about a Hugging Face model before a run starts."""

from __future__ import annotations

from assay.config import RunConfig
from assay.models.policy import Policy
from assay.tasks.task_set import TaskSet

PROMPTS = 256  # of which the longest stands for a long prompt


def model_notes(config: RunConfig, tasks: TaskSet, start: Policy) -> list[str]:
    """One line each: sampling settings that are not applied, and the memory the run will need.

    Nothing for the embedded model, which has no such settings and fits everywhere.
    """
    if config.model == "tiny":
        return []
    from assay.models.locate import model_folder
    from assay.models.sampling_settings import inherited_sampling_note
    from assay.train.memory import estimate_memory

    longest = max((str(task["prompt"]) for task in list(tasks.train)[:PROMPTS]), key=len)
    estimate = estimate_memory(start, config, prompt_tokens=len(start.encode_prompt(longest)))
    inherited = inherited_sampling_note(model_folder(config.model))
    return [str(estimate)] if inherited is None else [inherited, str(estimate)]
