"""Peak memory and time of the chunked log-prob against the plain log-softmax, forward and backward.

    python benchmarks/chunked_logprob.py [--rows 2048] [--vocabulary 151936] [--hidden 160 576] [--repeats 3]

Memory is the growth of a fresh process's peak resident size during one forward and backward pass, over its state
just before, when head, hidden states and tokens already lie in memory and no gradient does. It is given twice: as
it is, and without the bytes of the head's own gradient, which every method has to return. A small pass before it
loads what the first call of a library loads. Times alternate in one process, so that a busy machine disturbs both
alike; the ratio is of the medians. The plain way computes the log-prob only, the chunked one the entropy too.
"""

import argparse
import statistics
import subprocess
import sys
import time
from pathlib import Path

import torch

from assay.maths.chunked import chunked_logprobs
from assay.maths.logprobs import TokenLogprobs


def plain(hidden, weight, tokens) -> TokenLogprobs:
    """Log-softmax over all logits at once, as a trainer without chunks does it (log-prob only)."""
    logp = torch.log_softmax(hidden @ weight.t(), -1)
    return TokenLogprobs(logp.gather(-1, tokens[:, None])[:, 0], torch.zeros(()))


METHODS = {"plain": plain, "chunked": chunked_logprobs}


def inputs(rows: int, vocabulary: int, size: int):
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(rows, size, generator=generator).requires_grad_()
    weight = (torch.randn(vocabulary, size, generator=generator) / size**0.5).requires_grad_()
    tokens = torch.randint(0, vocabulary, (rows,), generator=generator)
    return hidden, weight, tokens


def forward_backward(method: str, hidden, weight, tokens) -> float:
    hidden.grad = weight.grad = None
    start = time.perf_counter()
    METHODS[method](hidden, weight, tokens).logp.sum().backward()
    return time.perf_counter() - start


def peak_kib(method: str, rows: int, vocabulary: int, size: int) -> int:
    """Growth of this process's peak memory over one forward and backward pass, KiB."""
    forward_backward(method, *inputs(8, 64, size))
    tensors = inputs(rows, vocabulary, size)
    Path("/proc/self/clear_refs").write_text("5")  # the peak so far, of making the inputs, is forgotten
    before = memory_kib("VmRSS")
    METHODS[method](*tensors).logp.sum().backward()
    return memory_kib("VmHWM") - before


def memory_kib(kind: str) -> int:
    """Resident memory now (VmRSS) or at most since the last reset (VmHWM); Linux."""
    status = Path("/proc/self/status").read_text("utf-8")
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith(kind)))


def measure_memory(method: str, args: argparse.Namespace, size: int) -> int:
    command = [sys.executable, __file__, "--rows", str(args.rows), "--vocabulary", str(args.vocabulary)]
    done = subprocess.run(
        [*command, "--hidden", str(size), "--peak", method], capture_output=True, text=True, check=True
    )
    return int(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=2048)
    parser.add_argument("--vocabulary", type=int, default=151_936)
    parser.add_argument("--hidden", type=int, nargs="+", default=[160, 576])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--peak", choices=METHODS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.peak:
        print(peak_kib(args.peak, args.rows, args.vocabulary, args.hidden[0]))
        return
    print(
        "| hidden | plain s | chunked s | time ratio | head gradient MiB | plain MiB | chunked MiB | ratio | without |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for size in args.hidden:
        tensors = inputs(args.rows, args.vocabulary, size)
        times: dict[str, list[float]] = {name: [] for name in METHODS}
        for _ in range(args.repeats):
            for name in METHODS:
                times[name].append(forward_backward(name, *tensors))
        del tensors
        seconds = {name: statistics.median(values) for name, values in times.items()}
        plain, chunked = (measure_memory(name, args, size) / 1024 for name in METHODS)
        head = args.vocabulary * size * 4 / 2**20
        print(
            f"| {size} | {seconds['plain']:.2f} | {seconds['chunked']:.2f} | "
            f"{seconds['chunked'] / seconds['plain']:.2f} | {head:.0f} | {plain:.0f} | {chunked:.0f} | "
            f"1/{plain / chunked:.1f} | 1/{(plain - head) / (chunked - head):.1f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
