"""A real dask scheduler and two workers, from their own command line: the bits of the pool, and nothing lost or double where both are killed."""

import os
import signal
import socket
import subprocess
import sys
import time

import pytest

from penchant.errors import PenchantError
from penchant.sweeps import executors
from penchant.sweeps.store import Store

pytest.importorskip("distributed")
SPEC = 'generator = "local_pair"\noptimiser = "ngd"\nsteps = 2000\nstart = "small"\narrays = ["weight"]\nseeds = "0:1500"\n[grid]\nsecond = [0.1, 0.3]\n'


def start(*words, told=subprocess.DEVNULL):
    return subprocess.Popen([sys.executable, "-m", *words], start_new_session=True, stdout=told, stderr=told)


def kill(process):
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


class Cluster:
    """A scheduler on a port of its own, and workers of one process and one thread."""

    def __init__(self):
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            self.port = found.getsockname()[1]
        self.address = f"tcp://127.0.0.1:{self.port}"
        self.scheduler, self.workers = None, []

    def begin(self, workers):
        if self.scheduler is None:
            self.scheduler = start(
                "dask", "scheduler", "--host", "127.0.0.1", "--port", str(self.port), "--no-dashboard"
            )
        self.workers += [
            start("dask", "worker", self.address, "--nworkers", "1", "--nthreads", "1", "--no-dashboard")
            for _ in range(workers)
        ]

    def lose(self):
        for process in (self.scheduler, *self.workers):
            kill(process)
        self.scheduler, self.workers = None, []


@pytest.fixture
def cluster():
    found = Cluster()
    found.begin(2)
    yield found
    found.lose()


def sweep(tmp_path, store, *more):
    (tmp_path / "spec.toml").write_text(SPEC)
    words = "penchant.cli", "sweep", str(tmp_path / "spec.toml"), "--store", str(tmp_path / store)
    with (tmp_path / f"{store}.txt").open("w") as told:
        return start(*words, *more, told=told)


def until(condition, seconds=240):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.2)


@pytest.mark.slow
def test_dask_is_the_pool_bit_for_bit_and_loses_nothing(tmp_path, cluster):
    running = sweep(tmp_path, "dask", "--engine", "dask", "--scheduler", cluster.address)
    groups = lambda: len(list((tmp_path / "dask").glob("*.parquet")))
    until(lambda: groups() >= 2)
    kill(cluster.workers.pop())
    cluster.begin(1)
    until(lambda: groups() >= 5)
    cluster.lose()
    assert groups() < 12
    time.sleep(2)
    cluster.begin(2)
    assert running.wait(300) == 0
    said = (tmp_path / "dask.txt").read_text()
    assert "no scheduler answers" in said
    assert "Traceback" not in said
    assert sweep(tmp_path, "pool", "--jobs", "2").wait(300) == 0
    far, near = Store(tmp_path / "dask"), Store(tmp_path / "pool")
    assert far.query("select count(*), count(distinct key) from runs")[1] == [(3000, 3000)]
    assert not far.scan(whole=True)[1]
    assert sorted(file.name for file in far.path.iterdir()) == sorted(file.name for file in near.path.iterdir())


def test_a_scheduler_that_is_away_is_told_once(monkeypatch, capsys):
    tries = []

    def away(*address, **options):
        tries.append(address)
        raise OSError("refused")

    monkeypatch.setattr("distributed.Client", away)
    monkeypatch.setattr(executors, "_PATIENCE", 0.05)
    monkeypatch.setattr(executors.time, "sleep", lambda seconds: None)
    with executors.dask(1, "tcp://127.0.0.1:1") as run, pytest.raises(PenchantError, match="one that answers"):
        list(run(abs, [1]))
    assert len(tries) > 2
    assert capsys.readouterr().err.count("no scheduler answers") == 1
