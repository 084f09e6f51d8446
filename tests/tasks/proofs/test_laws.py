"""Laws that hold for every proof and every text, whatever the generator draws."""

import random
import time
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.errors import BadInput
from assay.tasks.proofs.checker import check_proof
from assay.tasks.proofs.difficulty import LEVELS
from assay.tasks.proofs.formula import Formula, atom, implication, parse_formula
from assay.tasks.proofs.generator import generate_problem
from assay.tasks.proofs.proof import Line, Proof, parse_proof, render_proof
from assay.tasks.proofs.scoring import proof_reward, proof_truth, verifier_reward
from assay.tasks.proofs.semantics import entails
from assay.tasks.proofs.task import completion_of, draw_proof, prompt_of
from assay.tasks.proofs.verifier import verify_proof

TOKENS = [
    *"PQR", "(", ")", "!", "&", "|", "->", "<->", "_|_", "∧", "→", "¬", "1.", "2.", "3.", "4.", "1", "2", "3",
    "premise", "assume", "->E", "->I", "&E", "&I", "|E", "MT", "|-", "⊢", "#", "\n", "\n", "\n", " ", "OK",
]  # fmt: skip
soup = st.lists(st.sampled_from(TOKENS), max_size=40).map(" ".join)
problems = st.builds(
    lambda seed, level: generate_problem(random.Random(seed), LEVELS[level]),
    st.integers(0, 10_000),
    st.sampled_from(sorted(LEVELS)),
)


@given(st.one_of(st.text(max_size=80), soup))
def test_any_text_is_a_formula_or_bad_input(text):
    try:
        formula = parse_formula(text)
    except BadInput:
        return
    assert parse_formula(str(formula)) == formula


@given(st.one_of(st.text(max_size=200), soup))
def test_any_text_is_a_proof_or_bad_input_and_gets_one_verdict(text):
    try:
        proof = parse_proof(text)
    except BadInput:
        assert verifier_reward(text) == 0.0
    else:
        verdict = verify_proof(proof)
        assert verdict.valid == check_proof(proof) == bool(verifier_reward(text))
        assert verdict.valid == (verdict.reason is None)
        assert parse_proof(render_proof(proof)) == proof


@given(problems)
def test_ascii_and_unicode_are_one_proof(problem):
    ascii_text, unicode_text = render_proof(problem.proof), render_proof(problem.proof, unicode=True)
    assert ascii_text.isascii()
    assert parse_proof(ascii_text) == parse_proof(unicode_text) == problem.proof
    assert verifier_reward(ascii_text) == verifier_reward(unicode_text) == 1.0


@given(problems)
def test_prompt_and_completion_are_the_proof(problem):
    assert parse_proof(prompt_of(problem) + completion_of(problem)) == problem.proof


@given(problems, st.permutations("PQRSTUVW"))
def test_renaming_atoms_keeps_the_verdict(problem, names):
    renaming = dict(zip("PQRSTUVW", names, strict=True))

    def rename(formula):
        if formula.kind == "atom":
            return atom(renaming[formula.name])
        return Formula(formula.kind, tuple(rename(part) for part in formula.parts))

    lines = tuple(replace(line, formula=rename(line.formula)) for line in problem.proof.lines)
    assert verify_proof(Proof(lines, rename(problem.goal)))


@given(problems, st.sampled_from(["P", "!Q", "R -> S"]))
def test_one_more_premise_keeps_a_proof_valid(problem, extra):
    """Weakening: the new premise stands first, so every citation moves by one."""
    lines = [replace(line, uses=tuple(k + 1 for k in line.uses)) for line in problem.proof.lines]
    weaker = Proof((Line(parse_formula(extra), "premise"), *lines), problem.goal)
    assert verify_proof(weaker)
    assert check_proof(weaker)


@given(problems)
def test_turning_a_premise_into_an_assumption_that_is_discharged_proves_the_implication(problem):
    """The deduction theorem, on the last premise."""
    count = len(problem.premises)
    lines = list(problem.proof.lines)
    lines[count - 1] = replace(lines[count - 1], rule="assume")
    goal = implication(problem.premises[-1], problem.goal)
    lines.append(Line(goal, "->I", (count, len(lines))))
    proof = Proof(tuple(lines), goal)
    assert verify_proof(proof)
    assert check_proof(proof)
    assert entails(problem.premises[:-1], goal)


@given(problems)
def test_an_undischarged_assumption_in_place_of_a_needed_premise_is_refused(problem):
    needed = {k for line in problem.proof.lines for k in line.uses}
    count = len(problem.premises)
    if count not in needed:
        return
    lines = list(problem.proof.lines)
    lines[count - 1] = replace(lines[count - 1], rule="assume")
    proof = Proof(tuple(lines), problem.goal)
    assert not verify_proof(proof)
    assert not check_proof(proof)


@given(problems)
def test_a_proof_without_its_last_line_does_not_reach_the_goal(problem):
    cut = Proof(problem.proof.lines[:-1], problem.goal)
    assert not verify_proof(cut)
    assert not check_proof(cut)


@given(problems)
def test_every_derivation_line_of_a_reference_proof_is_needed(problem):
    used = {k for line in problem.proof.lines for k in line.uses}
    derived = range(len(problem.premises) + 1, len(problem.proof.lines))
    assert set(derived) <= used


@pytest.mark.parametrize("level", LEVELS)
def test_reward_and_truth_agree_on_thousands_of_damaged_completions(level):
    rng = random.Random(level)
    counts = {0.0: 0, 1.0: 0}
    alphabet = "PQRS!&|->() \n0123456789.EI#OK"
    for _ in range(1_000):
        task = draw_proof(LEVELS[level], rng).as_task("proofs-v1")
        text = list(task["answer"])
        for _ in range(rng.randint(0, 2)):
            k = rng.randrange(len(text) + 1)
            text[k : k + rng.randint(0, 2)] = [rng.choice(alphabet) for _ in range(rng.randint(0, 2))]
        completion = "".join(text)
        reward = proof_reward(completion, task)
        assert reward == proof_truth(completion, task), completion
        counts[reward] += 1
    assert min(counts.values()) > 100


def test_scoring_is_quick_enough_for_training():
    rng = random.Random(0)
    tasks = [draw_proof(LEVELS["medium"], rng).as_task("proofs-v1") for _ in range(200)]
    start = time.process_time()
    assert sum(proof_reward(task["answer"], task) for task in tasks) == 200
    assert time.process_time() - start < 1.0
