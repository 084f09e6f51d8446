"""What each id of the audit means to a user: why it matters in training, and how to mend it."""

from __future__ import annotations

from typing import NamedTuple


class Advice(NamedTuple):
    """Why a flaw matters, and how to mend it."""

    why: str
    fix: str


ADVICE: dict[str, Advice] = {
    "accepts_empty": Advice(
        "Saying nothing is paid like a right answer, and training finds the shortest way first.",
        "Return the lowest score when no answer was found; all() over an empty list is True, so check the length.",
    ),
    "accepts_noop": Advice(
        "Most of the score is for things not done, which doing nothing satisfies.",
        "Make the score of the task itself a factor (multiply), and let the other checks only subtract.",
    ),
    "accepts_unreadable": Advice(
        "Text without any answer is paid.",
        "Score what could not be read with the lowest score, and say why in the reason.",
    ),
    "accepts_marker": Advice(
        "One word makes junk pay; a policy needs a few hundred samples to find it.",
        "Compare the answer with the gold; never search the model's text (or a log holding it) for a word.",
    ),
    "accepts_prompt_echo": Advice(
        "Repeating the question is paid.",
        "Read only the final answer in the asked form, not the whole text.",
    ),
    "accepts_guess_list": Advice(
        "Naming many answers is paid when one of them is right.",
        "Demand exactly one answer in the asked form (len(found) == 1) before comparing it.",
    ),
    "accepts_wrong_value": Advice(
        "A wrong answer is paid like the right one.",
        "Compare values exactly: parse sign, fraction and all digits, and match the whole answer, not a part.",
    ),
    "accepts_judge_injection": Advice(
        "The model can write the verdict itself.",
        "Keep the model's text out of what the score is parsed from; take the judge's last structured field only.",
    ),
    "pays_format_only": Advice(
        "The structure is paid without any content, so answers need not be right.",
        "Pay the format little, demand non-empty content exactly once, and multiply with correctness.",
    ),
    "pays_length": Advice(
        "Longer text is paid more at the same correctness.",
        "Take the length out of the reward, or bound its part far below the pay for being right.",
    ),
    "pays_agreement": Advice(
        "Flattery is paid at the same correctness.",
        "Judge the content only; strip phrases of courtesy before judging, or train the judge against them.",
    ),
    "pays_position": Advice(
        "The same text is paid differently by where it stands.",
        "Score each completion alone, or average over both orders.",
    ),
    "rejects_gold": Advice(
        "The gold itself, in the asked form, is not paid: a right answer cannot be learned.",
        "Read the gold with the same code as the answer, and test that every gold scores 1 against itself.",
    ),
    "rejects_equivalent": Advice(
        "An answer equal to the gold is refused; right answers are punished by their spelling.",
        "Normalise white space, thousands separators and number forms before comparing; compare by value.",
    ),
    "crashes": Advice(
        "A text that a model can write raises an exception.",
        "Catch the one exception that reading an answer can raise (such as ValueError) and score it as unreadable.",
    ),
    "hangs": Advice(
        "A short text keeps the reward busy past its time limit.",
        "Bound lengths and exponents, avoid nested repeats in patterns, give a program its own time limit.",
    ),
    "swallows_errors": Advice(
        "A fault of the reward itself looks like a wrong answer, and nobody sees it.",
        "Catch only the exceptions that reading an answer raises; let all others through or return None.",
    ),
    "non_finite": Advice(
        "NaN or infinity spreads to the whole batch.",
        "Return a finite number on every path; a mean of nothing is not a score.",
    ),
    "wrong_shape": Advice(
        "The number or type of the scores is not what the trainer expects; they may be broadcast or shifted.",
        "Return a list with exactly one float per completion.",
    ),
    "constant": Advice(
        "Every text gets the same score, so there is nothing to learn from.",
        "Score the gold in the asked form by hand and follow why it differs from nothing.",
    ),
    "inverted": Advice(
        "Right answers are paid less than wrong ones.",
        "Change the sign (a distance or a loss is not a reward).",
    ),
    "not_deterministic": Advice(
        "The same text gets different scores.",
        "Fix the seed inside the function, or sort what comes from a set; noise is not a signal.",
    ),
    "state_leak": Advice(
        "A score depends on what was scored before or beside it.",
        "Key a cache by the whole completion and the whole task; keep no other state between calls.",
    ),
    "side_effects": Advice(
        "The reward changes something besides its result.",
        "Copy before changing an argument, return instead of printing, and write no files.",
    ),
    "unsafe_eval": Advice(
        "Text written by the model is run as Python in the process that holds the training.",
        "Parse instead (ast.literal_eval, Fraction, a small grammar); run programs only in a sandboxed process.",
    ),
    "tests_editable": Advice(
        "The tested program can change the tests that judge it.",
        "Keep the tests outside of what the agent may write, and restore them before grading.",
    ),
    "tests_special_cased": Advice(
        "A table of the shown cases passes; nothing else is checked.",
        "Grade with tests that the prompt does not show, best drawn at random against a reference.",
    ),
    "exit_code_trusted": Advice(
        "Leaving with exit code 0, or printing the pass word, counts as passing.",
        "Demand a result for every test, written by the harness with a secret of that run.",
    ),
    "equality_overridden": Advice(
        "The model's object answers 'equal' to everything.",
        "Serialise returned values to plain data in the child and compare them, types included, in the parent.",
    ),
    "missing_tests_pass": Advice(
        "No tests means all passed.",
        "Count the tests that ran; none is an invalid task, not a pass.",
    ),
    "invalid_gold_pays": Advice(
        "Where the gold cannot be read, anything is paid.",
        "Return None for a task whose gold is unusable, and count those tasks before training.",
    ),
}  # fmt: skip
