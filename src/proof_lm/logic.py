"""Propositional logic and proofs under the course's names; see ``assay.tasks.proofs``."""

from assay.tasks.proofs import (
    atom,
    entails,
    find_countermodel,
    generate_examples,
    implication,
    parse_formula,
    parse_proof,
    render_proof,
    verify_proof,
)

__all__ = [
    "atom",
    "entails",
    "find_countermodel",
    "generate_examples",
    "implication",
    "parse_formula",
    "parse_proof",
    "render_proof",
    "verify_proof",
]
