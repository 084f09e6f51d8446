"""Imports go downward only, without cycles, and never sideways between starred packages."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SRC = Path(__file__).parents[1] / "src" / "assay"
LAYER = {
    "errors": 0, "key_names": 0, "config": 0, "records": 0,
    "stats": 1, "rewards": 1, "tasks": 1, "maths": 1,
    "hacking": 2, "models": 2, "engines": 2,
    "algos": 3, "audit": 3, "doctor": 3,
    "train": 4, "report": 4, "cli": 5,
}  # fmt: skip
NEVER_SIDEWAYS = 3
MODULES = sorted(
    ".".join(path.relative_to(SRC.parent).with_suffix("").parts).removesuffix(".__init__")
    for path in SRC.rglob("*.py")
)


def package_of(module: str) -> str | None:
    parts = module.split(".")
    return parts[1] if parts[0] == "assay" and len(parts) > 1 else None


def imports_of(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found |= {node.module or ""} | {f"{node.module}.{alias.name}" for alias in node.names}
    return {name for name in found if name.startswith("assay.")}


@pytest.mark.parametrize("path", sorted(SRC.rglob("*.py")), ids=lambda p: str(p.relative_to(SRC)))
def test_imports_go_downward(path):
    own = path.relative_to(SRC).parts[0].removesuffix(".py")
    if own == "__init__":
        return
    for name in imports_of(path):
        other = package_of(name)
        if other in (None, own, "__version__"):
            continue
        assert other in LAYER, f"{path}: {name} is not in the table of layers"
        assert LAYER[other] <= LAYER[own], (
            f"{path} (layer {LAYER[own]}) imports {name} (layer {LAYER[other]})"
        )
        if LAYER[own] == NEVER_SIDEWAYS:
            assert LAYER[other] < NEVER_SIDEWAYS, f"{path} imports its neighbour {name}"


def test_no_cycles_between_packages():
    edges: dict[str, set[str]] = {}
    for path in SRC.rglob("*.py"):
        own = path.relative_to(SRC).parts[0].removesuffix(".py")
        edges.setdefault(own, set()).update(
            other for name in imports_of(path) if (other := package_of(name)) not in (None, own)
        )
    done: set[str] = set()

    def visit(node: str, trail: tuple[str, ...]) -> None:
        assert node not in trail, " -> ".join((*trail, node))
        if node not in done:
            for other in edges.get(node, ()):
                visit(other, (*trail, node))
            done.add(node)

    for node in edges:
        visit(node, ())


def test_every_module_imports_alone():
    code = (
        "import importlib, subprocess, sys\n"
        "for name in sys.argv[1:]:\n"
        "    for loaded in [m for m in sys.modules if m == 'assay' or m.startswith('assay.')]:\n"
        "        del sys.modules[loaded]\n"
        "    importlib.import_module(name)\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, *MODULES], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


HEAVY = ("torch", "transformers", "polars", "scipy", "altair")


@pytest.mark.parametrize("statement", ["import assay", "from assay.cli.main import app"])
def test_a_bare_import_loads_nothing_heavy(statement):
    code = f"{statement}\nimport sys\nprint(*[m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


@pytest.mark.parametrize("package", ["records", "stats", "rewards", "tasks", "audit", "doctor", "hacking"])
def test_light_packages_never_load_torch(package):
    names = [name for name in MODULES if name.startswith(f"assay.{package}")]
    code = (
        "import importlib, sys\n"
        "for name in sys.argv[1:]: importlib.import_module(name)\n"
        "print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code, *names], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
