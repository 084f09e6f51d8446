import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.errors import BadInput
from assay.tasks.proofs.formula import (
    FALSUM,
    MAX_CHARACTERS,
    MAX_DEPTH,
    Formula,
    atom,
    biconditional,
    conjunction,
    disjunction,
    implication,
    negation,
    parse_formula,
    render_formula,
)

P, Q, R = atom("P"), atom("Q"), atom("R")
atoms = st.sampled_from([P, Q, R, atom("rain_1"), FALSUM])
binary = st.sampled_from([conjunction, disjunction, implication, biconditional])
formulas = st.recursive(
    atoms,
    lambda inner: st.one_of(
        inner.map(negation), st.tuples(binary, inner, inner).map(lambda t: t[0](t[1], t[2]))
    ),
    max_leaves=12,
)


@given(formulas, st.booleans())
def test_rendered_formulas_parse_back(formula, unicode):
    assert parse_formula(render_formula(formula, unicode=unicode)) == formula


@given(formulas)
def test_str_is_ascii_and_parses_back(formula):
    assert str(formula).isascii()
    assert parse_formula(str(formula)) == formula


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("P -> (Q & !R)", implication(P, conjunction(Q, negation(R)))),
        ("P → Q ∧ ¬R", implication(P, conjunction(Q, negation(R)))),
        ("P -> Q -> R", implication(P, implication(Q, R))),
        ("P <-> Q <-> R", biconditional(P, biconditional(Q, R))),
        ("P & Q & R", conjunction(conjunction(P, Q), R)),
        ("P | Q | R", disjunction(disjunction(P, Q), R)),
        ("P | Q & R", disjunction(P, conjunction(Q, R))),
        ("!P & Q", conjunction(negation(P), Q)),
        ("P & Q -> P | Q <-> R", biconditional(implication(conjunction(P, Q), disjunction(P, Q)), R)),
        ("~~P=>Q", implication(negation(negation(P)), Q)),
        ("P /\\ Q \\/ R", disjunction(conjunction(P, Q), R)),
        ("!_|_ ", negation(FALSUM)),
        ("\t((P))", P),
    ],
)
def test_precedence_associativity_and_spellings(text, expected):
    assert parse_formula(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "P Q",
        "P ->",
        "-> P",
        "(P",
        "P)",
        "()",
        "P & & Q",
        "!",
        "1",
        "P $ Q",
        "P\nQ",
        "Ⅷ",
        "ª & P",
        "P -",
    ],
)
def test_unreadable_text_is_bad_input(text):
    with pytest.raises(BadInput):
        parse_formula(text)


@pytest.mark.parametrize(
    "text",
    [
        "(" * 1_500 + "P" + ")" * 1_500,
        "!" * 3_000 + "P",
        "->".join(["P"] * 1_000),
        "&".join(["P"] * 1_900),
        "P" * (MAX_CHARACTERS + 1),
        "(" * MAX_CHARACTERS,
    ],
    ids=["parentheses", "negations", "right chain", "left chain", "long atom", "open only"],
)
def test_enormous_text_is_refused_without_a_recursion_error(text):
    with pytest.raises(BadInput):
        parse_formula(text)


def test_depth_is_bounded_for_formulas_built_by_hand():
    formula = P
    for _ in range(MAX_DEPTH - 1):
        formula = negation(formula)
    assert parse_formula(str(formula)) == formula
    with pytest.raises(BadInput, match="levels deep"):
        negation(formula)


def test_wrong_parts_and_names_are_bad_input():
    with pytest.raises(BadInput, match="takes 2 parts"):
        Formula("and", (P,))
    with pytest.raises(BadInput, match="atom's name"):
        atom("1P")


def test_evaluate_needs_every_atom():
    assert parse_formula("P <-> !Q").evaluate({"P": True, "Q": False})
    with pytest.raises(BadInput, match="'Q'"):
        parse_formula("P & Q").evaluate({"P": True})


def test_walk_is_left_to_right_and_atoms_are_names():
    formula = parse_formula("P -> (Q & !P)")
    assert [str(node) for node in formula.walk()] == ["P -> (Q & !P)", "P", "Q & !P", "Q", "!P", "P"]
    assert formula.atoms() == {"P", "Q"}
