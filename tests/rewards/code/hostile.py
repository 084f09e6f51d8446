"""Programs that attack the machine: ten kinds, several different ones of each. Run under limits only."""

HEAD = "import os, sys, time\n"
CALL = "def add(a, b):\n    attack()\n    return a + b\n"

VARIANTS = {
    "fork bomb": [
        """
def attack():
    while True:
        os.fork()
""",
        """
def attack():
    while True:
        try:
            os.fork()
        except OSError:
            pass
""",
        """
import subprocess
def attack():
    while True:
        subprocess.Popen([sys.executable, '-c', 'while 1: pass'])
""",
        """
import threading
def attack():
    while True:
        threading.Thread(target=time.sleep, args=(60,)).start()
""",
        """
def attack():
    while True:
        if os.fork() == 0:
            os.setsid()
""",
    ],
    "memory": [
        """
def attack():
    blocks = []
    while True:
        blocks.append(bytearray(16 << 20))
""",
        """
def attack():
    text = 'x'
    while True:
        text += text
""",
        """
def attack():
    return 2 ** (10 ** 11)
""",
        """
def attack():
    while True:
        if os.fork() == 0:
            keep = bytearray(b'x') * (200 << 20)
            time.sleep(60)
""",
        """
import mmap
def attack():
    keep = []
    while True:
        m = mmap.mmap(-1, 32 << 20)
        m.write(b'x' * (32 << 20))
        keep.append(m)
""",
    ],
    "output flood": [
        """
def attack():
    while True:
        print('x' * 65536, flush=True)
""",
        """
def attack():
    while True:
        os.write(2, b'x' * 65536)
""",
        r"""
def attack():
    for fd in range(64):
        try:
            os.write(fd, b'\xff' * 100000)
        except OSError:
            pass
    time.sleep(60)
""",
        """
def attack():
    for _ in range(8):
        os.fork()
    while True:
        print('y' * 1000)
""",
    ],
    "sleep": [
        """
def attack():
    time.sleep(600)
""",
        """
def attack():
    while True:
        pass
""",
        """
def attack():
    sys.stdin.read()
    import select
    select.select([], [], [])
""",
        """
import threading
def attack():
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()
""",
        """
import re
def attack():
    re.match('(a+)+$', 'a' * 60 + 'b')
""",
    ],
    "signal games": [
        """
import signal
for n in range(1, 65):
    try:
        signal.signal(n, signal.SIG_IGN)
    except (OSError, ValueError):
        pass
def attack():
    while True:
        pass
""",
        """
import signal
def attack():
    os.kill(os.getpid(), signal.SIGSTOP)
    time.sleep(60)
""",
        """
import signal
def attack():
    for pid in range(1, 3000):
        try:
            os.kill(pid, signal.SIGKILL)
        except OSError:
            pass
    time.sleep(60)
""",
        """
def attack():
    os.kill(-1, 9)
    os.kill(0, 9)
    time.sleep(60)
""",
        """
def attack():
    if os.fork() == 0:
        while True:
            os.kill(os.getppid(), 19)
    while True:
        try:
            time.sleep(60)
        except BaseException:
            continue
""",
        """
import signal
def attack():
    os.killpg(os.getpgid(0), signal.SIGTERM)
    time.sleep(60)
""",
    ],
    "double fork": [
        """
def attack():
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(600)
        os._exit(0)
    os.wait()
    time.sleep(60)
""",
        """
def attack():
    for _ in range(5):
        if os.fork() == 0:
            os.setsid()
            if os.fork():
                os._exit(0)
            while True:
                pass
    os._exit(0)
""",
        """
import subprocess
def attack():
    subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], start_new_session=True)
    os._exit(0)
""",
        """
def attack():
    if os.fork() == 0:
        os.setsid()
        os.closerange(0, 64)
        while True:
            if os.fork():
                os._exit(0)
            time.sleep(0.001)
    time.sleep(60)
""",
    ],
    "/proc games": [
        """
def attack():
    for pid in [name for name in os.listdir('/proc') if name.isdigit()]:
        open(f'/proc/{pid}/environ').read()
    time.sleep(60)
""",
        """
def attack():
    open('/proc/self/oom_score_adj', 'w').write('-1000')
    open('/proc/1/mem', 'wb').write(b'x')
""",
        """
def attack():
    open('/proc/sysrq-trigger', 'w').write('c')
""",
        """
def attack():
    os.symlink('/proc/self/fd/3', 'x')
    open('x', 'wb').write(b'x')
""",
        """
def attack():
    open('/proc/self/coredump_filter', 'w').write('0xff')
    os.chdir('/proc/self/cwd/..')
    open('escaped', 'w').close()
""",
    ],
    "network": [
        """
import socket
def attack():
    socket.create_connection(('127.0.0.1', 22), 1)
""",
        """
import socket
def attack():
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', 53))
""",
        r"""
import socket
def attack():
    s = socket.socket(socket.AF_UNIX)
    s.connect('\0/tmp/x')
""",
        """
import socket
def attack():
    s = socket.socket()
    s.bind(('0.0.0.0', 0))
    s.listen()
    s.accept()
""",
        """
import ctypes
def attack():
    if ctypes.CDLL(None).socket(16, 3, 0) < 0:
        raise OSError('no socket')
    time.sleep(60)
""",
    ],
    "symlink": [
        """
def attack():
    os.symlink('/etc/assay-hostile', 'link')
    open('link', 'w').write('x')
""",
        """
def attack():
    os.symlink('/', 'root')
    open('root/tmp/../var/assay-hostile', 'w').write('x')
""",
        """
def attack():
    os.symlink('loop', 'loop')
    open('loop').read()
""",
        """
def attack():
    os.link('/etc/passwd', 'hard')
    open('hard', 'a').write('x')
""",
        """
def attack():
    os.symlink('/dev/shm', 'shm')
    open('shm/assay-hostile', 'w').write('x' * 1000)
""",
        """
def attack():
    os.chroot('.')
    os.chdir('../../..')
    open('assay-hostile', 'w').close()
""",
    ],
    "disk": [
        """
def attack():
    with open('big', 'wb') as file:
        while True:
            file.write(b'x' * (1 << 20))
""",
        """
def attack():
    n = 0
    while True:
        open(f'{n}', 'wb').write(b'x' * (1 << 20))
        n += 1
""",
        """
def attack():
    n = 0
    while True:
        open(f'{n}', 'w').close()
        n += 1
""",
        """
def attack():
    while True:
        os.mkdir('d')
        os.chdir('d')
""",
        """
def attack():
    for top in ('/tmp', '/var/tmp', '/dev/shm', '/root', '/usr', os.path.expanduser('~')):
        try:
            open(os.path.join(top, 'assay-hostile'), 'w').write('x')
        except OSError:
            pass
    with open('sparse', 'wb') as file:
        file.truncate(1 << 50)
""",
    ],
}
KINDS = tuple(VARIANTS)


def samples(kind: str, count: int) -> list[str]:
    """Different programs of one kind; half attack when imported, half when called."""
    made = []
    for number in range(count):
        body = HEAD + VARIANTS[kind][number % len(VARIANTS[kind])]
        at_import = (number // len(VARIANTS[kind])) % 2
        made.append(body + (f"attack()\n{CALL}" if at_import else CALL) + f"# {number}\n")
    return made
