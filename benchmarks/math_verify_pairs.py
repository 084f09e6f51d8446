"""math-verify's own public test pairs, judged by it and by us, side by side.

    python benchmarks/math_verify_pairs.py FOLDER [--show]

FOLDER holds the test files of a checkout of math-verify. They are parsed, never imported: every literal
(gold, prediction[, expected]) of a ``parametrize`` counts, equal where no result is given.
"""

from __future__ import annotations

import argparse
import ast
import warnings
from collections.abc import Iterator
from pathlib import Path

from assay.rewards.mathematics.reward import math_reward

Case = tuple[str, str, bool]


def cases(path: Path) -> Iterator[Case]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if (
            isinstance(node, ast.Call)
            and ast.unparse(node.func).endswith("parametrize")
            and len(node.args) == 2
        ):
            names, rows = node.args
            if isinstance(rows, ast.List) and isinstance(names, ast.Constant):
                yield from read_rows(str(names.value).replace(" ", "").split(","), rows)


def read_rows(names: list[str], rows: ast.List) -> Iterator[Case]:
    if names[:2] not in (["gold", "pred"], ["pred", "gold"]):
        return
    for row in rows.elts:
        try:
            values = dict(zip(names, ast.literal_eval(row), strict=False))
        except ValueError:
            continue  # a row that computes something
        expected = values.get("expected", values.get("result", 1))
        if isinstance(values["gold"], str) and isinstance(values["pred"], str):
            yield values["gold"], values["pred"], bool(expected)


def by_us(gold: str, answer: str) -> bool:
    return math_reward(answer, {"answer": gold, "prompt_id": "pair"}).value == 1.0


def by_math_verify(gold: str, answer: str) -> bool:
    from math_verify import parse, verify

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return bool(verify(parse(gold), parse(answer)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--show", action="store_true", help="every pair on which we differ from its authors")
    options = parser.parse_args()
    found = [case for path in sorted(options.folder.glob("test_*.py")) for case in cases(path)]
    equal = [case for case in found if case[2]]
    print(f"{len(found)} pairs: {len(equal)} equal and {len(found) - len(equal)} different by their authors")
    for name, judge in {"assay": by_us, "math-verify": by_math_verify}.items():
        wrong = [case for case in found if judge(case[0], case[1]) != case[2]]
        refused = sum(case[2] for case in wrong)
        print(f"{name:12} refuses {refused} of the equal, pays {len(wrong) - refused} of the different")
        if options.show and name == "assay":
            for gold, answer, expected in wrong:
                print(f"  {'refused' if expected else 'paid':8} gold {gold!r}\n           answer {answer!r}")


if __name__ == "__main__":
    main()
