"""Propositional natural deduction: formulas, proofs, a verifier, a second checker, and the embedded task."""

from assay.tasks.proofs.checker import check_proof
from assay.tasks.proofs.difficulty import LEVELS, Difficulty
from assay.tasks.proofs.examples import ProofExample, generate_examples
from assay.tasks.proofs.formula import Formula, atom, implication, parse_formula, render_formula
from assay.tasks.proofs.loophole import WeakProofReward, weak_proof_reward
from assay.tasks.proofs.proof import Line, Proof, parse_proof, render_proof
from assay.tasks.proofs.scoring import proof_reward, proof_truth, verifier_reward
from assay.tasks.proofs.semantics import entails, find_countermodel
from assay.tasks.proofs.task import proofs_task_set
from assay.tasks.proofs.verifier import Verdict, verify_proof

__all__ = [
    "LEVELS",
    "Difficulty",
    "Formula",
    "Line",
    "Proof",
    "ProofExample",
    "Verdict",
    "WeakProofReward",
    "atom",
    "check_proof",
    "entails",
    "find_countermodel",
    "generate_examples",
    "implication",
    "parse_formula",
    "parse_proof",
    "proof_reward",
    "proof_truth",
    "proofs_task_set",
    "render_formula",
    "render_proof",
    "verifier_reward",
    "verify_proof",
    "weak_proof_reward",
]
