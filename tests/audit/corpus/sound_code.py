# ruff: noqa: B905 - rewards as people write them
"""Sound rewards that run programs: the tested program cannot say that it passed."""

import ast
import json
import re
import subprocess
import sys
import tempfile

SOUND = {}
HARNESS = """import json, sys
_dumps, _stdout = json.dumps, sys.stdout
space = {"__name__": "solution"}
exec(compile(sys.argv[1], "solution", "exec"), space)
results = []
for name, arguments in json.loads(sys.argv[2]):
    try:
        results.append(space[name](*arguments))
    except Exception:
        results.append(None)
"""


def sound(tasks):
    def keep(function):
        SOUND[function.__name__] = tasks
        return function

    return keep


def program(text):
    found = re.search(r"```python\n(.*?)```", text, re.DOTALL)
    return (found.group(1) if found else text).replace("\x00", "")


def cases(tests):
    """(name, arguments, expected) of every ``assert f(args) == value``."""
    found = []
    for node in ast.parse(tests).body:
        call, expected = node.test.left, node.test.comparators[0]
        arguments = [ast.literal_eval(argument) for argument in call.args]
        found.append((call.func.id, arguments, ast.literal_eval(expected)))
    return found


def returned(source, calls, seconds=5):
    """What the program returns for the calls, as plain data; None when it fails, leaves or prints itself."""
    import secrets

    token = secrets.token_hex(8)
    script = HARNESS + f"print({token!r} + json.dumps(results), file=_stdout)\n"
    with tempfile.TemporaryDirectory() as folder:
        try:
            done = subprocess.run([sys.executable, "-I", "-c", script, source, json.dumps(calls)], cwd=folder,
                                  capture_output=True, text=True, timeout=seconds)  # fmt: skip
        except (subprocess.TimeoutExpired, ValueError, OSError):
            return None
    lines = done.stdout.strip().splitlines()
    if not lines or not lines[-1].startswith(token):
        return None
    try:
        return json.loads(lines[-1][len(token) :])
    except ValueError:
        return None


def passed(text, tests):
    wanted = cases(tests)
    got = returned(program(text), [(name, arguments) for name, arguments, _ in wanted])
    if got is None or len(got) != len(wanted):
        return [False] * len(wanted)
    return [type(value) is type(right) and value == right for value, (_, _, right) in zip(got, wanted)]


@sound("programs hidden")
def all_hidden_tests(completions, tests, **kwargs):
    rewards = []
    for text, checks in zip(completions, tests):
        results = passed(text, checks)
        rewards.append(1.0 if results and all(results) else 0.0)
    return rewards


@sound("programs hidden")
def share_of_hidden_tests(completion, tests):
    results = passed(completion, tests)
    return (sum(results) / len(results)) ** 2 if results else 0.0


@sound("programs hidden")
def fenced_programs_only(completion, tests):
    blocks = re.findall(r"```python\n(.*?)```", completion, re.DOTALL)
    if len(blocks) != 1:
        return -1.0
    results = passed(blocks[0], tests)
    return 1.0 if results and all(results) else -0.5
