"""The import rule: who may know whom."""

import ast
from pathlib import Path

import pytest

import penchant

ROOT = Path(penchant.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))
PAPERS = sorted(folder.name for folder in (ROOT / "papers").iterdir() if (folder / "__init__.py").exists())

# Each part of the package may import itself, `errors`, `files` and what is listed; commands, the command line and bridges may import anything.
ALLOWED = {
    "errors": set(),
    "files": set(),
    "logspace": set(),
    "verdict": set(),
    "cache": set(),
    "data": {"cache"},
    "door": set(),
    "check": set(),
    "rounding": set(),
    "norms": {"rounding", "door"},
    "settings": {"logspace", "door", "rounding"},
    "problem": {"logspace", "settings"},
    "references": {"logspace", "settings", "check", "norms", "rounding"},
    "optimisers": {"logspace", "settings", "problem", "norms"},
    "diagnostics": {"logspace", "settings", "problem", "training"},
    "flow": {"logspace", "settings", "problem", "training", "cache"},
    "training": {"logspace", "settings", "problem", "norms", "optimisers", "flow", "cache"},
}
ENGINE = set(ALLOWED) - {"data"}
ALLOWED["theory"] = ENGINE
ALLOWED["exhibits"] = ENGINE | {"theory"}
ALLOWED["sweeps"] = ENGINE | {"theory", "exhibits"}
ALLOWED["lab"] = ENGINE | {"theory", "exhibits"}
ALLOWED["papers"] = ENGINE | {"theory", "exhibits", "sweeps", "lab", "bridge", "data"}
ALLOWED["case"] = ENGINE | {"theory", "exhibits"}
ALLOWED["report"] = ENGINE | {"theory", "exhibits", "lab", "papers", "case"}
OF_TRAINING = {
    "flow": {"training.events", "training.status"},
    "diagnostics": {"training.trajectory", "training.joint"},
}
HEAVY = {
    "torch": "bridge/torch",
    "transformers": "bridge/torch_transformers",
    "lightning": "bridge/torch_lightning",
    "cvxpy": None,
    "optax": "bridge/optax",
    "sklearn": "bridge/sklearn",
    "flint": "references/exact",
    "pyarrow": "sweeps/store",
    "duckdb": "sweeps/store",
    "adaptive": "sweeps/boundary",
    "distributed": "sweeps/executors",
}


def imports(file):
    """(module inside penchant, or None; full name of a foreign module, or None) for every import statement of a file."""
    package = ["penchant", *file.relative_to(ROOT).parts[:-1]]
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            stem = ".".join([*base, *(node.module or "").split(".")]).strip(".")
            names = [stem] if node.module else [f"{stem}.{alias.name}" for alias in node.names]
        else:
            continue
        yield from names


def inside(file):
    """The modules of penchant that a file imports; names such as `penchant.__version__` are not modules."""
    found = {name.removeprefix("penchant").strip(".") for name in imports(file) if name.split(".")[0] == "penchant"}
    return {
        name for name in found if (ROOT / name.split(".")[0]).is_dir() or (ROOT / f"{name.split('.')[0]}.py").is_file()
    }


def part(file):
    return file.relative_to(ROOT).parts[0].removesuffix(".py")


@pytest.mark.parametrize("name", sorted(ALLOWED))
def test_a_part_imports_only_what_it_may(name):
    files = [file for file in FILES if part(file) == name]
    assert files, name
    for file in files:
        found = {module.split(".")[0] for module in inside(file)} - {name, "errors", "files"}
        assert found <= ALLOWED[name], f"{file.relative_to(ROOT)} imports {sorted(found - ALLOWED[name])}"


@pytest.mark.parametrize("name", OF_TRAINING)
def test_flow_knows_of_training_only_events_and_statuses_and_diagnostics_only_runs(name):
    files = [file for file in FILES if part(file) == name]
    used = {module for file in files for module in inside(file) if module.startswith("training")}
    assert used <= OF_TRAINING[name]


@pytest.mark.parametrize("name", ["optimisers", "references", "diagnostics"])
def test_the_three_sides_of_the_argument_do_not_know_each_other(name):
    others = {"optimisers", "references", "diagnostics"} - {name}
    used = {module.split(".")[0] for file in FILES if part(file) == name for module in inside(file)}
    assert not used & others


@pytest.mark.parametrize("paper", PAPERS)
def test_papers_never_import_one_another(paper):
    files = [file for file in FILES if file.relative_to(ROOT).parts[:2] == ("papers", paper)]
    used = {module.split(".")[1] for file in files for module in inside(file) if module.startswith("papers.")}
    assert used <= {paper}, used


@pytest.mark.parametrize("name", HEAVY)
def test_optional_packages_stay_in_their_bridge(name):
    users = {
        str(file.relative_to(ROOT)) for file in FILES if any(module.split(".")[0] == name for module in imports(file))
    }
    home = HEAVY[name]
    assert all(home is not None and user.startswith(home) for user in users), users


def test_the_parser_sees_relative_and_absolute_imports():
    seen = inside(ROOT / "references" / "euclidean_margin.py")
    assert {"errors", "references.bracket"} <= seen
    assert "numpy" in set(imports(ROOT / "references" / "euclidean_margin.py"))
