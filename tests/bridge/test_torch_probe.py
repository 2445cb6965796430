"""The probe against full decompositions and hand-computed attention, and that training does not notice it."""

import json
import math
from copy import deepcopy

import numpy as np
import pytest

from penchant.cli import main
from penchant.errors import ArgumentError

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from penchant.bridge.torch_hooks import attention_reading, head_spectra  # noqa: E402
from penchant.bridge.torch_networks import VisionTransformer  # noqa: E402
from penchant.bridge.torch_optimisers import SNGD  # noqa: E402
from penchant.bridge.torch_probe import Probe, spectrum  # noqa: E402


def transformer(dropout=0.1):
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=dropout, batch_first=True, norm_first=True)
    return nn.Sequential(nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Flatten(), nn.Linear(80, 3))


def batch(seed=0, count=6):
    drawn = torch.Generator().manual_seed(seed)
    return torch.randn(count, 5, 16, generator=drawn), torch.randint(0, 3, (count,), generator=drawn)


def train(model, steps=6, rule=lambda p: torch.optim.SGD(p, 0.1, momentum=0.9), probed=None, accumulate=1, cast=False):
    """Weights after some steps; `probed(model, optimiser)` makes a probe that is asked after each."""
    torch.manual_seed(1)
    optimiser = rule(model.parameters())
    probe = probed(model, optimiser) if probed else None
    for k in range(steps):
        optimiser.zero_grad()
        for part in range(accumulate):
            with torch.autocast("cpu", torch.bfloat16, enabled=cast):
                x, y = batch(10 * k + part)
                loss = nn.functional.cross_entropy(model(x).float(), y)
            loss.backward()
        optimiser.step()
    if probe:
        probe.detach()
    return torch.cat([p.detach().ravel() for p in model.parameters()]), probe


watched = lambda model, optimiser: Probe(model, *batch(99), every=2, optimiser=optimiser, budget=None)


def test_spectra_are_those_of_a_full_decomposition_for_every_shape_and_rank():
    rng = np.random.default_rng(0)
    for rows, columns, rank in ((7, 5, 5), (5, 7, 5), (40, 30, 1), (1, 9, 1), (1100, 1000, 1000)):
        matrix = rng.normal(size=(rows, rank)) @ rng.normal(size=(rank, columns))
        values, left, right = spectrum(matrix)
        u, expected, v = np.linalg.svd(matrix, full_matrices=False)
        if rows < 1000:
            np.testing.assert_allclose(np.sort(values)[::-1], expected, rtol=1e-12, atol=1e-14 * rows * expected[0])
        assert values.max() == pytest.approx(expected[0], rel=1e-12 if rows < 1000 else 1e-6)
        if rank == 1 or rows < 1000:
            assert abs(left @ u[:, 0]) == pytest.approx(1)
            assert abs(right @ v[0]) == pytest.approx(1)


def test_spectra_of_heads_are_those_of_the_products_also_for_grouped_keys():
    rng = np.random.default_rng(1)
    query, key, grouped = rng.normal(size=(12, 20)), rng.normal(size=(12, 20)), rng.normal(size=(6, 20))
    for other, place in ((key, lambda h: h), (grouped, lambda h: h // 2)):
        found = head_spectra(query, other, 4)
        for h in range(4):
            product = query[3 * h : 3 * h + 3].T @ other[3 * place(h) : 3 * place(h) + 3]
            np.testing.assert_allclose(found[h], np.linalg.svd(product, compute_uv=False)[:3], rtol=1e-12)


def test_attention_is_read_in_logarithms():
    logits = torch.zeros(2, 3, 4, 5, dtype=torch.float64)
    logits[:, 1, :, 2] = 800.0  # 1 - p is 0 in float64
    logits[:, 2, :, 4] = -math.inf
    found = attention_reading(logits)
    np.testing.assert_allclose(found["entropy"], [1.0, 0.0, 1.0], atol=1e-12)
    np.testing.assert_allclose(found["saturation"][:, 1], [math.log(4 / 5), math.log(4) - 800, math.log(3 / 4)])
    np.testing.assert_allclose(found["gap"], [0.0, 800.0, 0.0])


@pytest.mark.parametrize("make", [lambda: transformer(0.0), lambda: VisionTransformer(8, 2, 16, 2, 2)])
def test_hooks_see_the_attention_that_the_network_computes(make):
    """Against probabilities from PyTorch's own weights for its block, and by hand for projections by name."""
    model = make()
    x = (
        batch()[0]
        if isinstance(model, nn.Sequential)
        else torch.randn(4, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    )
    probe = Probe(model, x)
    assert len(probe.blocks) == 2
    block = next(iter(probe.blocks.values())).module
    kept = {}
    block.register_forward_pre_hook(lambda _, given, named: kept.update(x=given[0]), with_kwargs=True)
    model.train()
    model(x)
    if isinstance(block, nn.MultiheadAttention):
        share = block(kept["x"], kept["x"], kept["x"], average_attn_weights=False)[1]
    else:
        query, key = (layer(kept["x"]).unflatten(-1, (2, -1)).transpose(1, 2) for layer in (block.query, block.key))
        share = (query @ key.transpose(-1, -2) / math.sqrt(8)).softmax(-1)
    share = share.detach().double().numpy()
    entropy = -(share * np.log(share)).sum(-1).mean((0, 2)) / np.log(share.shape[-1])
    np.testing.assert_allclose(probe.entropy_0[0], entropy, rtol=1e-5)  # PyTorch's weights are float32
    np.testing.assert_allclose(
        probe.saturation_0[0, :, 1],
        np.median(np.log1p(-share.max(-1)).transpose(1, 0, 2).reshape(2, -1), axis=1),
        rtol=2e-2,
    )


CASES = {
    "eager": {},
    "normalised": {"rule": lambda p: SNGD(p, 0.1, momentum=0.5)},
    "accumulated": {"accumulate": 3},
    "autocast": {"cast": True},
}


@pytest.mark.parametrize("case", CASES)
def test_training_has_the_same_bits_with_and_without(case):
    plain, _ = train(transformer(), **CASES[case])
    model = transformer()
    found, probe = train(model, probed=watched, **CASES[case])
    assert torch.equal(plain, found)
    assert probe.steps.tolist() == [0, 2, 4, 6]
    assert all(part.training for part in model.modules())
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in model.modules())


def test_buffers_and_mixed_flags_are_given_back():
    model = nn.Sequential(nn.Linear(16, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 3))
    model[2].eval()
    before, flags = deepcopy(model.state_dict()), [one.training for one in model.modules()]
    known = [set(vars(one)) for one in model.modules()]
    Probe(model, batch()[0][:, 0], batch()[1]).detach()
    assert [set(vars(one)) for one in model.modules()] == known
    assert [one.training for one in model.modules()] == flags
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(one.grad is None for one in model.parameters())


def test_a_compiled_model_is_looked_at_without_being_compiled_again():
    plain, _ = train(torch.compile(transformer(0.0), backend="eager"))
    torch._dynamo.reset()
    counter = torch._dynamo.testing.CompileCounter()
    model = torch.compile(transformer(0.0), backend=counter)
    found, probe = train(model, probed=watched)
    assert torch.equal(plain, found)
    frames = counter.frame_count
    train(model, probed=watched)
    assert counter.frame_count == frames
    assert len(probe.entropy_0) == 4
    inside = transformer(0.0)
    inside.compile(backend="eager")
    found, _ = train(inside, probed=watched)
    assert torch.equal(plain, found)
    assert inside._compiled_call_impl is not None


def test_a_data_parallel_model_is_unwrapped(tmp_path):
    distributed = torch.distributed
    if not distributed.is_available() or not distributed.is_gloo_available():
        pytest.skip("this PyTorch has no gloo")
    plain, _ = train(transformer())
    distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        found, probe = train(nn.parallel.DistributedDataParallel(transformer()), probed=watched)
    finally:
        distributed.destroy_process_group()
    assert torch.equal(plain, found)
    assert probe.names[-1] == "2"


def test_records_are_log_spaced_and_the_budget_is_kept(monkeypatch):
    model = nn.Linear(4, 3)
    probe = Probe(model, budget=None)
    for _ in range(30):
        probe.step(1.0)
    assert probe.steps.tolist() == [0, 1, 2, 3, 4, 6, 8, 11, 15, 20, 26]
    clock = [0.0]
    monkeypatch.setattr("penchant.bridge.torch_probe.time.perf_counter", lambda: clock[0])
    probe = Probe(model, budget=0.03, every=1)
    probe._of_layers = lambda real=probe._of_layers: clock.__setitem__(0, clock[0] + 2.0) or real()  # 2 s a record
    for _ in range(1000):
        clock[0] += 1.0
        probe.step(1.0)
    assert probe._spent <= 0.03 * 1000
    assert 13 <= len(probe.steps) - 1 <= 15  # 2 s of every 66


def test_norms_margins_direction_and_degree_are_what_they_say():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8, bias=False), nn.ReLU(), nn.Linear(8, 3, bias=False)).double()
    x, y = torch.randn(20, 6, dtype=torch.float64), torch.randint(0, 3, (20,))
    probe = Probe(model, x, y, budget=None, every=1)
    with torch.no_grad():
        model[0].weight.mul_(2.0)
        model[2].weight.add_(torch.randn(3, 8, dtype=torch.float64))
    probe.step()
    found = probe.series()
    matrices = [model[k].weight.detach().numpy() for k in (0, 2)]
    np.testing.assert_allclose(found["nuclear"][1], [np.linalg.svd(m, compute_uv=False).sum() for m in matrices])
    (u, _, _), (_, _, v) = (np.linalg.svd(m) for m in matrices)
    assert found["alignment"][1, 0] == pytest.approx(abs(u[:, 0] @ v[0]), rel=1e-10)
    np.testing.assert_allclose(probe.differences[1], [np.sum(matrices[0] ** 2) - np.sum(matrices[1] ** 2)])
    np.testing.assert_allclose(probe.growth[1, 0], 2.0)
    outputs = model(x).detach().numpy()
    margins = outputs[np.arange(20), y] - np.where(np.eye(3, dtype=bool)[y], -np.inf, outputs).max(1)
    assert found["margins"][1, 0] == pytest.approx(margins.min())
    assert found["losses"][1] == pytest.approx(nn.functional.cross_entropy(model(x), y).item())
    np.testing.assert_allclose(found["degree"], 2.0, rtol=1e-14)
    assert found["defect"].max() < 1e-15
    size = np.sqrt(sum(np.sum(m**2) for m in matrices))
    assert found["normalised_margins"][1, 0] == pytest.approx(margins.min() / size**2)
    assert 0 < found["turn"][1] == found["turned"][1] < math.pi
    assert Probe(model, x.numpy(), y.numpy()).losses[0] == found["losses"][1]


def test_the_record_is_a_file_that_the_command_line_draws(tmp_path, capsys):
    _, probe = train(transformer(), probed=watched)
    path = probe.save(tmp_path / "run.npz")
    assert main(["probe", str(path), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    np.testing.assert_allclose(told["series"]["frobenius"], probe.frobenius)
    assert main(["probe", str(path), "--out", str(tmp_path / "page")]) == 0
    assert "stable rank" in capsys.readouterr().out
    page = (tmp_path / "page" / "index.html").read_text()
    assert "seed 0" not in page
    for word in ("Entropy of attention", "Normalised margins", "Balancedness"):
        assert word in page
    assert main(["report", str(tmp_path / "page")]) == 0
    assert main(["report", str(path), "--out", str(tmp_path / "other")]) == 0
    assert (tmp_path / "other" / "run" / "study.json").read_bytes() == (
        tmp_path / "page" / "run" / "study.json"
    ).read_bytes()
    other = tmp_path / "other.npz"
    np.savez(other, inputs=np.eye(2))
    assert main(["probe", str(other)]) == 2


@pytest.mark.parametrize(
    ("call", "word"),
    [
        (lambda: Probe(nn.ReLU()), "'model'"),
        (lambda: Probe(nn.Linear(2, 2), layers=["weigth"]), "'layers'"),
        (lambda: Probe(nn.Linear(2, 2), every=0), "'every'"),
        (lambda: Probe(nn.Linear(2, 2), budget=math.nan), "'budget'"),
        (lambda: Probe(nn.Linear(2, 2), budget=-1), "'budget'"),
        (lambda: Probe(nn.Linear(2, 2), torch.ones(3, 2), torch.ones(2)), "'labels'"),
        (lambda: Probe(nn.Linear(2, 2), torch.ones(3, 2), torch.tensor([0, 1, 2])), "'labels' .* 2 on sample 2"),
        (lambda: Probe(nn.Linear(2, 1), torch.ones(3, 2), torch.tensor([0, 1, 1])), r"2 \* labels - 1"),
        (lambda: Probe(nn.Linear(2, 2), torch.ones(3, 5)), "'inputs'"),
        (lambda: Probe(nn.Linear(2, 2), math.nan * torch.ones(3, 2)), "sample 0"),
    ],
)
def test_bad_calls_are_refused_by_name(call, word):
    with pytest.raises(ArgumentError, match=word):
        call()


def test_a_network_that_has_diverged_is_named():
    model = nn.Linear(2, 2)
    probe = Probe(model)
    with torch.no_grad():
        model.weight.fill_(math.nan)
    with pytest.raises(ArgumentError, match=r"not in layer 'weight'(.|\n)*smaller learning rate"):
        probe.record()


def test_a_head_that_starts_at_zero_has_a_degree_once_it_has_moved():
    model, (x, y) = (
        nn.Sequential(nn.Linear(2, 3, bias=False), nn.Linear(3, 2, bias=False)),
        (torch.eye(2), torch.arange(2)),
    )
    nn.init.zeros_(model[1].weight)
    probe = Probe(model, x, y, budget=None)
    assert np.isnan(probe.series()["normalised_margins"]).all()
    nn.init.ones_(model[1].weight)
    probe.step()
    np.testing.assert_allclose(probe.degree, [math.nan, 2.0])
    found = probe.series()
    np.testing.assert_allclose(found["normalised_margins"][1], found["margins"][1] / found["norm"][1] ** 2)
