"""No proof that verifies has a conclusion its premises do not entail, and both checkers give one verdict."""

import random
from collections import Counter
from dataclasses import replace

import pytest

from assay.tasks.proofs import verifier
from assay.tasks.proofs.checker import check_proof
from assay.tasks.proofs.difficulty import LEVELS
from assay.tasks.proofs.formula import FALSUM, Formula, atom, negation
from assay.tasks.proofs.generator import generate_problem
from assay.tasks.proofs.proof import CITATIONS, Line, Proof
from assay.tasks.proofs.semantics import entails
from assay.tasks.proofs.verifier import verify_proof

RULES = [rule for rule in CITATIONS if rule not in ("premise", "assume")]
EASY = {"R": 0.02, "!!I": 0.05, "|I": 0.2, "_|_E": 0.1, "&I": 0.3, "RAA": 3.0, "MT": 3.0}
WEIGHTS = [EASY.get(rule, 1.0) for rule in RULES]
"""Rules that nearly always apply are drawn seldom, or they would fill every proof."""
ATOMS = [atom(name) for name in "PQ"]


def random_formula(rng, depth=2):
    if depth == 0 or rng.random() < 0.4:
        return rng.choice([*ATOMS, *ATOMS, FALSUM])
    if rng.random() < 0.3:
        return negation(random_formula(rng, depth - 1))
    kind = rng.choice(["and", "or", "implies", "iff"])
    return Formula(kind, (random_formula(rng, depth - 1), random_formula(rng, depth - 1)))


def plausible_claim(used, rng):
    """A formula that some rule could give from these ones, right or wrong."""
    left, right = rng.choice(used), rng.choice(used)
    parts = [
        part for outer in (left, right) for part in (*outer.parts, *(p for o in outer.parts for p in o.parts))
    ]
    match rng.randrange(9 + 3 * bool(parts)):
        case 0:
            return FALSUM
        case 1:
            return left
        case 2:
            return negation(left)
        case 3:
            return negation(negation(left))
        case 4:
            return random_formula(rng)
        case 5:
            return Formula(rng.choice(["and", "or", "implies"]), (used[0], used[-1]))
        case 6:
            return Formula(rng.choice(["and", "or", "implies"]), (left, random_formula(rng, 1)))
        case 7:
            return Formula("iff", left.parts) if left.kind == "implies" else left
        case 8:
            return Formula("implies", left.parts[:: rng.choice([1, -1])]) if left.kind == "iff" else left
        case 9:
            return negation(rng.choice(parts))
        case _:
            return rng.choice(parts)


def attack(rng, length):
    """A proof grown line by line, keeping what the verifier lets through; with what each line rests on."""
    lines = [Line(random_formula(rng), "premise") for _ in range(rng.randint(0, 3))]
    rests_on = [frozenset()] * len(lines)
    for _ in range(length * 80):
        if len(lines) >= length:
            break
        lines.append(next_line(rng, lines))
        try:
            rests_on.append(verifier._follow(Proof(tuple(lines)), len(lines), lines[-1], rests_on))
        except verifier._Wrong:
            lines.pop()
    return Proof(tuple(lines)), rests_on


def next_line(rng, lines):
    if not lines or rng.random() < 0.01:
        return Line(random_formula(rng, 1), "assume")
    (rule,) = rng.choices(RULES, WEIGHTS)
    uses = tuple(rng.randint(1, len(lines)) for _ in range(CITATIONS[rule]))
    if rule == "|E":
        uses = cases(rng, lines, uses)
    return Line(plausible_claim([lines[k - 1].formula for k in uses], rng), rule, uses)


def cases(rng, lines, uses):
    """Half of the time, lines that fit: a disjunction, assumptions of its parts, one result twice."""
    either = [k for k, line in enumerate(lines, 1) if line.formula.kind == "or"]
    if not either or rng.random() < 0.5:
        return uses
    chosen = rng.choice(either)
    fitting = [
        [k for k, line in enumerate(lines, 1) if line.formula == part and line.rule == "assume"] or [uses[1]]
        for part in lines[chosen - 1].formula.parts
    ]
    return chosen, rng.choice(fitting[0]), uses[2], rng.choice(fitting[1]), uses[2]


def unsound_lines(proof, rests_on):
    """Lines that their premises and the assumptions they are said to rest on do not entail."""
    return [
        line
        for line, open_ones in zip(proof.lines, rests_on, strict=True)
        if not entails([*proof.premises, *(proof.lines[k - 1].formula for k in open_ones)], line.formula)
    ]


def attack_the_verifier(count, seed):
    """Check every line and every beginning of attacking proofs; returns how often each rule got through."""
    rng, rules = random.Random(seed), Counter()
    for _ in range(count):
        proof, rests_on = attack(rng, rng.randint(3, 14))
        assert not unsound_lines(proof, rests_on), proof
        rules.update(line.rule for line in proof.lines)
        for end in range(1, len(proof.lines) + 1):
            part = Proof(proof.lines[:end])
            verdict = verify_proof(part).valid
            assert verdict == check_proof(part), part
            assert not verdict or entails(part.premises, part.conclusion), part
            rules["valid"] += verdict
    return rules


def test_no_attack_on_the_verifier_reaches_an_unentailed_line():
    rules = attack_the_verifier(250, seed=0)
    assert rules["valid"] > 500
    assert sum(rules[rule] > 0 for rule in CITATIONS) >= 16, rules


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_no_long_attack_on_the_verifier_reaches_an_unentailed_line():
    rules = attack_the_verifier(5_000, seed=1)
    assert all(rules[rule] >= 5 for rule in CITATIONS), rules


def mutate(proof, rng):
    lines = list(proof.lines)
    for _ in range(rng.randint(1, 2)):
        k = rng.randrange(len(lines))
        change = rng.choice(["rule", "uses", "formula", "swap", "drop", "copy", "part"])
        line = lines[k]
        if change == "rule":
            lines[k] = replace(line, rule=rng.choice(list(CITATIONS)))
        elif change == "uses" and line.uses:
            uses = list(line.uses)
            uses[rng.randrange(len(uses))] = rng.randint(0, len(lines) + 1)
            lines[k] = replace(line, uses=tuple(uses))
        elif change == "formula":
            lines[k] = replace(line, formula=rng.choice(lines).formula)
        elif change == "part" and line.formula.parts:
            lines[k] = replace(line, formula=rng.choice(line.formula.parts))
        elif change == "swap":
            j = rng.randrange(len(lines))
            lines[k], lines[j] = lines[j], lines[k]
        elif change == "drop" and len(lines) > 1:
            del lines[k]
        elif change == "copy":
            lines.insert(k, line)
    return Proof(tuple(lines))


@pytest.mark.parametrize("level", LEVELS)
def test_mutated_proofs_are_sound_and_both_checkers_agree(level):
    rng = random.Random(level)
    counts = Counter()
    for _ in range(1_000):
        proof = mutate(generate_problem(rng, LEVELS[level]).proof, rng)
        verdict = verify_proof(proof).valid
        assert verdict == check_proof(proof), proof
        assert not verdict or entails(proof.premises, proof.conclusion), proof
        counts[verdict] += 1
    assert min(counts.values()) > 50, counts


HOLES = {
    "->E": lambda claim, used: any(f.kind == "implies" and claim in f.parts for f in used),
    "|I": lambda claim, used: claim.kind in ("or", "and") and used[0] in claim.parts,
    "DS": lambda claim, used: any(f.kind == "or" and claim in f.parts for f in used),
    "MT": lambda claim, used: claim.kind == "not" and any(claim.parts[0] in f.parts for f in used),
    "|E": lambda claim, used: used[0].kind == "or" and claim == used[2],
    "<->I": lambda claim, used: claim.kind == "iff" and used[0].parts == claim.parts,
}


@pytest.mark.parametrize("rule", HOLES)
def test_the_attack_finds_a_hole_when_there_is_one(monkeypatch, rule):
    monkeypatch.setitem(verifier._RULES, rule, HOLES[rule])
    rng = random.Random(1)
    assert any(unsound_lines(*attack(rng, 12)) for _ in range(300))


def test_the_attack_finds_a_forgotten_assumption(monkeypatch):
    monkeypatch.setattr(verifier, "_collect", lambda proof, line, rests_on: frozenset())
    rng = random.Random(2)
    assert any(unsound_lines(*attack(rng, 12)) for _ in range(300))
