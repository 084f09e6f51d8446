"""The problems of the code task: a text, a reference in Python, and a way to draw inputs.

A reference takes its inputs and, where the problem has a parameter, ``k`` as the last argument. Inputs and
results are lists, numbers, texts and booleans, so that tests survive JSON.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem, or one for each value of its parameter.

    Attributes:
        text: what ``solve`` must return; ``{k}`` is the parameter.
        parameters: its name in the text and in the reference's source.
        reference: the right answer.
        draw: arguments of one test.
        values: the parameter's values; empty without one.
    """

    text: str
    parameters: str
    reference: Callable[..., Any]
    draw: Callable[[random.Random], list[Any]]
    values: tuple[int, ...] = ()


def count_multiples(numbers: list[int], k: int) -> int:  # noqa: D103
    return sum(number % k == 0 for number in numbers)


def clamp(numbers: list[int], k: int) -> list[int]:  # noqa: D103
    return [max(-k, min(k, number)) for number in numbers]


def rotate(numbers: list[int], k: int) -> list[int]:  # noqa: D103
    if not numbers:
        return []
    k = k % len(numbers)
    return numbers[k:] + numbers[:k]


def chunks(numbers: list[int], k: int) -> list[list[int]]:  # noqa: D103
    return [numbers[start : start + k] for start in range(0, len(numbers), k)]


def every_kth(numbers: list[int], k: int) -> list[int]:  # noqa: D103
    return numbers[::k]


def window_sums(numbers: list[int], k: int) -> list[int]:  # noqa: D103
    return [sum(numbers[start : start + k]) for start in range(len(numbers) - k + 1)]


def largest(numbers: list[int], k: int) -> list[int]:  # noqa: D103
    return sorted(numbers, reverse=True)[:k]


def long_words(text: str, k: int) -> list[str]:  # noqa: D103
    return [word for word in text.split() if len(word) > k]


def shift_letters(text: str, k: int) -> str:  # noqa: D103
    return "".join(chr((ord(letter) - 97 + k) % 26 + 97) if letter != " " else " " for letter in text)


def repeat_letters(text: str, k: int) -> str:  # noqa: D103
    return "".join(letter * k for letter in text)


def digits_in_base(number: int, k: int) -> list[int]:  # noqa: D103
    digits = [number % k]
    while number >= k:
        number //= k
        digits.append(number % k)
    return digits[::-1]


def without_repeats(numbers: list[int]) -> list[int]:  # noqa: D103
    return list(dict.fromkeys(numbers))


def run_lengths(text: str) -> list[list[Any]]:  # noqa: D103
    runs: list[list[Any]] = []
    for letter in text:
        if runs and runs[-1][0] == letter:
            runs[-1][1] += 1
        else:
            runs.append([letter, 1])
    return runs


def count_vowels(text: str) -> int:  # noqa: D103
    return sum(letter in "aeiou" for letter in text)


def is_palindrome(text: str) -> bool:  # noqa: D103
    letters = [letter for letter in text if letter != " "]
    return letters == letters[::-1]


def gaps(numbers: list[int]) -> list[int]:  # noqa: D103
    return [numbers[at + 1] - numbers[at] for at in range(len(numbers) - 1)]


def running_maximum(numbers: list[int]) -> list[int]:  # noqa: D103
    best: list[int] = []
    for number in numbers:
        best.append(number if not best else max(best[-1], number))
    return best


def longest_word(text: str) -> str:  # noqa: D103
    return max(text.split(), key=len)


def numbers_from(low: int, high: int, least: int, most: int) -> Callable[[random.Random], list[Any]]:
    """Draws one list of ``least`` to ``most`` integers from ``low`` to ``high``."""
    return lambda rng: [[rng.randint(low, high) for _ in range(rng.randint(least, most))]]


def one_number(low: int, high: int) -> Callable[[random.Random], list[Any]]:
    """Draws one integer."""
    return lambda rng: [rng.randint(low, high)]


def some_words(rng: random.Random) -> list[Any]:
    """Draws one text of two to six short words."""
    words = ["".join(rng.choices("abcdeio", k=rng.randint(1, 7))) for _ in range(rng.randint(2, 6))]
    return [" ".join(words)]


def few_letters(rng: random.Random) -> list[Any]:
    """Draws one text with many runs and palindromes."""
    half = "".join(rng.choices("ab", weights=[3, 1], k=rng.randint(1, 5)))
    return [half + (half[::-1] if rng.random() < 0.5 else rng.choice("abc"))]


SMALL = numbers_from(-9, 20, 3, 9)
PROBLEMS: dict[str, Problem] = {
    "count_multiples": Problem(
        "how many of the numbers are multiples of {k}", "numbers", count_multiples, SMALL, (2, 3, 4, 5, 7)
    ),
    "clamp": Problem(
        "the numbers, each brought into the range from -{k} to {k}", "numbers", clamp, SMALL, (2, 3, 5, 8)
    ),
    "rotate": Problem(
        "the list rotated to the left by {k} places", "numbers", rotate, SMALL, (1, 2, 3, 4, 5)
    ),
    "chunks": Problem(
        "the list cut into lists of {k} numbers; the last one may be shorter",
        "numbers",
        chunks,
        SMALL,
        (2, 3, 4),
    ),
    "every_kth": Problem(
        "the first number and every {k}th number after it", "numbers", every_kth, SMALL, (2, 3, 4)
    ),
    "window_sums": Problem(
        "the sums of every {k} neighbouring numbers, from left to right",
        "numbers",
        window_sums,
        SMALL,
        (2, 3),
    ),
    "largest": Problem("the {k} largest numbers, largest first", "numbers", largest, SMALL, (1, 2, 3)),
    "long_words": Problem(
        "the words that are longer than {k} letters, in order", "text", long_words, some_words, (1, 2, 3, 4)
    ),
    "shift_letters": Problem(
        "the text with every letter moved {k} places on in the alphabet (z is followed by a); spaces stay",
        "text",
        shift_letters,
        some_words,
        (1, 2, 3, 5, 13),
    ),
    "repeat_letters": Problem(
        "the text with every letter written {k} times", "text", repeat_letters, few_letters, (2, 3, 4)
    ),
    "digits_in_base": Problem(
        "the digits of the number in base {k}, most significant first",
        "number",
        digits_in_base,
        one_number(0, 999),
        (2, 3, 5, 8, 16),
    ),
    "without_repeats": Problem(
        "the list without repeated numbers, the first of each kept",
        "numbers",
        without_repeats,
        numbers_from(0, 5, 4, 10),
    ),
    "run_lengths": Problem(
        "a list of [letter, count], one for each run of equal letters", "text", run_lengths, few_letters
    ),
    "count_vowels": Problem("how many letters of the text are vowels", "text", count_vowels, some_words),
    "is_palindrome": Problem(
        "whether the text reads the same backwards, spaces aside", "text", is_palindrome, few_letters
    ),
    "gaps": Problem("each number's difference to the number before it", "numbers", gaps, SMALL),
    "running_maximum": Problem("the largest number so far, at each place", "numbers", running_maximum, SMALL),
    "longest_word": Problem(
        "the longest word; the first of them, if several", "text", longest_word, some_words
    ),
}
