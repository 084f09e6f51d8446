"""Mathematics checks: how many a second, kind by kind, and how often wrong, beside math-verify.

    python benchmarks/math_checks.py [--pairs 400]

Every pair is new, so nothing is answered from a cache but the gold of a group. Throughput is measured over
whole completions (extraction, reading, comparing) in one process, per second of its CPU time.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
import warnings
from collections.abc import Callable

from assay.rewards.mathematics.equality import check
from assay.rewards.mathematics.reading import read
from assay.rewards.mathematics.reward import math_reward

Pair = tuple[str, str]
FILLER = "First we write what is given, then we work it out step by step. " * 12


def rational(rng: random.Random) -> tuple[int, int]:
    return rng.randint(1, 9_999), rng.randint(2, 99)


def integer(rng: random.Random) -> Pair:
    n = rng.randint(1, 10**7)
    return str(n), f"{n:,}"


def decimal(rng: random.Random) -> Pair:
    n = rng.randint(1, 10**6)
    return f"{n / 100:.2f}", f"{n / 100:.4f}"


def fraction(rng: random.Random) -> Pair:
    a, b = rational(rng)
    return rf"\frac{{{a}}}{{{b}}}", f"{3 * a}/{3 * b}"


def percent(rng: random.Random) -> Pair:
    n = rng.randint(1, 9_999)
    return rf"{n / 10:.1f}\%", f"{n / 1000:.4f}"


def point(rng: random.Random) -> Pair:
    a, b = rational(rng)
    return f"({a},{b})", f"({a}.0, {b})"


def interval(rng: random.Random) -> Pair:
    a, b = rational(rng)
    return f"[{a},{a + b})", rf"\left[{a}, {a + b}\right)"


def collection(rng: random.Random) -> Pair:
    items = [str(n) for n in rng.sample(range(1000), 3)]
    return rf"\{{{','.join(items)}\}}", rf"\{{{', '.join(reversed(items))}\}}"


def root(rng: random.Random) -> Pair:
    a, b = rng.randint(2, 99), rng.choice([2, 3, 5, 6, 7, 10])
    return rf"{a}\sqrt{{{b}}}", rf"\sqrt{{{a * a * b}}}"


def polynomial(rng: random.Random) -> Pair:
    a, b = rng.randint(1, 99), rng.randint(1, 99)
    return f"x^2+{a + b}x+{a * b}", f"(x+{a})(x+{b})"


def line(rng: random.Random) -> Pair:
    a, b, c = (rng.randint(1, 99) for _ in range(3))
    return f"{a}x+{b}y={c}", f"{2 * a}x+{2 * b}y-{2 * c}=0"


KINDS: dict[str, Callable[[random.Random], Pair]] = {
    f.__name__: f
    for f in (integer, decimal, fraction, percent, point, interval, collection, root, polynomial, line)
}


def spoiled(text: str, rng: random.Random) -> str:
    """The same text with one digit changed: another value in every kind above."""
    places = [i for i, c in enumerate(text) if c.isdigit() and c != "0" and text[i - 1 : i] not in ("^", ".")]
    place = rng.choice(places)
    digit = rng.choice([d for d in "123456789" if d != text[place]])
    return text[:place] + digit + text[place + 1 :]


def throughput(count: int) -> None:
    print(f"{'kind':12} {'checks/s':>10}   (median of 3, {count} new pairs each)")
    speeds: list[float] = []
    for name, make in KINDS.items():
        rng = random.Random(0)
        rates = []
        for _ in range(3):
            pairs = [make(rng) for _ in range(count)]
            completions = [rf"{FILLER}The answer is $\boxed{{{answer}}}$." for _, answer in pairs]
            started = time.process_time()
            scores = [
                math_reward(c, {"answer": gold}) for c, (gold, _) in zip(completions, pairs, strict=True)
            ]
            rates.append(count / (time.process_time() - started))
            assert all(score.value == 1.0 for score in scores), name
        speeds.append(statistics.median(rates))
        print(f"{name:12} {speeds[-1]:10,.0f}")
    print(f"{'mixed':12} {len(speeds) / sum(1 / s for s in speeds):10,.0f}   (harmonic mean)")


def error_rates(count: int) -> None:
    judges: dict[str, Callable[[str, str], bool]] = {
        "assay": lambda gold, answer: check(gold, answer).is_equal
    }
    try:
        judges["math-verify"] = math_verify_judge()
    except ImportError:
        print("math-verify is not installed: only our own rates are shown")
    rng = random.Random(1)
    equal = [make(rng) for make in KINDS.values() for _ in range(count // len(KINDS))]
    different = [(gold, spoiled(answer, rng)) for gold, answer in equal]
    print(f"\n{'judge':12} {'false negatives':>16} {'false positives':>16}   of {len(equal)} pairs each")
    for name, judge in judges.items():
        read.cache_clear()
        negatives = sum(not judge(*pair) for pair in equal)
        positives = sum(judge(*pair) for pair in different)
        print(f"{name:12} {negatives / len(equal):16.1%} {positives / len(different):16.1%}")


def math_verify_judge() -> Callable[[str, str], bool]:
    from math_verify import parse, verify

    def judge(gold: str, answer: str) -> bool:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return bool(verify(parse(f"${gold}$"), parse(f"${answer}$")))

    return judge


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=400)
    count = parser.parse_args().pairs
    throughput(count)
    error_rates(count)


if __name__ == "__main__":
    main()
