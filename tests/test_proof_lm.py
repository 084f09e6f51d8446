import json
import math
import subprocess
import sys

import pytest
import torch

from assay.errors import BadInput
from assay.maths import advantages
from proof_lm import logic, posttraining

SNIPPET = """
from proof_lm.logic import generate_examples
from proof_lm.posttraining import group_normalized_advantages, verifier_reward

proof_examples = generate_examples(count=2, seed=10)[:2]
rewards = [verifier_reward(example.proof_text) for example in proof_examples]
advantages = group_normalized_advantages([0.0, 1.0, 1.0, 0.0])
print("verified proof rewards:", rewards)
print("group advantages:", advantages.round(decimals=4).tolist())
print("advantage mean:", round(float(advantages.mean()), 6))
assert rewards == [1.0, 1.0]
assert abs(float(advantages.mean())) < 1e-6
"""


def test_the_course_snippet_runs_as_printed_and_prints_what_is_printed():
    done = subprocess.run([sys.executable, "-c", SNIPPET], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "verified proof rewards: [1.0, 1.0]",
        "group advantages: [-1.0, 1.0, 1.0, -1.0]",
        "advantage mean: 0.0",
    ]


def test_logic_does_not_load_torch():
    code = "import proof_lm.logic, sys, json; print(json.dumps('torch' in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) is False


def test_logic_has_the_course_names():
    p, q = logic.atom("P"), logic.atom("Q")
    rule = logic.implication(p, q)
    assert logic.parse_formula("P -> Q") == rule
    assert logic.parse_formula(str(rule)) == rule
    assert rule.evaluate({"P": True, "Q": False}) is False
    assert logic.entails([p, rule], q)
    assert logic.find_countermodel([rule, q], p) == {"P": False, "Q": True}
    assert logic.find_countermodel([p, rule], q) is None
    proof = logic.parse_proof("1. P premise\n2. P -> Q premise\n3. Q ->E 1 2\n")
    assert logic.verify_proof(proof).valid
    assert logic.parse_proof(logic.render_proof(proof)) == proof


@pytest.mark.parametrize("seed", [0, 1, 10, 999])
def test_examples_are_rewarded_by_their_label(seed):
    examples = logic.generate_examples(count=8, seed=seed)
    assert [posttraining.verifier_reward(e.proof_text) for e in examples] == [1.0] * 8 + [0.0] * 8


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_advantages_are_the_group_standardised_rewards(dtype):
    rewards = torch.tensor([0.0, 0.25, 1.0, 0.5, 0.0], dtype=dtype)
    ours = posttraining.group_normalized_advantages(rewards)
    expected = (rewards - rewards.mean()) / (rewards.std(correction=0) + 1e-6)
    assert ours.dtype == dtype
    torch.testing.assert_close(ours, expected)
    one_group = torch.zeros(5, dtype=torch.long)
    torch.testing.assert_close(ours, advantages.group_standardised(rewards, one_group))


def test_a_flat_group_has_exactly_zero_advantage():
    assert posttraining.group_normalized_advantages([0.1, 0.1, 0.1]).tolist() == [0.0, 0.0, 0.0]
    assert posttraining.group_normalized_advantages([1, 1]).tolist() == [0.0, 0.0]


def test_dpo_loss_is_ln2_at_the_reference_and_one_value_an_example():
    at_start = posttraining.dpo_loss([-3.0, -5.0], [-4.0, -2.0], [-3.0, -5.0], [-4.0, -2.0], beta=0.1)
    assert at_start.tolist() == pytest.approx([math.log(2)] * 2)
    moved = posttraining.dpo_loss(*(torch.tensor([value]) for value in (-2.0, -6.0, -3.0, -4.0)), beta=0.5)
    assert moved.tolist() == pytest.approx([math.log1p(math.exp(-0.5 * 3.0))])


def test_bad_beta_is_refused():
    with pytest.raises(BadInput, match="beta"):
        posttraining.dpo_loss([0.0], [0.0], [0.0], [0.0], beta=0.0)


@pytest.mark.parametrize("text", ["", "OK", "1. P premise\n2. Q ->E 1 1\n", "1. P assume\n", "\x00" * 50_000])
def test_negative_and_malformed_proofs_earn_nothing(text):
    assert posttraining.verifier_reward(text) == 0.0
