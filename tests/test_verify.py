"""`verify`: claims in processes of their own, kept when they are done; where to write is known before the work."""

import json
import os
import signal
import subprocess
import sys
import time
from argparse import Namespace
from dataclasses import replace
from pathlib import Path

import pytest

from penchant.cli import main
from penchant.commands import claims, verify
from penchant.errors import ArgumentError, DataFileError, MissingExtra
from penchant.exhibits import Result
from penchant.files import check_writable
from penchant.lab import Lab, Study, claim
from penchant.papers import find_papers
from penchant.verdict import at_most

(PAPER,) = find_papers(("deep_linear",))
NAME = "deep-linear/norm-growth"
CLAIM = next(claim for claim in PAPER.claims if claim.name == NAME)


@pytest.fixture
def cached(monkeypatch, tmp_path):
    monkeypatch.setenv("PENCHANT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "claims"


def test_a_row_has_verdict_twin_and_kind():
    row = claims.check(CLAIM, PAPER, Lab())
    assert (row["verdict"], row["twin"], row["paper"]) == ("confirmed", "refuted", "deep_linear")
    assert row["kind"] == CLAIM.kind


def test_a_finished_claim_is_kept_and_a_damaged_row_is_not_read(cached):
    row = claims._work("deep_linear", NAME, False)
    assert claims.kept(PAPER, CLAIM) == json.loads(json.dumps(row))
    (file,) = cached.rglob("*.json")
    file.write_text("{")
    assert claims.kept(PAPER, CLAIM) is None


def test_proofs_are_kept_with_their_claim(cached, monkeypatch, capsys):
    asked = ["verify", "deep_linear", "--claim", NAME]
    claims._work("deep_linear", NAME, True)
    monkeypatch.setattr(verify, "check_all", lambda *_: pytest.fail("worked"))
    assert main([*asked, "--exact"]) == main(asked) == 0
    assert "exact: " in capsys.readouterr().err


def test_rows_are_those_of_the_code_that_made_them(cached, monkeypatch):
    claims._work("deep_linear", NAME, False)
    monkeypatch.setattr(claims.cache, "fingerprint", lambda paper: "another")
    assert claims.kept(PAPER, CLAIM) is None


def test_without_a_cache_nothing_is_kept(monkeypatch):
    monkeypatch.setenv("PENCHANT_CACHE", "off")
    claims._work("deep_linear", NAME, False)
    assert claims.kept(PAPER, CLAIM) is None


def test_a_check_that_breaks_decides_nothing():
    broken = lambda lab, planted: 1 / 0
    row = claims.check(type(CLAIM)("a/b", "It breaks.", "Someone", broken, "ours"), PAPER, Lab())
    assert (row["verdict"], row["twin"]) == ("undecided", "undecided")
    assert "ZeroDivisionError" in row["inequality"]


@pytest.mark.parametrize("name", ["deep-linear/norm-growth", "deep-linear-norm-growth"])
def test_a_claim_is_found_by_its_id_and_by_an_old_one(capsys, name):
    assert verify.find_claims((name,), (PAPER,)) == [(PAPER, CLAIM)]
    assert ("is now" in capsys.readouterr().err) == (name != NAME)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("deep-linear/clock", "deep-linear/time"),
        ("deep-linear/one-layer", "it is a test now"),
        ("deep-linear/homogenity", "did you mean"),
    ],
)
def test_ids_that_are_gone_are_answered(capsys, name, said):
    try:
        verify.find_claims((name,), (PAPER,))
    except ArgumentError as error:
        print(error, file=sys.stderr)
    assert said in capsys.readouterr().err


def test_findings_say_what_holds_instead(capsys, monkeypatch, tmp_path):
    def rows(found, *_):
        return [
            claims.check(replace(claim, check=lambda lab, planted: at_most(2.0, 1.0, "gap")), paper, Lab())
            for paper, claim in found
        ]

    monkeypatch.setattr(verify, "_rows", rows)
    monkeypatch.setattr(verify, "_studies", lambda *_: [])
    assert main(["verify", "notes", "--claim", "sparse/one-signal-as-printed", "--out", str(tmp_path)]) == 0
    assert "what holds: sparse/one-signal: For r = 1" in " ".join(capsys.readouterr().out.split())
    assert "<code>sparse/one-signal</code></a> For <math>" in (tmp_path / "index.html").read_text()
    (row,) = json.loads((tmp_path / "ledger.json").read_text())["claims"]
    assert row["repair"] == "sparse/one-signal"


@pytest.mark.parametrize(("error", "left_out"), [(MissingExtra("torch", "x"), True), (DataFileError("gone"), False)])
def test_a_page_leaves_out_a_study_only_for_a_missing_extra(monkeypatch, tmp_path, error, left_out):
    def fail(lab):
        raise error

    monkeypatch.setattr(claims, "find_study", lambda name: (PAPER, Study("some", "Some", fail)))
    if left_out:
        assert claims._draw("deep_linear", "some", 0, False, str(tmp_path))["verdict"].startswith("left out")
    else:
        with pytest.raises(DataFileError):
            claims._draw("deep_linear", "some", 0, False, str(tmp_path))


def test_a_study_shows_the_findings_that_verify_checks_and_is_drawn_again_where_more_are_asked_for(
    monkeypatch, tmp_path
):
    check = lambda lab, planted: at_most(0.0, 1.0, "nothing")
    said = tuple(claim(kind, "arithmetic", kind, statement=kind)(check) for kind in ("proved", "ours"))
    study = Study("some", "Some", claims=said)
    monkeypatch.setattr(type(PAPER), "studies", property(lambda self: (study,)))
    monkeypatch.setattr(claims, "find_study", lambda name: (PAPER, study))
    asked = lambda all: verify._studies(
        (PAPER,), Namespace(seed=0, full=False, fresh=False, out=str(tmp_path), all=all)
    )
    for all, shown in ((False, ["proved"]), (True, ["proved", "ours"])):
        ((_, *how),) = asked(all)
        claims._draw("deep_linear", *how)
        found = json.loads((tmp_path / "some" / "study.json").read_text())["findings"]
        assert [one["statement"] for one in found] == shown
        assert not asked(all)


def test_a_study_is_drawn_again_only_for_other_code_seed_or_size(monkeypatch, tmp_path):
    study = Study("some", "Some", lambda lab: Result((), ()))
    monkeypatch.setattr(type(PAPER), "studies", property(lambda self: (study,)))
    monkeypatch.setattr(claims, "find_study", lambda name: (PAPER, study))
    asked = lambda **how: verify._studies(
        (PAPER,), Namespace(**{"seed": 0, "full": False, "fresh": False, "all": False, "out": str(tmp_path), **how})
    )
    assert asked()
    claims._draw("deep_linear", "some", 0, False, str(tmp_path))
    assert not asked()
    assert all((asked(seed=1), asked(full=True), asked(fresh=True)))
    assert not asked(all=True)
    monkeypatch.setattr(claims.cache, "fingerprint", lambda paper: "another")
    assert asked()


@pytest.mark.parametrize("command", [("verify", "deep_linear"), ("study", "min-norm")])
def test_where_to_write_is_checked_before_the_work(capsys, monkeypatch, tmp_path, command):
    monkeypatch.setattr(verify, "_rows", lambda *_: pytest.fail("worked"))
    (tmp_path / "file").write_text("")
    assert main([*command, "--out", str(tmp_path / "file")]) == 2
    assert "(Not a directory)" in capsys.readouterr().err


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="without a folder that only says it can be written to")
@pytest.mark.parametrize("name", ["/proc/x", "/proc/x/y", "/dev/null", "n" * 250])
def test_writing_is_tried_where_rights_do_not_tell(name, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataFileError, match="Cannot write"):
        check_writable(name)
    check_writable("new/folder/file.npz")
    assert not [*tmp_path.iterdir()]


@pytest.mark.slow
def test_a_killed_verify_repeats_only_what_was_in_flight(tmp_path):
    environment = {**os.environ, "PENCHANT_CACHE": str(tmp_path)}
    command = [sys.executable, "-m", "penchant.cli", "verify", "deep_linear", "--jobs", "1", "--json"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, start_new_session=True) as process:
        while len(list(tmp_path.rglob("claims/*/*.json"))) < 3:
            assert process.poll() is None
            time.sleep(0.2)
        os.killpg(process.pid, signal.SIGKILL)
    done = {file: file.stat().st_mtime_ns for file in tmp_path.rglob("claims/*/*.json")}
    assert subprocess.run(command, env=environment, capture_output=True, check=True).stdout
    assert all(file.stat().st_mtime_ns == when for file, when in done.items())
