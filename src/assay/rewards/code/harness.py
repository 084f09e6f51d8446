"""What runs beside the untrusted code, in its own interpreter: it answers one call at a time.

The code under test can reach everything here (frames, gc, the descriptor). That gains it nothing: this side
knows inputs only. A record counts when it carries the token and the test's id, came after its call, and holds
the right value; the parent alone knows which value that is, and compares plain data.
"""

from __future__ import annotations

import gc
import posix
import sys

from assay.rewards.code import frames, plain

TYPE_CHECKING = False  # as in typing, whose import would double the start-up time of every program
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

MESSAGE_LENGTH = 300


def serve(control: int) -> None:
    """Say ready, receive the program, and run it as the load message asks."""
    frames.write_frame(control, plain.encode(["ready"]))
    payload = frames.read_frame(control)
    if payload is None:
        frames.leave(0)
    load = plain.decode(payload, hashed=True)
    gc.freeze()  # what is alive now need not be looked through again
    gc.enable()
    if load["form"] == "program":
        posix.close(control)
        _run_program(load["code"])
    else:
        _serve_calls(control, load)


def _run_program(code: str) -> None:
    """As a script would run; what raises, SystemExit included, takes the interpreter's own way out."""
    module = _fresh_module("__main__")
    exec(compile(code, "program.py", "exec", dont_inherit=True), module.__dict__)
    _finish()


def _finish() -> None:
    """The end of a script: its threads, atexit, the flushing of its output. Then out at once.

    Taking the interpreter apart would cost a fifth of a program's time. It would run nothing more of the program
    than finalisers of objects that are alive at the end.
    """
    import atexit

    threading = sys.modules.get("threading")
    if threading is not None:
        threading._shutdown()
    atexit._run_exitfuncs()  # pyright: ignore[reportPrivateUsage] - what the interpreter calls
    status = 0
    for stream in (sys.stdout, sys.__stdout__, sys.stderr):
        if stream is None or getattr(stream, "closed", False):
            continue
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):
            status = 120  # as the interpreter says that output was lost
    frames.leave(status)


def _fresh_module(name: str) -> Any:
    module = type(sys)(name)
    module.__dict__["__builtins__"] = __builtins__
    sys.modules[name] = module
    return module


def _serve_calls(control: int, load: dict[str, Any]) -> None:
    # bound now: the code may replace the originals afterwards
    encode, decode, read, write, leave = plain.encode, plain.decode, posix.read, posix.write, frames.leave
    token, dumped = load["token"], _describe

    def send(*record: Any) -> None:
        frames.write_frame(control, encode([token, *record]), write)

    try:
        module = _fresh_module("solution")
        exec(compile(load["code"], "solution.py", "exec", dont_inherit=True), module.__dict__)
        function = _find(module, load["entry_point"])
    except BaseException as error:  # noqa: BLE001 - the untrusted code's boundary: SystemExit is a result too
        send("load", "raised", dumped(error))
        leave(0)
        return
    send("load", "value", b"")
    while (payload := frames.read_frame(control, read)) is not None:
        call = decode(payload, hashed=True)
        send(call["id"], *_call(function, call, encode))
        if call["last"]:
            break
    leave(0)


def _find(module: Any, entry_point: str) -> Callable[..., Any]:
    """``name``, or ``Class.method`` on a fresh ``Class()`` (as in many contest data sets)."""
    found = module
    for name in entry_point.split("."):
        found = getattr(found() if isinstance(found, type) else found, name)
    return found


def _call(
    function: Callable[..., Any], call: dict[str, Any], encode: Callable[[Any], bytes]
) -> tuple[Any, ...]:
    try:
        return "value", encode(function(*call["args"], **call["kwargs"]))
    except BaseException as error:  # noqa: BLE001 - the untrusted code's boundary
        return "raised", _describe(error)


def _describe(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}"[:MESSAGE_LENGTH]
    except BaseException:  # noqa: BLE001 - an exception's own __str__ is untrusted too
        return "an exception that cannot be printed"
