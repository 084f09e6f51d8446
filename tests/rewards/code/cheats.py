"""Programs that want to be paid for ``add`` without computing it. All are harmless; they run under limits."""

VISIBLE = [([2, 3], 5), ([-1, 1], 0), ([10, 5], 15)]
HIDDEN = [([7, 8], 15), ([100, -3], 97), ([4, 5], 9)]
HONEST = "def add(a, b):\n    return a + b\n"

# what several of them share: spell a record as the harness does, and find what it holds
FORGE = """
import os, sys

def spell(text):
    return b"s%d:" % len(text) + text.encode()

def record(token, number, payload):
    body = b"l4:" + spell(token) + spell(number) + spell("value") + b"b%d:" % len(payload) + payload
    return len(body).to_bytes(4, "big") + body

def spray(data):
    for fd in range(3, 64):
        try:
            os.write(fd, data)
        except OSError:
            pass

def frames():
    frame = sys._getframe(1)
    while frame:
        yield frame
        frame = frame.f_back

def held(name):
    for frame in frames():
        if name in frame.f_locals:
            return frame.f_locals[name]
"""

CHEATS = {
    # leaving early
    "exit_at_import": """
import sys
sys.exit(0)
""",
    "hard_exit_at_import": """
import os
os._exit(0)
""",
    "hard_exit_in_call": """
import os
def add(a, b):
    os._exit(0)
""",
    "exit_in_call": """
def add(a, b):
    raise SystemExit(0)
""",
    "keyboard_interrupt": """
def add(a, b):
    raise KeyboardInterrupt
""",
    "atexit_hard_exit": """
import atexit, os
atexit.register(os._exit, 0)
def add(a, b):
    raise ValueError
""",
    "killed_by_itself": """
import os
def add(a, b):
    os.kill(os.getpid(), 9)
""",
    "abort": """
import os
def add(a, b):
    os.abort()
""",
    "crash": """
import ctypes
def add(a, b):
    ctypes.string_at(0)
""",
    "endless_recursion": """
def add(a, b):
    return add(a, b)
""",
    "close_everything": """
import os
os.closerange(0, 64)
def add(a, b):
    return 5
""",
    # words
    "print_passed": """
print('ALL TESTS PASSED')
print('{"passed": 3, "failed": 0}')
def add(a, b):
    pass
""",
    "print_the_answers": """
def add(a, b):
    print(5); print(0); print(15)
""",
    "fake_stdout": """
import sys, io
sys.stdout = io.StringIO()
def add(a, b):
    return sys.stdout
""",
    # objects that lie about being equal
    "int_equal_to_all": """
class Any(int):
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    __hash__ = int.__hash__
def add(a, b):
    return Any(-999)
""",
    "object_equal_to_all": """
class Any:
    def __eq__(self, o): return True
def add(a, b):
    return Any()
""",
    "str_equal_to_all": """
class Any(str):
    def __eq__(self, o): return True
def add(a, b):
    return Any('5')
""",
    "list_equal_to_all": """
class Any(list):
    def __eq__(self, o): return True
def add(a, b):
    return Any([5])
""",
    "lies_about_its_class": """
class Any:
    __class__ = int
    def __index__(self): return 5
def add(a, b):
    return Any()
""",
    "metaclass": """
class Meta(type):
    def __eq__(cls, other): return True
    def __hash__(cls): return hash(int)
class Any(metaclass=Meta):
    pass
def add(a, b):
    return Any()
""",
    "fake_counter": """
class Counter(dict):
    __module__ = 'collections'
    def __eq__(self, o): return True
def add(a, b):
    return Counter()
""",
    "reduce": """
class Any:
    def __reduce__(self): return (int, (5,))
def add(a, b):
    return Any()
""",
    # other types and lists of guesses
    "true": """
def add(a, b):
    return True
""",
    "none": """
def add(a, b):
    return None
""",
    "nan": """
def add(a, b):
    return float('nan')
""",
    "float_of_the_sum": """
def add(a, b):
    return float(a + b)
""",
    "text_of_the_sum": """
def add(a, b):
    return str(a + b)
""",
    "guess_list": """
def add(a, b):
    return [5, 0, 15, a + b]
""",
    "guess_set": """
def add(a, b):
    return {5, 0, 15}
""",
    "generator": """
def add(a, b):
    yield a + b
""",
    "a_class": """
class add:
    def __init__(self, a, b): pass
""",
    # replacing what the harness uses
    "patched_json": """
import json
json.dumps = lambda *a, **k: '5'
def add(a, b):
    return None
""",
    "patched_builtins": """
import builtins
builtins.type = lambda *a: int
builtins.isinstance = lambda *a: True
builtins.len = lambda x: 1
def add(a, b):
    return 5
""",
    "patched_encode": """
import sys
module = sys.modules['assay.rewards.code.plain']
module.encode = lambda value: b'i5;'
module._write = lambda value, out, depth, ordered: out.append(b'i5;')
def add(a, b):
    return None
""",
    "patched_call": """
import sys
harness = sys.modules['assay.rewards.code.harness']
harness._call = lambda function, call, encode: ('value', b'i5;')
def add(a, b):
    return None
""",
    "patched_write": """
import os
write = os.write
os.write = lambda fd, data: write(fd, data.replace(b'N', b'i5;'))
def add(a, b):
    return None
""",
    "import_hook": """
import sys
class Hook:
    def find_spec(self, *a): sys.exit(0)
sys.meta_path.insert(0, Hook())
def add(a, b):
    import decimal
    return 5
""",
    "traced": """
import sys
def trace(frame, event, arg):
    if 'expected' in frame.f_locals: sys.answer = frame.f_locals['expected']
    return trace
sys.setprofile(trace)
sys.settrace(trace)
def add(a, b):
    return getattr(sys, 'answer', None)
""",
    "small_integers_rewritten": """
import ctypes
def add(a, b):
    ctypes.memmove(id(5) + 24, id(0) + 24, 4)
    return 0
""",
    "module_getattr": """
def __getattr__(name):
    return lambda *a: None
""",
    "signal_in_the_harness": """
import signal
def stop(*a): raise SystemExit(0)
signal.signal(signal.SIGALRM, stop)
signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
def add(a, b):
    return 5
""",
    # forged records
    "blind_records": FORGE
    + """
spray(record('x' * 32, '0', b'i5;') * 3)
def add(a, b):
    return None
""",
    "records_with_the_token": FORGE
    + """
token = held('load')['token']
def add(a, b):
    spray(record(token, held('call')['id'], b'i5;'))
    return None
""",
    "records_written_ahead": FORGE
    + """
token = held('load')['token']
def add(a, b):
    number = held('call')['id']
    spray(record(token, number, b'i%x;' % (a + b)) + record(token, number, b'i5;'))
    return 5
""",
    "every_guess_a_record": FORGE
    + """
token = held('load')['token']
def add(a, b):
    number = held('call')['id']
    spray(b''.join(record(token, number, b'i%x;' % n) for n in range(-5, 200)))
    os._exit(0)
""",
    "records_from_a_child": FORGE
    + """
token = held('load')['token']
def add(a, b):
    if os.fork() == 0:
        spray(record(token, held('call')['id'], b'i5;'))
        os._exit(0)
    os.wait()
    os._exit(0)
""",
    "records_from_a_thread": FORGE
    + """
import threading, time
token = held('load')['token']
def forge():
    while True:
        spray(record(token, '0', b'i5;'))
        time.sleep(0.001)
threading.Thread(target=forge, daemon=True).start()
def add(a, b):
    time.sleep(0.02)
    return None
""",
    "replayed_record": FORGE
    + """
token = held('load')['token']
seen = []
def add(a, b):
    seen.append(held('call')['id'])
    spray(record(token, seen[0], b'i5;'))
    os._exit(0)
""",
    "endless_record": FORGE
    + """
def add(a, b):
    spray((2**32 - 1).to_bytes(4, 'big') + b'x' * 100)
    return None
""",
    "deep_record": FORGE
    + """
token = held('load')['token']
def add(a, b):
    spray(record(token, held('call')['id'], b'l1:' * 50000 + b'N'))
    os._exit(0)
""",
    "collected_objects": """
import gc
def add(a, b):
    for found in gc.get_objects():
        if type(found) is dict and 'expected' in found: return found['expected']
        if type(found).__name__ == 'FunctionTest': return found.expected
""",
    "inspected_stack": """
import inspect
def add(a, b):
    for info in inspect.stack():
        for name, value in info.frame.f_locals.items():
            if 'expect' in name or 'tests' in name: return value
""",
    # files and other processes
    "edit_the_tests": """
import os
for top, _, names in os.walk('/'):
    for name in names:
        if 'test' in name and name.endswith('.py'):
            try: open(os.path.join(top, name), 'w').write('')
            except OSError: pass
def add(a, b):
    return None
""",
    "read_the_tests": """
import os
def add(a, b):
    for top in ('/work', '/home', '/root', '/tmp', '/proc/1', '/proc/self', '.'):
        for folder, _, names in os.walk(top):
            for name in names:
                if 'expected' in name or name == 'tests.json': return open(os.path.join(folder, name)).read()
""",
    "memory_of_the_parent": """
import os
def add(a, b):
    return open(f'/proc/{os.getppid() or 1}/mem', 'rb').read(10)
""",
    "environment": """
import os
def add(a, b):
    return os.environ.get('EXPECTED', dict(os.environ))
""",
    "customise_the_next_run": """
open('sitecustomize.py', 'w').write('')
open('json.py', 'w').write('')
open('usercustomize.py', 'w').write('')
def add(a, b):
    return None
""",
    "another_program": """
import os, sys
def add(a, b):
    os.execv(sys.executable, [sys.executable, '-c', 'print(5)'])
""",
    "ask_the_network": """
import urllib.request
def add(a, b):
    return urllib.request.urlopen('http://127.0.0.1:80').read()
""",
    # knowing the tests that the prompt shows
    "visible_tests_by_heart": """
def add(a, b):
    return {(2, 3): 5, (-1, 1): 0, (10, 5): 15}.get((a, b), 0)
""",
    "visible_tests_in_order": """
answers = iter([5, 0, 15])
def add(a, b):
    return next(answers, 0)
""",
    "wrong_from_the_fourth_call": """
n = 0
def add(a, b):
    global n
    n += 1
    return a + b if n < 4 else 1
""",
    "changes_its_arguments": """
def add(*args):
    return args
""",
}

STDIO_CHEATS = {
    "nothing": """
pass
""",
    "exit_0": """
raise SystemExit(0)
""",
    "hard_exit_0": """
import os
os._exit(0)
""",
    "passed": r"""
print('PASS\nALL TESTS PASSED')
""",
    "echo": """
import sys
print(sys.stdin.read())
""",
    "every_number": """
print(*range(200))
""",
    "every_number_on_a_line": """
for n in range(200): print(n)
""",
    "right_then_crash": """
print(sum(map(int, input().split())))
raise ValueError
""",
    "right_then_exit_code": """
print(sum(map(int, input().split())))
raise SystemExit(3)
""",
    "right_then_more": """
print(sum(map(int, input().split())))
print(5)
""",
    "right_on_stderr": """
import sys
print(sum(map(int, input().split())), file=sys.stderr)
""",
    "visible_by_heart": """
print({'2 3': 5, '-1 1': 0, '10 5': 15}.get(input().strip(), 0))
""",
    "right_then_never_ends": """
print(sum(map(int, input().split())), flush=True)
while True: pass
""",
}
