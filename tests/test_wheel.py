"""The wheel, which is what users install, holds all that a run and its page need."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[1]
SCRIPT = """
import sys
from importlib.metadata import entry_points
import penchant
assert penchant.__file__.startswith(sys.path[1]), penchant.__file__
(command,) = (one for one in entry_points(group="console_scripts", name="penchant"))
sys.exit(command.load()(sys.argv[1:]))
"""


@pytest.mark.slow
def test_the_wheel_predicts_and_trains(tmp_path):
    uv = shutil.which("uv") or str(Path(sys.executable).with_name("uv"))
    subprocess.run([uv, "build", "--quiet", "--wheel", "--out-dir", tmp_path, ROOT], check=True)
    (wheel,) = tmp_path.glob("penchant-*.whl")
    site = tmp_path / "site"
    zipfile.ZipFile(wheel).extractall(site)
    np.savez(tmp_path / "data.npz", inputs=[[1.0, 2.0], [2.0, 1.0], [-1.0, -3.0]], labels=[1, 1, -1])
    for arguments in (
        ["predict", "data.npz"],
        ["train", "data.npz", "--margin", "100", "--save", "run.npz", "--out", "page"],
    ):
        command = [sys.executable, "-c", SCRIPT, *arguments]
        subprocess.run(command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(site)}, check=True)
    assert (tmp_path / "page" / "index.html").stat().st_size > 10_000
