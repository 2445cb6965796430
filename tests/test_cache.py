"""Compiled code in the user's cache folder: kept by default, bounded, shared by two processes, off where the user says so."""

import os
import subprocess
import sys

import pytest

from penchant.cache import _trim, compile_quickly, folder

SHOW = """
from penchant.cache import keep_compiled
keep_compiled()
import jax, jax.numpy as jnp
print(jax.config.jax_compilation_cache_dir)
print(float(jax.jit(lambda x: jnp.sin(x) + 2)(jnp.ones(3)).sum()))
"""


def start(cache, **more):
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("JAX_", "XLA_"))}
    environment = {**kept, "PENCHANT_CACHE": str(cache), **more}
    return subprocess.Popen([sys.executable, "-c", SHOW], env=environment, stdout=subprocess.PIPE, text=True)


def test_two_processes_at_once_share_what_they_compile(tmp_path):
    answers = [process.communicate()[0].split() for process in [start(tmp_path), start(tmp_path)]]
    assert answers[0] == answers[1]
    assert answers[0][0].startswith(str(tmp_path / "compiled"))
    assert list((tmp_path / "compiled").rglob("*-cache"))


@pytest.mark.parametrize(
    ("cache", "more", "found"), [("off", {}, "None"), ("", {"JAX_COMPILATION_CACHE_DIR": "x"}, "x")]
)
def test_the_user_decides(cache, more, found, tmp_path):
    more = {name: str(tmp_path / value) for name, value in more.items()}
    answer = start(cache or tmp_path / "ours", **more).communicate()[0].split()
    assert answer[0] == (found if found == "None" else str(tmp_path / found))
    assert not (tmp_path / "ours").exists()


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path):
    (tmp_path / "file").write_text("")
    assert start(tmp_path / "file").communicate()[0].split()[0] == "None"


def test_the_oldest_files_go_first(tmp_path):
    for age, name in enumerate("cba"):
        (tmp_path / name).write_bytes(b"x" * 100)
        os.utime(tmp_path / name, (age, age))
    _trim(tmp_path, 250)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a", "b"]


def test_tests_never_touch_the_folder_of_whoever_runs_them():
    assert ".cache" in str(folder()) or os.environ["PENCHANT_CACHE"]


def test_code_that_compiles_sooner_is_asked_for_unless_the_user_has_chosen(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")
    compile_quickly()
    asked = os.environ["XLA_FLAGS"]
    assert asked.startswith("--xla_backend_optimization_level=0")
    assert asked.endswith("multi_thread_eigen=false")
    monkeypatch.setenv("XLA_FLAGS", "--xla_backend_optimization_level=3")
    compile_quickly()
    assert os.environ["XLA_FLAGS"] == "--xla_backend_optimization_level=3"
