"""Pairs that are equal and pairs that are not, kind by kind; every verdict holds in both directions."""

import time

import pytest

from assay.rewards.mathematics.equality import check

EQUAL = {
    "fractions": [
        (r"\frac{3}{5}", "0.6"), (r"\frac{3}{5}", r"\frac35"), (r"\frac{3}{5}", r"\dfrac{6}{10}"),
        ("3/5", ".60"), (r"-\frac{2}{7}", r"\frac{-2}{7}"), (r"-\frac27", r"\frac{2}{-7}"),
        (r"\frac{7\pi}{4}", r"1.75\pi"), (r"\sqrt{\frac{9}{16}}", r"\frac34"), ("1.25", r"\frac{5}{4}"),
        (r"\frac{2}{\sqrt{7}}", r"\frac{2\sqrt{7}}{7}"), (r"\frac{\frac12}{3}", r"\frac16"),
        (r"0.\overline{6}", r"\frac23"), ("0.1(6)", "1/6"), ("−3/8", "-0.375"), ("½", "0.5"),
        (r"\tfrac{x}{2}", r"0.5x"), ("2 1/3", "7/3"), (r"2\frac{1}{3}", r"\frac73"), (r"-1\frac12", "-1.5"),
    ],
    "grouping": [
        ("25000", "25,000"), ("25000", "25{,}000"), ("25000", r"25\,000"), ("1234567.5", "1,234,567.5"),
        ("-12,000", "-12000"), ("25000", "25000."), ("25 000", "25000"), ("11,\\! 111", "11111"),
        (r"\$1,250", "1250"), ("$72", "72"), ("72\\$", "72"), ("100,200", "100, 200"),
    ],
    "powers": [
        ("1.5e3", "1500"), (r"2.5 \times 10^{-3}", "0.0025"), ("10^{400}", "1" + "0" * 400), ("2^{10}", "1024"),
        ("2^3^2", "512"), (r"8^{2/3}", "4"), (r"\sqrt[3]{54}", r"3\sqrt[3]{2}"), (r"\sqrt[3]{-27}", "-3"),
        (r"\sqrt{-9}", "3i"), ("(2+i)^2", "3+4i"), (r"\sqrt{2}\sqrt{3}", r"\sqrt6"),
        (r"(1+\sqrt2)(1-\sqrt2)", "-1"), ("5!", "120"), (r"\binom{6}{2}", "15"), ("|-7|", "7"),
        ("10^{10^{10}}", "10^{10^{10}}"), (r"\frac{5\sqrt{42}}{27}", r"\frac{10\sqrt{10.5}}{27}"),
    ],
    "percent": [
        ("60%", r"60\%"), (r"62.5\%", "0.625"), (r"\frac{3}{4}", r"75 \%"), ("28 percent", r"28\%"),
        ("$28$ %", "28%"), ("110%", "1.1"),
    ],
    "units": [
        ("1 km", "1000 m"), ("3 kg", "3000 g"), (r"5\text{ m}^2", "5 m^2"), ("12 in", "1 ft"), ("-5 m", r"-5\text{ m}"),
        (r"\frac{1}{2} m", "50 cm"), (r"x\text{ m}", "x m"), ("2 mL", "0.002 L"),
        (r"15\text{ cm}", "15 cm"), (r"15\mbox{ cm}^2", r"15\text{ cm}^2"), ("7 inches", r"7\text{ in}"),
        (r"2\text{ m}", r"200\text{ cm}"), ("3 hours", r"180\text{ minutes}"), (r"45^\circ", "45 degrees"),
        ("45°", "45"), (r"12\text{ apples}", "12"), ("$125$ miles", r"125\textnormal{ miles}"),
        (r"4\text{ m}^2", r"40000\text{ cm}^2"), ("50 cents", r"0.5\text{ dollars}"), ("€9", "9"),
    ],
    "brackets": [
        ("(1, 2)", "(1,2)"), (r"\left(1,\frac12\right)", "(1, 0.5)"), ("[3,9)", "[3, 9)"),
        (r"(-\infty, 4]", r"(-\infty,4]"), (r"(1,2)\cup(5,6)", r"(5,6) \cup (1,2)"),
        (r"[1,3]\cup[2,5]", "[1,5]"), (r"[0,1]\cup(1,2)", "[0,2)"), (r"\mathbb{R}", r"(-\infty,\infty)"),
        (r"x \in (1,2]", "(1,2]"), ("D = (2, 8)", "(2,8)"), ("(p,q)=(3,2)", "(3,2)"), ("((2))", "2"),
    ],
    "sets": [
        (r"\{4, 5\}", r"\{5,4\}"), ("4, 5", "5,4"), (r"\{4,5\}", "4, 5"), (r"\{1,1,2\}", r"\{1,2\}"),
        ("x=4, x=5", "4,5"), ("x = 4 or x = 5", "5, 4"), (r"4 \text{ and } 5", "4,5"),
        (r"2 \pm \sqrt{3}", r"2-\sqrt{3}, 2+\sqrt3"), (r"\pm 6", "-6, 6"), (r"\{5\}", "5"),
        (r"19, 46, \text{ and } 82", "19,46,82"), ("(1,2),(3,4)", "(3,4),(1,2)"), ("-1;-2", "-2,-1"),
        (r"\emptyset", r"\{\}"), ("AB=4,CD=5", "4,5"), (r"\sqrt{3+2\sqrt2}", r"1+\sqrt2"), ("|x|", r"\sqrt{x^2}"),
        (r"\tan^2(y)+1", r"\sec^2(y)"), (r"\sum_{k=1}^n k", r"\frac{n(n+1)}{2}"), (r"\log_2 8", "3"),
    ],
    "matrices": [
        (r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", r"\begin{bmatrix} 1 & 2 \\ 3 & 4 \\ \end{bmatrix}"),
        (r"\begin{pmatrix}\frac12\\3\end{pmatrix}", r"\left[\begin{array}{c}0.5\\3\end{array}\right]"),
    ],
    "expressions": [
        ("x^2-9", "(x-3)(x+3)"), ("2(a+b)", "2b+2a"), (r"\frac{a-2}{7}", r"\frac{a}{7}-\frac{2}{7}"),
        ("xy", "yx"), (r"\frac{x^2-1}{x-1}", "x+1"), (r"x^{-2}", r"\frac{1}{x^2}"), (r"\pi r^2", r"r^2\pi"),
        (r"(x+y)^3", "x^3+3x^2y+3xy^2+y^3"), (r"x_1+x_2", "x_2 + x_1"), (r"x_{1}", "x_1"),
        (r"e^{x+1}", r"e^{1+x}"), (r"\frac{1}{\mathrm{e}}", "1/e"), (r"2\sin b\cos a", r"2\cos(a)\sin(b)"),
    ],
    "equations": [
        ("3x+6y=9", "x+2y=3"), ("y=3x-2", "3x-y-2=0"), ("-x+y=4", "x-y=-4"), ("x=5", "5"), ("5", "n = 5"),
        ("f(x)=2x", "2x"), ("S = 2+3 = 5", "5"), ("2+3=5", "5"), ("x+y=12", "12"), ("AB=4", "4"),
        ("x<4", "4>x"), ("3<x<8", "8>x>3"), (r"2x\le 6", r"x \leq 3"), (r"-x<1", "x>-1"),
        (r"x \ne 3", r"x\neq3"), (r"x=\frac13\approx0.33", "1/3"), (r"x \approx 11", "11"), ("3:4", "3 : 4"),
    ],
    "words": [
        (r"\text{Evelyn}", "Evelyn"), (r"\text{(C)}", "C"), ("(C)", "C"), ("No solution", r"\text{no solution}"),
        (r"\text{even}", "even"), (r"204_5", "204_{5}"), (r"\text{B}", r"\textbf{B}"),
    ],
}  # fmt: skip

DIFFERENT = {
    "fractions": [
        (r"\frac{3}{5}", r"\frac{5}{3}"), (r"\frac{3}{5}", "0.06"), (r"\frac{3}{5}", "35"),
        (r"\frac{3}{5}", "3"), (r"\frac{3}{5}", "5"), (r"-\frac{2}{7}", r"\frac{2}{7}"),
        (r"3-\sqrt{2}", r"3+\sqrt{2}"), (r"4\sqrt{3}", "4"), ("7", r"7\sqrt{2}"), (r"\frac{1}{3}", "0.333"),
        (r"\frac{1}{3}", "0.3333333333"), (r"2\frac13", r"\frac23"), ("3.14", r"\pi"), ("7", r"7\sqrt(2)"),
        (r"\frac{1+\sqrt5}{2}", "1.618033988749895"),
    ],
    "grouping": [
        ("25000", "25"), ("25000", "0"), ("56", "5,6"), ("123", "1,23"), ("25000", "250,00"), ("34", "(3,4)"),
        ("25000", "25,001"), ("4", "4,000"), ("1234", "234"), ("1234", "1"), ("12", "1 2"), ("3.5", "3,5"),
    ],
    "powers": [
        ("10^{-40}", "0"), ("3", "10^{10^{10}}"), ("10^{10^{10}}", "10^{10^{10}}+1"), ("3", "(10^9)!"),
        ("3", "8^{8^{8^8}}"), ("2^{10}", "210"), (r"\sqrt{2}", "1.41421356"), ("6!", "6"), ("i", "1"),
    ],
    "percent": [("60%", "6%"), ("60%", "600%"), ("0.6", "0.6%"), (r"60\%", "60"), ("7.25%", "7.52%")],
    "units": [
        ("5 m", "5 km"), ("5 g", "5 km"), ("5 m^2", r"5\text{ m}"), ("5 x", "5 cm"), ("5 m", "5"), ("x m", "5 km"),
        (r"5\text{ m}", r"5\text{ cm}"), (r"5\text{ kg}", r"5\text{ m}"), (r"5\text{ m}^2", r"5\text{ m}"),
        (r"12\text{ apples}", r"12\text{ pears}"), ("12 cm", "13"), (r"45^\circ", "54"),
    ],
    "brackets": [
        ("(3,9)", "[3,9]"), ("[3,9)", "(3,9]"), ("(3,9)", "(3,9.5)"), ("(3,9)", "(9,3)"),
        (r"(-\infty,4)", r"(4,\infty)"), (r"(1,2)\cup(5,6)", "(1,6)"), (r"(1,2)\cup(2,3)", "(1,3)"),
        ("D=(2,7)", "D=(2,8)"), ("2<x<7", "(2,7)"), ("(1,2)", r"\{1,2\}"), ("(1,2)", "1,2"), ("(1,2,3)", "(1,2)"),
        (r"\infty", r"-\infty"), ("[0,1)", "-[0,1)"),
    ],
    "sets": [
        (r"\{4,5\}", r"\{4,6\}"), ("4,5", "4"), ("4", "1,2,3,4,5"), (r"\pm 6", "6"), ("x=4,y=5", "5,4"),
        ("x=1,x=2", "y=1,y=2"), (r"\{\}", "0"), ("1,2,3", "1,2"),
    ],
    "matrices": [
        (r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", r"\begin{pmatrix}1&2\\3&5\end{pmatrix}"),
        (r"\begin{pmatrix}1&2\end{pmatrix}", r"\begin{pmatrix}1\\2\end{pmatrix}"),
        (r"\begin{pmatrix}1&2\end{pmatrix}", "(1,2)"),
    ],
    "expressions": [
        ("x^2-9", "(x-3)^2"), ("2x", "x^2"), ("x+2n+1", "x+1"), ("(a+5)(b+2)", "(+5)(b+2)"), ("x", "y"),
        (r"x_1", "x_2"), (r"\frac{x}{y}", r"\frac{y}{x}"), (r"\sin x", r"\cos x"),
        (r"1-\frac{1}{\mathrm{e}}", r"1+\frac{1}{\mathrm{e}}"), ("ab", "aB"),
    ],
    "equations": [
        ("3x-5y+9=0", "7x+y+9=0"), ("y=3x-2", "y=3x+2"), ("x^2=4y", "y^2=4x"), ("x<4", "x>4"),
        (r"x\le 4", "x<4"), (r"S_n=\sum_{k=1}^{n}k", r"S_n=\sum_{k=0}^{n-1}k"), ("x=2", "y=2"), ("2x=4", "4"),
        ("x=5", "x<5"), ("x = 5+5+1 = 7 = 11", "11"), ("2+2=5", "5"), ("y=2x", "x=2y"), ("3:4", "4:3"),
        ("2<x<7", r"2\le x\le 7"),
    ],
    "words": [
        (r"\text{even}", r"\text{odd}"), ("A", "B"), ("Paris", "London"), ("(C)", "D"), ("204_5", "204_6"),
        ("5", "five"),
    ],
    "unreadable": [
        (r"\frac{1}{2}", ""), ("5", "5 if True else 6"), ("5", "(lambda: 5)()"), ("nan", "nan"), ("1/0", "1/0"),
        (r"\frac{1}{0}", r"\frac{1}{0}"), (r"\infty-\infty", "0"), ("5", "?"), ("0", "zzz"), ("0", "_"),
        (r"\frac{1}{2-2}", r"\frac{1}{2-2}"), ("5", "5" * 5000), ("5", "x" * 30_000), ("3", "{" * 500),
    ],
}  # fmt: skip


def flat(table):
    return [
        pytest.param(*pair, id=f"{kind}-{i}") for kind, pairs in table.items() for i, pair in enumerate(pairs)
    ]


@pytest.mark.parametrize(("gold", "answer"), flat(EQUAL))
def test_equal(gold, answer):
    assert check(gold, answer).state == "equal"
    assert check(answer, gold).state == "equal"


@pytest.mark.parametrize(("gold", "answer"), flat(DIFFERENT))
def test_not_equal(gold, answer):
    assert not check(gold, answer).is_equal
    assert not check(answer, gold).is_equal


STRINGS = [
    "0.25", r"\frac{1}{4}", "2,000", r"12\text{ kg}", "(3,8]", r"\{3,4\}", "x^2-4", r"\infty", r"\pm 9",
    r"\text{D}", "3<x<8", "-5", "10^{-30}", "(3,4)", r"\begin{pmatrix}1\\2\end{pmatrix}", "y=2x", "no solution",
]  # fmt: skip


def test_every_text_equals_itself_and_only_one_pair_is_equal():
    equal = [{a, b} for a in STRINGS for b in STRINGS if a != b and check(a, b).is_equal]
    assert all(check(a, a).is_equal for a in STRINGS)
    assert equal == [{"0.25", r"\frac{1}{4}"}] * 2


@pytest.mark.parametrize(
    ("gold", "reason"),
    [
        ("", "empty"), ("\frac12", "control character"), ("\beta", "0x08"), ("see the proof above", "not a math"),
        ("nan", "not a number"), ("1/0", "division by zero"), ("x" * 20_001, "longer than"), ("?", "not a math"),
        (r"\infty-\infty", "infinities"), ("N/A", "not a number"),
    ],
)  # fmt: skip
def test_an_unusable_gold_says_why(gold, reason):
    verdict = check(gold, "5")
    assert verdict.state == "unreadable_gold"
    assert reason in str(verdict.reason)


def test_what_cannot_be_proved_is_undecided_and_not_paid():
    verdict = check("10^{10^{10}}", "10^{10^{10}}+1")
    assert verdict.state in ("undecided", "different")
    assert check("2^{100000}", "4^{50000}").state == "undecided"


@pytest.mark.parametrize(
    "text", ["-" * 20_000, "ab'" * 6_000, "'" * 20_000, "(" + "111," * 4_900, "ab, " * 5_000]
)
def test_a_text_outside_the_grammar_is_refused_in_linear_time(text):
    started = time.process_time()
    assert not check("5", text).is_equal
    assert not check(text, "5").is_equal
    assert time.process_time() - started < 1
