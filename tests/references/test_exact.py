"""Exact mode: what is proved, what is refused, and that the verifier needs nothing but Python."""

import ast
import hashlib
import json
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest

import penchant as pt
from penchant import check as verifier
from penchant.check import check, exp, seal
from penchant.cli import main
from penchant.commands import claims
from penchant.commands.proofs import prove_all
from penchant.errors import MissingExtra, NotSeparableError, Unproved
from penchant.lab import Claim
from penchant.norms import L1, L2, Linf
from penchant.papers import PAPERS
from penchant.references.base import watching
from penchant.references.exact import programs, proof_of, prove_interpolant
from penchant.references.exact_margin import prove_margin, whole
from penchant.references.interpolation import basis_pursuit, minimum_norm, minimum_potential
from penchant.references.linear_programs import polyhedral_margin, sign_product_margin
from penchant.references.norm_margin import nuclear_margin
from penchant.settings.potentials import Entropy, HyperbolicEntropy, q_alpha
from penchant.verdict import at_most

RNG = np.random.default_rng(5)
INPUTS = RNG.standard_normal((7, 3))
LINEAR = pt.Classification(INPUTS, np.sign(INPUTS @ [1.0, -2.0, 0.5]))
TOKENS = pt.TokenSelection(RNG.standard_normal((3, 3, 4)), scores=RNG.standard_normal((3, 3)))
WIDE = RNG.standard_normal((3, 6))
REGRESSION = pt.Regression(WIDE, WIDE @ np.abs(RNG.standard_normal(6)))
MIXED = pt.Classification(RNG.standard_normal((20, 2)), np.tile([1.0, -1.0], 10))
SHIFTED = HyperbolicEntropy(np.full(6, -3.0), np.linspace(-1, 1, 6))

KINDS = {
    "l2": lambda: pt.references.max_margin(LINEAR),
    "l1": lambda: polyhedral_margin(LINEAR, L1()),
    "linf": lambda: polyhedral_margin(LINEAR, Linf()),
    "frobenius": lambda: pt.references.max_margin(TOKENS),
    "nuclear": lambda: nuclear_margin(TOKENS),
    "diagonal": lambda: polyhedral_margin(pt.settings.DiagonalTokens(TOKENS), L1()),
    "l2 interpolant": lambda: minimum_norm(REGRESSION),
    "l2 from a start": lambda: minimum_norm(REGRESSION, np.arange(6.0)),
    "l1 interpolant": lambda: basis_pursuit(REGRESSION),
    "nonnegative l1": lambda: basis_pursuit(REGRESSION, nonnegative=True),
    "Q_alpha, large": lambda: minimum_potential(REGRESSION, q_alpha(1e3, 6)),
    "Q_alpha, small": lambda: minimum_potential(REGRESSION, q_alpha(1e-60, 6)),
    "Q_alpha, uneven": lambda: minimum_potential(REGRESSION, SHIFTED),
    "KL": lambda: minimum_potential(REGRESSION, Entropy(np.full(6, -7.0))),
    "inseparable": lambda: pt.references.max_margin(MIXED),
}


def proved(kind):
    """What a solver found (or the error), and its certificate."""
    with watching() as calls:
        try:
            found = KINDS[kind]()
        except NotSeparableError as error:
            found = error
    return found, proof_of(found, calls)


@pytest.fixture(scope="module")
def proofs():
    return {kind: proved(kind) for kind in KINDS}


@pytest.fixture(scope="module")
def certificates(proofs):
    return {kind: proof.text for kind, (_, proof) in proofs.items()}


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "inseparable"])
def test_every_kind_is_proved_and_agrees_with_its_bracket_in_floats(proofs, kind):
    found, proof = proofs[kind]
    check(proof.text)
    assert 0 < proof.lower <= proof.upper <= found.bracket.upper * (1 + 1e-14)
    assert proof.upper / proof.lower - 1 <= max(found.bracket.gap, 0) + 1e-13
    assert proof.lower >= found.bracket.lower * (1 - 1e-13)


def test_a_contradiction_is_proved(certificates):
    assert check(certificates["inseparable"]) == "no W has <Z_k, W> >= y_k"


def resealed(text, **changes):
    """A certificate with other content and a seal that fits it: only the mathematics can refuse it."""
    content = {**json.loads(text), **changes}
    return json.dumps({**content, "seal": seal(content)})


@pytest.mark.parametrize(("end", "factor"), [("lower", 1 + 1e-9), ("upper", 1 - 1e-9)])
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "inseparable"])
def test_a_bound_moved_inwards_is_refused(certificates, kind, end, factor):
    text = certificates[kind]
    moved = float(Fraction(*json.loads(text)[end])) * factor
    with pytest.raises(ValueError, match="refused: bounds"):
        check(resealed(text, **{end: moved.as_integer_ratio()}))
    check(resealed(text))


@pytest.mark.parametrize("kind", KINDS)
def test_one_changed_bit_is_refused_wherever_it_is(certificates, kind):
    content = certificates[kind].encode()
    for place in np.random.default_rng(0).integers(8 * len(content), size=40):
        changed = bytearray(content)
        changed[place // 8] ^= 1 << place % 8
        with pytest.raises(ValueError, match=r"refused|codec"):
            check(changed.decode())


@pytest.mark.parametrize(
    ("kind", "changes", "what"),
    [
        ("l2", {"dual": [0, [[-1, 1, 1, 1, 1, 1, 1]]]}, "dual"),
        ("l2", {"over": 10**60}, "primal"),
        ("l2", {"over": -1}, "primal"),
        ("l1 interpolant", {"targets": [0, [1, 1, 1]]}, "primal"),
        ("inseparable", {"dual": [0, [[1] * 20]]}, "sum"),
        ("KL", {"slope": [0, [-50] * 6]}, "slope"),
        ("nuclear", {"top": [-3, 1]}, "row 0"),
        ("nuclear", {"factor": []}, "zip"),  # half of |W|^2 alone bounds nothing
        ("l2", {"format": "penchant certificate 99"}, "format"),
        ("inseparable", {"right": [0, []]}, "refused: sum"),  # features of no entries add up to nothing
        ("inseparable", {"left": [0, [[]]]}, "refused: sum"),
        ("l2", {"lower": [1, 3]}, "refused: not a certificate"),  # its digits would be rounded, perhaps inwards
        ("l2", {"upper": [10**400, 1]}, "refused: not a certificate"),
    ],
)
def test_a_forged_part_is_refused_by_what_it_breaks(certificates, kind, changes, what):
    with pytest.raises(ValueError, match=what):
        check(resealed(certificates[kind], **changes))


def answered(text):
    """What the verifier says; anything but a ValueError goes on."""
    try:
        return check(text)
    except ValueError as error:
        return str(error)


@pytest.mark.parametrize("kind", KINDS)
def test_junk_in_any_place_is_refused_in_words_or_changes_nothing(certificates, kind):
    content, said = json.loads(certificates[kind]), check(certificates[kind])
    for name in content.keys() - {"plus", "equal", "seal"}:
        forged = [resealed(certificates[kind], **{name: junk}) for junk in (None, 0, "x", [], [0, []], [1, 0], {})]
        content_without = {other: value for other, value in content.items() if other != name}
        for text in [*forged, json.dumps({**content_without, "seal": seal(content_without)})]:
            assert answered(text).startswith("refused: ") or answered(text).endswith(said.partition("<= min")[2])


@pytest.mark.parametrize("nothing", [None, "", [], {}])
def test_a_sign_is_said_however_it_was_assumed(certificates, nothing):
    assert ", W >= 0, " in check(resealed(certificates["KL"], plus=nothing))


def test_a_sign_that_was_assumed_is_said(certificates):
    assert ", W >= 0, " in check(certificates["KL"])
    assert ", W >= 0, " not in check(certificates["l1 interpolant"])


def test_shapes_that_do_not_fit_prove_nothing(certificates):
    """A row that is cut short would leave a part of the dual out of its norm."""
    exponent, [rows] = json.loads(certificates["l2"])["left"]
    with pytest.raises(ValueError, match="zip"):
        check(resealed(certificates["l2"], left=[exponent, [[rows[0][:-1], *rows[1:]]]]))


def test_exponentials_are_enclosed():
    mpmath = pytest.importorskip("mpmath")
    with mpmath.workprec(300):
        for x in (0, 1, -1, 700, -700, Fraction(1, 3), Fraction(-1, 2**60)):
            below, above = exp(Fraction(x), False, 160), exp(Fraction(x), True, 160)
            true = mpmath.exp(mpmath.mpf(Fraction(x).numerator) / Fraction(x).denominator)
            assert below <= above <= below * (1 + Fraction(1, 10**40))
            assert (
                mpmath.mpf(below.numerator) / below.denominator
                <= true
                <= mpmath.mpf(above.numerator) / above.denominator
            )


def test_the_verifier_has_sixty_lines_and_imports_two_modules():
    with open(verifier.__file__) as file:
        text = file.read()
    names = {alias.name for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Import) for alias in node.names}
    assert names == {"fractions", "json"}
    assert "import" not in text.replace("import fractions\nimport json\n", "")
    assert len(text.splitlines()) <= 60


def test_the_verifier_runs_alone(certificates, tmp_path):
    script, file = tmp_path / "alone.py", tmp_path / "certificate.json"
    with open(verifier.__file__) as source:
        script.write_text(source.read())
    run = lambda: subprocess.run([sys.executable, "-I", "-S", script, file], capture_output=True, text=True)
    file.write_text(certificates["nuclear"])
    found = run()
    assert found.returncode == 0
    assert found.stdout.count("<=") == 2
    file.write_text(certificates["nuclear"].replace("1", "2", 1))
    found = run()
    assert found.returncode == 1
    assert "refused: seal" in found.stderr
    assert not found.stdout


def test_bounds_are_floats_around_an_irrational_optimum():
    with watching() as calls:
        found = pt.references.max_margin(pt.Classification([[2.0, 0.0], [0.0, 1.0]], [1, 1]))
    proof = proof_of(found, calls)
    assert Fraction(proof.lower) ** 2 < Fraction(5, 4) < Fraction(proof.upper) ** 2
    assert proof.upper == np.nextafter(proof.lower, 2)


def test_dependent_equations_are_proved_by_independent_ones():
    data = pt.Regression(WIDE[[0, 1, 2, 0]], np.asarray(REGRESSION.targets)[[0, 1, 2, 0]])
    with watching() as calls:
        found = minimum_norm(data)
    proof = proof_of(found, calls)
    assert proof.lower <= minimum_norm(REGRESSION).value * (1 + 1e-12)
    assert json.loads(proof.text)["equal"] == 1
    assert len(json.loads(proof.text)["targets"][1]) == 3


def test_what_has_no_exact_form_says_so():
    with watching() as calls:
        sign_product_margin(TOKENS)
        minimum_potential(REGRESSION, pt.settings.SignedPowers(0.1).potential(np.full((2, 6), 0.1)))
        basis_pursuit(REGRESSION, np.arange(1.0, 7.0))
    unproved = [prove for found, prove in programs(calls) if found.norm not in ("frobenius", "l1")]
    assert len(unproved) == 3
    for prove in unproved:
        with pytest.raises(Unproved, match="has no exact form here"):
            prove()


@pytest.mark.parametrize(
    ("weight", "dual", "why"),
    [
        ([np.inf, 1.0], [1.0, 1.0], "not finite"),
        ([1.0, 1.0], [0.0, 0.0], "not finite"),
        ([1.0, -1.0], [1.0, 1.0], "not positive"),
    ],
)
def test_points_that_bound_nothing_prove_nothing(weight, dual, why):
    data = pt.Classification([[2.0, 0.0], [0.0, 1.0]], [1, 1])
    with pytest.raises(Unproved, match=why):
        prove_margin(data, L2(), np.array(weight), np.array(dual))


def test_numbers_too_long_for_a_file_say_so():
    inputs, limit = RNG.standard_normal((50, 51)), sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(640)
    try:
        with pytest.raises(Unproved, match="640 digits"):
            prove_interpolant(pt.Regression(inputs, inputs[:, 0]), np.ones(51), np.ones(50), None, "l2")
    finally:
        sys.set_int_max_str_digits(limit)


def test_without_the_extra_the_error_names_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "flint", None)
    with pytest.raises(MissingExtra, match=r"pip install 'penchant\[exact\]'"):
        proved("KL")


def test_watching_is_off_unless_asked_for():
    with watching() as calls:
        pass
    pt.references.max_margin(LINEAR)
    assert calls == []


def test_whole_numbers_are_the_floats_themselves():
    values = np.array([0.1, -3.0, 0.0, 5e-324, 1e300])
    exponent, digits = whole(values)
    assert [Fraction(2) ** exponent * int(digit) for digit in digits] == [Fraction(value) for value in values]


@pytest.fixture
def files(tmp_path):
    np.savez(tmp_path / "linear.npz", inputs=INPUTS, labels=np.sign(INPUTS @ [1.0, -2.0, 0.5]))
    np.savez(tmp_path / "mixed.npz", inputs=np.asarray(MIXED.signed), labels=np.ones(20))
    return tmp_path


def test_predict_saves_what_check_proves(files, capsys):
    assert main(["predict", str(files / "linear.npz"), "--exact", "--json", "--save", str(files / "a.npz")]) == 0
    content = json.loads(capsys.readouterr().out)
    path, found = files / "certificate.json", content["exact"]
    assert found["certificate"] == str(path)
    assert found["lower"] <= content["reference"]["value"] * (1 + 1e-15)
    assert main(["check", str(path)]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith(f"proved: {found['lower']!r} <= min l2(W)")
    digest = hashlib.sha256((files / "linear.npz").read_bytes()).hexdigest()
    assert printed.endswith(f"about: linear.npz, sha256 {digest}\n")
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b"3", b"1", 1))
    assert main(["check", str(path)]) == 1
    assert capsys.readouterr().out == "refused: seal\n"
    for place in range(0, len(whole), 7):  # what is no longer text, too
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 128]) + whole[place + 1 :])
        assert main(["check", str(path)]) == 1
        assert capsys.readouterr().out.startswith("refused: ")


def test_train_proves_its_reference_before_it_runs(files, capsys):
    arguments = ["train", str(files / "linear.npz"), "--exact", "--steps", "3", "--save", str(files / "run.npz")]
    assert main(arguments) == 0
    assert "\nexact      proved in [" in capsys.readouterr().out
    assert main(["check", str(files / "certificate.json"), "--json"]) == 0
    assert "proved" in json.loads(capsys.readouterr().out)


def test_data_without_a_margin_get_the_proof_of_that(files, capsys):
    assert main(["predict", str(files / "mixed.npz"), "--exact", "--save", str(files / "a.npz")]) == 2
    assert "exact: proved that no weight has positive margins" in capsys.readouterr().err
    assert main(["check", str(files / "certificate.json")]) == 0


def test_exact_is_refused_where_it_means_nothing(files, capsys):
    assert main(["predict", str(files / "linear.npz"), "--exact", "--joint"]) == 2
    assert "--exact" in capsys.readouterr().err


def test_verify_proves_each_reference_of_a_claim_once(monkeypatch):
    def lean(lab, planted):
        (
            pt.references.max_margin(LINEAR),
            pt.references.max_margin(LINEAR),
            polyhedral_margin(LINEAR, L1()),
            sign_product_margin(TOKENS),
        )
        return at_most(float(planted), 0.5, "what was planted")

    paper = type(PAPERS[0])("some", "", "", (), (), ())
    monkeypatch.setattr(type(paper), "claims", (Claim("a/b", "It holds.", "Someone", lean, "ours"),))
    monkeypatch.setattr(claims, "find_papers", lambda names: (paper,))
    row = claims._work("some", "a/b", True)
    assert (row["verdict"], row["twin"], row["proofs"]["proved"]) == ("confirmed", "refuted", 3)  # l2 of both data, l1
    assert sum(row["proofs"]["unproved"].values()) == 1


def test_what_two_claims_rest_on_is_proved_once_and_other_data_anew(monkeypatch):
    inputs = (np.array([[1.0, 0.0], [second, 0.0]]) for second in (2.0, 3.0))  # of one weight, with one dual point
    with watching() as calls:
        found = [pt.references.max_margin(pt.Classification(some, np.ones(2))) for some in inputs]
    assert np.array_equal(found[0].weight, found[1].weight)
    assert np.array_equal(found[0].dual, found[1].dual)
    assert [prove_all(calls[:1])["proved"] for _ in range(2)] == [1, 1]
    monkeypatch.setattr("penchant.references.exact.prove_margin", None)
    assert prove_all(calls[:1])["proved"] == 1
    with pytest.raises(TypeError):
        prove_all(calls)
