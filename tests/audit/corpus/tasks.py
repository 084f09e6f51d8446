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
DISTANCES = [
    ("How far is it from the gate to the well?", "350 m"), ("How long is the bridge?", "1.2 km"),
    ("How wide is the river here?", "45 m"), ("How tall is the jar?", "30 cm"), ("How far is the town?", "17 km"),
]  # fmt: skip
SHARES = [
    ("What share is 1 of 4?", "25%"), ("What share is 3 of 5?", "60%"), ("What share is 7 of 50?", "14%"),
    ("What share is 9 of 10?", "90%"), ("What share is 1 of 8?", "12.5%"),
]  # fmt: skip
TIMES = [
    ("When does it leave, 20 minutes after 9:15?", "9:35"), ("What is two hours after 3:10?", "5:10"),
    ("What is half an hour before 12:05?", "11:35"), ("What is 10 minutes before 8:00?", "7:50"),
]  # fmt: skip
DATES = [
    ("When did the war end?", "1945-05-08"), ("When was the landing?", "1969-07-20"),
    ("When did the wall fall?", "1989-11-09"), ("When was the treaty signed?", "1957-03-25"),
]  # fmt: skip
LISTS = [
    ("Name the colours of the French flag.", "blue, white, red"), ("Name the vowels of 'pineapple'.", "i, e, a"),
    ("Name the first three planets.", "mercury, venus, earth"), ("Name two light noble gases.", "helium, neon"),
    ("Name the Baltic states.", "estonia, latvia, lithuania"),
]  # fmt: skip
PEOPLE = [
    (f"Extract the name and the age: {name} is {age}.", f'{{"name": "{name}", "age": {age}}}')
    for name, age in (("Ann", 3), ("Bob", 41), ("Cleo", 29), ("Dan", 77))
]
SENTENCES = [
    ("Translate: le chat dort.", "the cat sleeps"), ("Translate: il pleut.", "it rains"),
    ("Translate: la porte est ouverte.", "the door is open"), ("Translate: merci beaucoup.", "thank you very much"),
]  # fmt: skip
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
    "quantity": "Give the number and the unit inside <answer></answer>.",
    "date": "Give the date as YYYY-MM-DD inside <answer></answer>.",
    "time": "End with a line such as 'Time: 7:30'.",
    "list": "Give the list inside <answer></answer>, separated by commas.",
    "keys": "Reply with a JSON object with the keys 'name' and 'age'.",
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
    "distances tag": rows(DISTANCES, "quantity"), "shares tag": rows(SHARES, "quantity"),
    "times line": rows(TIMES, "time"), "dates tag": rows(DATES, "date"), "lists tag": rows(LISTS, "list"),
    "people json": rows(PEOPLE, "keys"), "sentences plain": rows(SENTENCES, "plain"),
    "three words": [
        {"prompt": f"Describe {thing} in exactly three words.", "words": 3}
        for thing in ("the sea", "a mountain", "winter", "a library", "your town", "music")
    ],
    "programs shown": programs(hidden=False), "programs hidden": programs(hidden=True),
}  # fmt: skip
