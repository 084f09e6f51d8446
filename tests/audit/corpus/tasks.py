"""Small task files in the shapes that people train on."""

ARITHMETIC = [
    ("What is 17 + 25?", "42"), ("What is 8 - 30?", "-22"), ("What is 36 times 41?", "1476"),
    ("How many days are in 13 weeks?", "91"), ("What is 5 - 12?", "-7"), ("What is 250 times 9?", "2250"),
    ("What is 144 divided by 12?", "12"), ("What is 7 cubed?", "343"),
]  # fmt: skip
FRACTIONS = [
    ("What is 1 divided by 4?", "1/4"), ("What is 9 divided by 2, as a decimal?", "4.5"),
    ("What is 40 times 50?", "2000"), ("What is 3 minus 11?", "-8"), ("What is 5 divided by 8?", "5/8"),
    ("What is 2.5 plus 0.25?", "2.75"), ("What is 61 plus 12?", "73"), ("What is 1200 plus 34?", "1234"),
]  # fmt: skip
LETTERS = [
    ("Which is a mammal?\nA) trout\nB) whale\nC) eagle\nD) cobra", "B"),
    ("Which is a metal?\nA) iron\nB) amber\nC) chalk\nD) wool", "A"),
    ("Which planet has rings?\nA) Venus\nB) Mars\nC) Saturn\nD) Mercury", "C"),
    ("Which is the largest?\nA) 3\nB) 5\nC) 7\nD) 9", "D"),
    ("Which flows?\nA) stone\nB) river\nC) hill\nD) tree", "B"),
    ("Which is red?\nA) grass\nB) sky\nC) ruby\nD) snow", "C"),
]  # fmt: skip
CAPITALS = [
    ("What is the capital of France?", "Paris"), ("What is the capital of Japan?", "Tokyo"),
    ("What is the capital of Kenya?", "Nairobi"), ("What is the capital of Chile?", "Santiago"),
    ("What is the capital of Norway?", "Oslo"), ("What is the capital of Egypt?", "Cairo"),
]  # fmt: skip
MEASURES = [
    ("Estimate the distance in km, within 5%: Rome to Milan.", "477"),
    ("Estimate the distance in km, within 5%: Oslo to Bergen.", "305"),
    ("Estimate the mass in kg, within 5%: a grand piano.", "480"),
    ("Estimate the height in m, within 5%: the Eiffel tower.", "330"),
]
PROGRAMS = [
    ("add", "a, b", "a + b", [("(1, 2)", "3"), ("(5, 5)", "10")], [("(7, -3)", "4"), ("(0, 41)", "41")]),
    ("double", "n", "2 * n", [("(4,)", "8"), ("(0,)", "0")], [("(-3,)", "-6"), ("(21,)", "42")]),
    (
        "largest",
        "a, b",
        "max(a, b)",
        [("(1, 3)", "3"), ("(9, 4)", "9")],
        [("(-2, -8)", "-2"), ("(6, 7)", "7")],
    ),
]
ASK = {
    "boxed": "Put the final answer in \\boxed{}.",
    "tag": "Give the final answer inside <answer></answer>.",
    "think": "Think inside <think></think>, then answer inside <answer></answer>.",
    "hash": "End with a line of the form #### 7.",
    "json": 'Reply with a JSON object such as {"answer": 7}.',
    "line": "End with a line such as 'Answer: 7'.",
    "plain": "",
    "letter": "Reply with one letter inside <answer></answer>.",
    "option": "End with 'The answer is (X).'",
    "only": "Reply with the number only, digits without commas.",
}


def rows(pairs, ask, column="answer", **extra):
    return [{"prompt": f"{question} {ASK[ask]}".strip(), column: gold, **extra} for question, gold in pairs]


def nested(pairs, ask):
    return [
        {"prompt": [{"role": "user", "content": f"{question} {ASK[ask]}"}], "data_source": "own",
         "reward_model": {"style": "rule", "ground_truth": gold}}
        for question, gold in pairs
    ]  # fmt: skip


def programs(hidden):
    """Tasks with two shown cases; ``tests`` holds them, or others that the prompt does not show."""
    found = []
    for name, arguments, body, shown, kept in PROGRAMS:
        cases = [f"assert {name}{call} == {value}" for call, value in shown]
        other = [f"assert {name}{call} == {value}" for call, value in kept]
        found.append(
            {
                "prompt": f"Write a Python function {name}({arguments}). It must pass:\n" + "\n".join(cases),
                "answer": f"def {name}({arguments}):\n    return {body}\n",
                "entry_point": name,
                "tests": "\n".join(other if hidden else cases),
            }
        )
    return found


TASKS = {
    "arithmetic boxed": rows(ARITHMETIC, "boxed"), "arithmetic tag": rows(ARITHMETIC, "tag"),
    "arithmetic think": rows(ARITHMETIC, "think"), "arithmetic hash": rows(ARITHMETIC, "hash"),
    "arithmetic json": rows(ARITHMETIC, "json"), "arithmetic line": rows(ARITHMETIC, "line"),
    "arithmetic plain": rows(ARITHMETIC, "plain"), "arithmetic only": rows(ARITHMETIC, "only"),
    "arithmetic verl": nested(ARITHMETIC, "boxed"), "arithmetic verl hash": nested(ARITHMETIC, "hash"),
    "arithmetic label": rows(ARITHMETIC, "boxed", "label"),
    "fractions boxed": rows(FRACTIONS, "boxed"), "fractions tag": rows(FRACTIONS, "tag"),
    "fractions line": rows(FRACTIONS, "line"),
    "letters tag": rows(LETTERS, "letter"), "letters option": rows(LETTERS, "option"),
    "letters line": rows(LETTERS, "line"), "letters plain": rows(LETTERS, "plain"),
    "capitals tag": rows(CAPITALS, "tag"), "capitals line": rows(CAPITALS, "line"),
    "capitals plain": rows(CAPITALS, "plain"), "capitals json": rows(CAPITALS, "json"),
    "measures tag": rows(MEASURES, "tag"),
    "three words": [
        {"prompt": f"Describe {thing} in exactly three words.", "words": 3}
        for thing in ("the sea", "a mountain", "winter", "a library", "your town", "music")
    ],
    "programs shown": programs(hidden=False), "programs hidden": programs(hidden=True),
}  # fmt: skip
