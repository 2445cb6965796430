"""The four tasks of CONTRIBUTING, performed in a copy of the package: nothing but the named files is touched."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import penchant

GEOMETRY = '''

class LongestRow(eqx.Module):
    """The largest length of a row of a matrix: every row moves by the same length."""

    coordinatewise = False
    combines = False

    def dual_norm(self, slope: PyTree, log_norm: Array) -> Float[Array, ""]:
        return sum(jnp.sum(jnp.linalg.norm(leaf, axis=-1)) for leaf in jax.tree.leaves(slope))

    def direction(self, slope: PyTree, size: Float[Array, ""]) -> PyTree:
        return jax.tree.map(lambda leaf: size * leaf / jnp.linalg.norm(leaf, axis=-1, keepdims=True), slope)
'''
FUNCTION = '''

def row_descent(length: object) -> Descent:
    """Steps of one length in every row."""
    from ..norms import LongestRow

    return Descent(Normalised(positive(length, "length", "row_descent")), LongestRow())
'''
ROW = """    Row("rows", "base.row_descent", (SIZE,), _tiny, combines=False),
    Row("stride", "base.normalised_descent", (SIZE,), _tiny),
"""
USE_OPTIMISER = """
import penchant as pt
from penchant.optimisers.base import row_descent
from penchant.testing import check_optimiser
tokens = pt.TokenSelection([[[2.0, 0.3], [0.5, 1.0], [0.1, -1.0]]], scores=[[1.0, 0.2, 0.4]])
check_optimiser(row_descent(0.01), pt.Setting(tokens, pt.Direct(), pt.Exponential()))
from penchant.training import flags
from penchant.optimisers.table import OPTIMISERS, Given
assert OPTIMISERS["rows"].make(Given(0.01)) == row_descent(0.01)
assert "rows" in flags.OPTIMISERS["own"]
import contextlib, io, numpy as np
from penchant.cli import main
np.savez("points.npz", inputs=[[2.0, 0.5], [0.1, -1.0]], labels=[1, -1])
with contextlib.redirect_stdout(io.StringIO()) as told:
    assert main(["train", "points.npz", "--optimiser", "rows", "--steps", "5"]) == 0
    assert main(["train", "points.npz", "--optimiser", "stride", "--steps", "5"]) == 0
    assert main(["which-margin", "points.npz", "--optimiser", "rows", "--steps", "5"]) == 0
assert "no prediction: No theorem of the catalogue covers Descent in the LongestRow norm" in told.getvalue()
assert "to decide  more steps (" in told.getvalue(), told.getvalue()
"""
PAPER = {
    "__init__.py": '''"""A toy."""

from ...lab import Paper
from . import theorems

PAPER = Paper("toy", theorems.SOURCE, __name__, theorems.THEOREMS, ("claims",), ("figures",))
''',
    "theorems.py": '''"""The l2 maximum margin, for one more optimiser."""

from ...optimisers.base import Accelerated
from ...theory.base import Theorem
from ...theory.families.linear import MAX_MARGIN

SOURCE = "Nobody, A toy, 2026"
THEOREM = Theorem(
    "toy",
    "Acceleration finds the maximum margin.",
    f"{SOURCE}, Theorem 1",
    MAX_MARGIN,
    lambda optimiser: isinstance(optimiser, Accelerated),
    rate="unknown",
)
THEOREMS = (THEOREM,)
''',
    "evidence.py": '''"""One number."""

from ...lab import Lab, recipe


@recipe
def half(lab: Lab, parts: int = 2) -> float:
    return 1 / parts
''',
    "claims.py": '''"""One sentence."""

from ...lab import Lab, claim
from ...verdict import Verdict, at_most
from .evidence import half
from .theorems import SOURCE


@claim("toy/halves", f"{SOURCE}, Theorem 1", "proved")
def halves(lab: Lab, planted: bool) -> Verdict:
    "Two halves are at most one."
    return at_most(half(lab) + half(lab), 0.9 if planted else 1.0, "sum")
''',
    "figures.py": '"""Nothing to draw."""\n\nSTUDIES = ()\n',
}
USE_PAPER = """
from penchant.papers import find_papers, new_lab
from penchant.testing import check_paper
(paper,) = find_papers(("toy",))
told = []
check_paper(paper, new_lab(), told.append)
assert told == ["toy/halves"], told
import penchant as pt
from penchant.testing import check_theorem
points = pt.Setting(pt.Classification([[2.0, 0.5], [0.1, -1.0]], [1, -1]), pt.Direct(), pt.Logistic())
assert pt.predict(points, pt.Accelerated(0.1)).theorem.name == "toy"
check_theorem(paper.theorems[0], points, pt.Accelerated(0.1))
from penchant.cli import main
assert main(["coverage", "toy"]) == 0
"""


DIAGNOSTIC = '''

def largest_entry(run: Run) -> float:
    """The largest entry of the final weight over its norm."""
    weight = run.weight()
    return float(np.abs(weight).max() / np.linalg.norm(weight))
'''
PANEL = """    Panel(
        lambda case: not case.joint,
        lambda case: {"largest_entry": largest_entry(case.run)},
        lambda case, found: (f"entry      {found['largest_entry']:.4g}",),
        lambda case: (("largest entry", f"{largest_entry(case.run):.4g}"),),
    ),
    VERDICT,
"""
USE_PANEL = """
import json, numpy as np
from penchant.cli import main
np.savez("data.npz", inputs=[[2.0, 0.5], [0.1, -1.0]], labels=[1, -1])
assert main(["train", "data.npz", "--margin", "1e3", "--out", "page"]) == 0
page = open("page/index.html").read()
assert "largest entry" in page and "VERDICT confirmed" in page, page
"""


def run(copy, code):
    environment = {**os.environ, "PYTHONPATH": str(copy)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, cwd=copy)
    assert done.returncode == 0, done.stderr
    return done.stdout


def replaced(file, old, new):
    text = file.read_text()
    assert text.count(old) == 1, (file, old)
    file.write_text(text.replace(old, new))


@pytest.fixture
def package(tmp_path):
    """A copy of the package."""
    source = Path(penchant.__file__).parent
    return shutil.copytree(source, tmp_path / "penchant", ignore=shutil.ignore_patterns("__pycache__"))


def test_a_diagnostic_and_the_look_of_verdicts_take_two_files_each(tmp_path, package):
    with open(package / "diagnostics" / "direction.py", "a") as stream:
        stream.write(DIAGNOSTIC.replace("Run", "object"))
    panels = package / "report" / "panels" / "__init__.py"
    replaced(
        panels,
        "from ..panel import Panel\n",
        "from ...diagnostics.direction import largest_entry\nfrom ..panel import Panel\n",
    )
    replaced(panels, "    VERDICT,\n", PANEL)
    replaced(
        package / "verdict.py", 'f"{self.headline}: {self.inequality}"', 'f"VERDICT {self.headline}: {self.inequality}"'
    )
    replaced(
        package / "report" / "page.html", "{{ words or headline }}</span>", "VERDICT {{ words or headline }}</span>"
    )
    told = run(tmp_path, USE_PANEL)
    assert "\nentry      0." in told
    assert "\nverdict    VERDICT confirmed" in told


def test_an_optimiser_and_a_paper_are_added_where_contributing_says(tmp_path, package):
    for file, text in (("norms.py", GEOMETRY), ("optimisers/base.py", FUNCTION)):
        with open(package / file, "a") as stream:
            stream.write(text)
    table = package / "optimisers" / "table.py"
    table.write_text(table.read_text().replace("OPTIMISERS = _rows(\n", f"OPTIMISERS = _rows(\n{ROW}"))
    (package / "papers" / "toy").mkdir()
    for name, text in PAPER.items():
        (package / "papers" / "toy" / name).write_text(text)
    contents = package / "papers" / "__init__.py"
    contents.write_text(contents.read_text().replace('    "notes",\n', '    "notes",\n    "toy",\n'))
    use = "import jax; jax.config.update('jax_enable_x64', True)\n" + USE_PAPER
    assert run(tmp_path, use + USE_OPTIMISER) == "toy: no items.txt, which would list what needs a check\n"
    (package / "papers" / "toy" / "items.txt").write_text("Theorem 1 | two halves |\nLemma 1 | none | an identity\n")
    assert "toy: 2 items, 1 checked, 1 explained, 0 missing" in run(tmp_path, use)
