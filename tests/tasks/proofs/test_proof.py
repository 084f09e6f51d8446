import time

import pytest

from assay.errors import BadInput
from assay.tasks.proofs.checker import SCHEMAS, check_proof
from assay.tasks.proofs.formula import parse_formula
from assay.tasks.proofs.proof import (
    CITATIONS,
    MAX_PROOF_CHARACTERS,
    MAX_PROOF_LINES,
    Line,
    Proof,
    parse_proof,
    render_proof,
)
from assay.tasks.proofs.verifier import verify_proof

SYLLOGISM = """1. P -> Q premise
2. Q -> R premise
|- P -> R
# assume the first part
3. P assume
4. Q ->E 1 3
   # OK
5. R ->E 2, 4
6. P -> R ->I 3 5
"""
VALID = {
    "R": "1. P premise\n2. P R 1",
    "&I": "1. P premise\n2. Q premise\n3. P & Q &I 1 2",
    "&E": "1. P & Q premise\n2. Q &E 1",
    "|I": "1. P premise\n2. Q | P |I 1",
    "|E": "1. P | Q premise\n2. P -> R premise\n3. Q -> R premise\n4. P assume\n5. R ->E 2 4\n6. Q assume\n"
    "7. R ->E 3 6\n8. R |E 1 4 5 6 7",
    "->I": SYLLOGISM,
    "->E": "1. P premise\n2. P -> Q premise\n3. Q ->E 1 2",
    "<->I": "1. P -> Q premise\n2. Q -> P premise\n3. P <-> Q <->I 2 1",
    "<->E": "1. P <-> Q premise\n2. Q -> P <->E 1",
    "!I": "1. P -> Q premise\n2. !Q premise\n3. P assume\n4. Q ->E 1 3\n5. _|_ !E 4 2\n6. !P !I 3 5",
    "!E": "1. P premise\n2. !P premise\n3. _|_ !E 2 1",
    "!!I": "1. P premise\n2. !!P !!I 1",
    "!!E": "1. !!P premise\n2. P !!E 1",
    "_|_E": "1. _|_ premise\n2. P & R _|_E 1",
    "RAA": "1. !P -> P premise\n2. !P assume\n3. P ->E 1 2\n4. _|_ !E 3 2\n5. P RAA 2 4",
    "MT": "1. P -> !Q premise\n2. !!Q premise\n3. !P MT 2 1",
    "DS": "1. P | Q premise\n2. !Q premise\n3. P DS 1 2",
}
"""One valid proof for every rule."""


def test_every_rule_has_a_schema_and_an_example():
    derivations = set(CITATIONS) - {"premise", "assume"}
    assert derivations == set(SCHEMAS) == set(VALID)


@pytest.mark.parametrize("rule", VALID)
def test_both_checkers_accept_every_rule(rule):
    proof = parse_proof(VALID[rule])
    assert verify_proof(proof).valid, verify_proof(proof)
    assert check_proof(proof)


WRONG = {
    "another formula": ("1. P premise\n2. Q R 1", 2, "does not follow"),
    "parts swapped": ("1. P premise\n2. Q premise\n3. Q & P &I 1 2", 3, "does not follow"),
    "not a part": ("1. P & Q premise\n2. R &E 1", 2, "does not follow"),
    "conjunction taken for a disjunction": ("1. P & Q premise\n2. !P premise\n3. Q DS 1 2", 3, "not follow"),
    "affirming the consequent": ("1. P -> Q premise\n2. Q premise\n3. P ->E 1 2", 3, "does not follow"),
    "denying the antecedent": ("1. P -> Q premise\n2. !P premise\n3. !Q MT 1 2", 3, "does not follow"),
    "assumption left open": ("1. P -> Q premise\n2. P assume\n3. Q ->E 1 2", 3, "the assumption of line 2"),
    "the assumption itself": ("1. P assume", 1, "rests on the assumption"),
    "discharge of another's assumption": (
        "1. P assume\n2. Q assume\n3. Q -> P ->I 2 1", 3, "rests on the assumption of line 1",
    ),
    "discharge of a premise": ("1. P premise\n2. Q premise\n3. P -> Q ->I 1 2", 3, "not an assumption"),
    "discharged with the wrong formula": ("1. P assume\n2. Q -> P ->I 1 1", 2, "does not follow"),
    "cases that keep one assumption": (
        "1. P | Q premise\n2. P assume\n3. Q assume\n4. P |E 1 2 2 3 2", 4, "assumption of line 2",
    ),
    "cites itself": ("1. P R 1", 1, "earlier lines"),
    "cites a later line": ("1. P premise\n2. Q R 3\n3. Q R 2", 2, "earlier lines"),
    "cites line 0": ("1. P premise\n2. P R 0", 2, "earlier lines"),
    "too few lines used": ("1. P premise\n2. Q ->E 1", 2, "uses 2 lines"),
    "too many lines used": ("1. P premise\n2. P R 1 1", 2, "uses 1 lines"),
    "premise with a citation": ("1. P premise\n2. Q premise 1", 2, "uses 0 lines"),
    "premise after a step": ("1. P premise\n2. P R 1\n3. Q premise", 3, "premises come first"),
    "not the declared goal": ("1. P & Q premise\n|- P\n2. Q &E 1", 2, "not the goal"),
    "raa without the negation": ("1. P assume\n2. !P premise", 2, "premises come first"),
    "raa from the positive": ("1. !P premise\n2. P assume\n3. _|_ !E 1 2\n4. P RAA 2 3", 4, "not follow"),
    "biconditional from one side twice": ("1. P -> Q premise\n2. P <-> Q <->I 1 1", 2, "does not follow"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_the_first_wrong_line_is_named_and_the_second_checker_agrees(name):
    text, line, reason = WRONG[name]
    proof = parse_proof(text)
    verdict = verify_proof(proof)
    assert not verdict
    assert verdict.line == line
    assert reason in (verdict.reason or "")
    assert not check_proof(proof)


def test_premises_and_goal_can_be_imposed():
    proof = parse_proof(VALID["&E"])
    right, other = [parse_formula("P & Q")], [parse_formula("Q & P")]
    for checks in (lambda **k: verify_proof(proof, **k).valid, lambda **k: check_proof(proof, **k)):
        assert checks(premises=right, goal=parse_formula("Q"))
        assert not checks(premises=other)
        assert not checks(premises=[])
        assert not checks(premises=right * 2)
        assert not checks(goal=parse_formula("P"))


def test_a_proof_made_by_hand_with_an_unknown_rule_or_no_line_is_wrong():
    unknown = Proof((Line(parse_formula("P"), "magic"),))
    assert verify_proof(unknown).line == 1
    assert not check_proof(unknown)
    assert not verify_proof(Proof(()))
    assert not check_proof(Proof(()))
    with pytest.raises(BadInput, match="at least one line"):
        _ = Proof(()).conclusion


@pytest.mark.parametrize("text", [*VALID.values(), *(wrong[0] for wrong in WRONG.values())])
@pytest.mark.parametrize("unicode", [False, True])
def test_rendered_proofs_parse_back(text, unicode):
    proof = parse_proof(text)
    rendered = render_proof(proof, unicode=unicode)
    assert parse_proof(rendered) == proof
    assert rendered.endswith("\n")


def test_comments_and_blank_lines_are_ignored_anywhere():
    rows = SYLLOGISM.splitlines()
    noisy = "\n# OK\n\n".join(["", *rows, ""])
    assert parse_proof(noisy) == parse_proof(SYLLOGISM)


def test_unicode_goal_and_rules_are_read():
    proof = parse_proof("1. P ∧ Q premise\r\n⊢ Q\r\n2. Q ∧E 1\r\n")
    assert proof.goal == parse_formula("Q")
    assert verify_proof(proof)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "numbered lines"),
        ("# only a comment", "numbered lines"),
        ("|- P", "numbered lines"),
        ("OK", "line number 1"),
        ("2. P premise", "line number 1"),
        ("1. P premise\n1. P premise", "row 2: expected line number 2"),
        ("01. P premise", "line number 1"),
        ("١. P premise", "line number 1"),
        ("1 P premise", "line number 1"),
        ("1. P", "a rule and the lines"),
        ("1.", "a rule and the lines"),
        ("1. 1 2 3", "a rule and the lines"),
        ("1. P premis", "did you mean 'premise'"),
        ("1. P -> premise", "expected an atom"),
        ("1. P premise\n|- P\n|- P", "one goal line"),
        ("1. P premise\n|-", "expected an atom"),
        ("1. P R 99999", "unknown rule"),
    ],
)
def test_unreadable_proofs_say_why(text, message):
    with pytest.raises(BadInput, match=message):
        parse_proof(text)


HOSTILE = {
    "long": "1. P premise\n" * 100_000,
    "many lines": "\n".join(f"{k}. P premise" for k in range(1, MAX_PROOF_LINES + 2)),
    "huge number": "9" * 19_000 + ". P premise",
    "deep": "1. " + "(" * 19_000,
    "negations": "1. " + "!" * 3_900 + "P premise",
    "binary": "\x00\x01\ufeff" * 5_000,
    "surrogates": "\udc80" * 1_000,
    "comment flood": "#\n" * 9_999,
    "dots": "." * 19_000,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_is_refused_in_bounded_time(name):
    start = time.perf_counter()
    with pytest.raises(BadInput):
        parse_proof(HOSTILE[name])
    assert time.perf_counter() - start < 1.0


def test_a_flood_of_citations_is_read_and_refused_by_both():
    proof = parse_proof("1. P R " + "1 " * 9_000)
    assert verify_proof(proof).line == 1
    assert not check_proof(proof)


def test_the_largest_readable_proof_is_checked_in_bounded_time():
    wide = " & ".join(["(P -> Q)"] * 2)
    rows = [f"1. {wide} premise"] + [f"{k}. {wide} R {k - 1}" for k in range(2, MAX_PROOF_LINES + 1)]
    text = "\n".join(rows)
    assert len(text) <= MAX_PROOF_CHARACTERS
    start = time.perf_counter()
    proof = parse_proof(text)
    assert verify_proof(proof)
    assert check_proof(proof)
    assert time.perf_counter() - start < 2.0


def test_many_nested_assumptions_are_linear():
    depth = 130
    rows = [f"{k}. P assume" for k in range(1, depth + 1)] + [f"{depth + 1}. P -> P ->I 1 1"]
    rows += [f"{k}. (P -> P) & (P -> P) &I {depth + 1} {depth + 1}" for k in range(depth + 2, 2 * depth)]
    proof = parse_proof("\n".join(rows))
    assert verify_proof(proof)
    assert check_proof(proof)
