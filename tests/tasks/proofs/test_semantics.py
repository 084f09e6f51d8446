from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.errors import BadInput
from assay.tasks.proofs.formula import FALSUM, Formula, atom, conjunction, negation, parse_formula
from assay.tasks.proofs.semantics import (
    MAX_ATOMS,
    entails,
    find_countermodel,
    satisfiable,
    truth_table,
)

atoms = st.sampled_from([atom(name) for name in "PQR"] + [FALSUM])
connectives = st.sampled_from(["and", "or", "implies", "iff"])
formulas = st.recursive(
    atoms,
    lambda inner: st.one_of(
        inner.map(negation), st.builds(lambda k, a, b: Formula(k, (a, b)), connectives, inner, inner)
    ),
    max_leaves=10,
)


def rows(names):
    return [dict(zip(names, values, strict=True)) for values in product([False, True], repeat=len(names))]


@given(formulas)
def test_the_truth_table_is_evaluate_in_every_row(formula):
    names = ["P", "Q", "R"]
    table = truth_table(formula, names)
    for row in range(2 ** len(names)):
        assignment = {name: bool(row >> k & 1) for k, name in enumerate(names)}
        assert bool(table >> row & 1) == formula.evaluate(assignment)


@given(st.lists(formulas, max_size=3), formulas)
def test_entailment_is_by_enumeration(premises, goal):
    names = sorted(goal.atoms().union(*(p.atoms() for p in premises)))
    bad = [r for r in rows(names) if all(p.evaluate(r) for p in premises) and not goal.evaluate(r)]
    assert entails(premises, goal) == (not bad)
    found = find_countermodel(premises, goal)
    assert (found is None) == (not bad)
    if found is not None:
        assert found in bad


def test_known_entailments():
    p, rule, q = parse_formula("P"), parse_formula("P -> Q"), parse_formula("Q")
    assert entails([p, rule], q)
    assert find_countermodel([rule, q], p) == {"P": False, "Q": True}
    assert entails([], parse_formula("P | !P"))
    assert entails([parse_formula("P & !P")], q)
    assert find_countermodel([], parse_formula("_|_")) == {}


def test_satisfiable():
    assert satisfiable([])
    assert satisfiable([parse_formula("P"), parse_formula("P -> Q")])
    assert not satisfiable([parse_formula("P"), parse_formula("!P")])


def test_too_many_atoms_are_refused_and_the_most_are_fast():
    names = [f"A{k}" for k in range(MAX_ATOMS + 1)]
    goal = atom(names[0])
    for name in names[1:MAX_ATOMS]:
        goal = conjunction(goal, atom(name))
    assert find_countermodel([], goal) is not None
    with pytest.raises(BadInput, match="atoms"):
        entails([atom(names[-1])], goal)
