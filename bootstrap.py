"""Set penchant up on a machine that has only Python and pip, then run it.

    python3 bootstrap.py verify   install, check every sentence of the papers, write report/index.html
    python3 bootstrap.py test     install, run everything the continuous integration runs
    python3 bootstrap.py bench    install the peers too, run the side-by-side benchmarks
    python3 bootstrap.py docs     install Sphinx too, build site/index.html (with the verdicts of report/, if there are any)

Standard library only. Further arguments go to the command that is run, for instance
`python3 bootstrap.py verify linear_models --json`, `python3 bootstrap.py test --slow` (the long tests too),
`--newest` (with the Python that runs this and the newest releases, in a `.venv-3.X` of their own, the tests alone),
`--torch` (with PyTorch, for the tests of its bridge, even if pip finds no CPU build, and what drives its loops) or `--browser` (with Playwright, and axe-core by npm, for the tests of the pages in Chromium).
"""

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent
NEWEST = "--newest" in sys.argv
VENV = ROOT / (f".venv-3.{sys.version_info.minor}" if NEWEST else ".venv")
BIN = VENV / ("Scripts" if os.name == "nt" else "bin")
WORKERS = str(min(os.cpu_count() or 1, 4))  # each holds some 2 GB of compiled code
# Every annotated shape and type is checked, which takes a fifth of the time.
SHAPES = "--jaxtyping-packages=penchant,beartype.beartype"
DIGITS = (
    "tests/test_logspace.py",
    "tests/test_reading.py",
    "tests/identities",
    "tests/flow",
)  # once more as users compile
TORCH = "torch==2.13.0"
AXE = "axe-core@4"  # rules of access, for the tests of the pages
LOOPS = "transformers,lightning,tensorboard"  # what else the tests of the bridge train with
EXTRAS = {"verify": "", "test": "[dev]", "bench": "[bench]", "docs": "[docs]"}


def run(*command: object) -> None:
    subprocess.run([str(part) for part in command], cwd=ROOT, check=True)


def found(*command: object) -> bool:
    """Whether a package could be had, quietly: what wants it is left out where not."""
    return not subprocess.run([str(part) for part in command], cwd=ROOT, stderr=subprocess.DEVNULL).returncode


def install(extras: str) -> None:
    """Make the environment and bring it in line with `constraints.txt`, or up to date."""
    python = BIN / "python"
    if not python.exists():
        venv.create(VENV, with_pip=False, symlinks=os.name != "nt")  # ensurepip is a separate package on Debian
    quiet = ["--quiet", "--disable-pip-version-check"]
    pip = [sys.executable, "-m", "pip", "--python", python, "install", *quiet, "--no-compile"]
    uv = BIN / "uv"
    if not uv.exists():
        run(*pip, "uv")
    if "bench" in extras or "torch" in extras:
        run(*pip, TORCH)  # by pip, which also finds wheels of the CPU build where it is configured to look
    elif extras == EXTRAS["test"] and found(*pip, "--no-deps", f"{TORCH}+cpu"):  # never the large build with CUDA
        extras = "[dev,torch]"
    run(
        uv,
        "pip",
        "install",
        "--quiet",
        "--python",
        python,
        "--compile-bytecode",
        *(("--upgrade",) if NEWEST else ("-c", "constraints.txt")),
        "-e",
        f".{extras}",
    )


def install_axe() -> None:
    """Into `node_modules`, by npm. Where that fails the tests that want it are skipped and say what to type."""
    if not (ROOT / "node_modules" / "axe-core").exists() and (npm := shutil.which("npm")):
        found(npm, "install", "--no-save", "--no-package-lock", "--silent", AXE)


def environment() -> dict[str, str]:
    """One thread per process: the cores are shared by the test workers."""
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    cache = {
        "JAX_COMPILATION_CACHE_DIR": str(ROOT / ".cache" / "jax"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.2",
    }
    return {**threads, **cache, **os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ.get('PATH', '')}"}


def commands(job: str, rest: list[str]) -> list[list[str]]:
    python = str(BIN / "python")
    if job == "verify":
        return [[str(BIN / "penchant"), "verify", "--out", "report", *rest]]
    if job == "docs":
        return [[str(BIN / "penchant"), "docs", *rest]]
    if job == "bench":
        return [[python, "-m", "benchmarks", *rest]]
    slow = "--slow" in rest
    rest = [argument for argument in rest if argument not in ("--slow", "--torch", "--browser", "--newest")]
    pytest = [python, "-m", "pytest", "-n", WORKERS, "--dist", "loadgroup", "-q"]
    style = [[str(BIN / "ruff"), *words, "."] for words in (("format", "--check"), ("check",))]
    found = [
        *(() if NEWEST else style),
        [*pytest, *((SHAPES,) if slow else ("-m", "not slow")), *rest],
    ]
    return [*found, [*pytest, "--optimised", *DIGITS]] if slow else found


def main() -> int:
    arguments = sys.argv[1:]
    if not arguments or arguments[0] not in EXTRAS:
        print(__doc__)
        return 2
    job, rest = arguments[0], arguments[1:]
    asked = [name for name in ("torch", "browser") if job == "test" and f"--{name}" in rest]
    loops = [LOOPS] if "torch" in asked else []
    install(f"[{','.join(['dev', *asked, *loops])}]" if asked else EXTRAS[job])
    if "browser" in asked:
        install_axe()
    status = 0
    # Beside the tests: it uses one core, and they leave one idle at their end.
    types = (
        subprocess.Popen(BIN / "basedpyright", cwd=ROOT, env=environment()) if job == "test" and not NEWEST else None
    )
    for command in commands(job, rest):
        status = subprocess.run(command, cwd=ROOT, env=environment()).returncode
        if status:
            break
    return (types.wait() if types else 0) or status


if __name__ == "__main__":
    sys.exit(main())
