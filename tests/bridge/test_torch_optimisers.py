"""Normalised and Polyak steps for PyTorch against their formulas, and against what clipping, scaling and half precision do to them."""

import io
import math
import warnings
from copy import deepcopy

import numpy as np
import pytest

import penchant as pt
from penchant.errors import ArgumentError, PenchantWarning
from penchant.settings.joint import JointTokens, joint_setting, normal_start

torch = pytest.importorskip("torch")
from penchant.bridge.torch_optimisers import SNGD, SPSmax  # noqa: E402


def parameters(*values, dtype=torch.float64):
    return [torch.nn.Parameter(torch.tensor(value, dtype=dtype)) for value in values]


def pull(found, scale=1.0):
    """A loss with gradient `scale * p` in every parameter."""
    for one in found:
        one.grad = None
    loss = scale * sum((one**2).sum() for one in found) / 2
    loss.backward()
    return loss


def network(seed=0):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3)).double()


def batch_loss(module, seed):
    drawn = torch.Generator().manual_seed(seed)
    x = torch.randn(16, 4, generator=drawn, dtype=torch.float64)
    return torch.nn.functional.cross_entropy(module(x), torch.randint(0, 3, (16,), generator=drawn))


def trained(make, steps=5, scale=1.0, clip=None):
    module = network()
    rule = make(module.parameters())
    for k in range(steps):
        rule.zero_grad()
        loss = scale * batch_loss(module, k)
        loss.backward()
        if clip:
            torch.nn.utils.clip_grad_norm_(module.parameters(), clip)
        rule.step(loss=loss.detach()) if isinstance(rule, SPSmax) else rule.step()
    return torch.cat([p.detach().ravel() for p in module.parameters()]), rule


@pytest.mark.parametrize(("scope", "norms"), [("global", (13.0, 13.0)), ("tensor", (5.0, 12.0))])
def test_a_normalised_step_has_its_length_over_the_scope(scope, norms):
    found = parameters([3.0, 4.0], [12.0])
    rule = SNGD(found, 0.5, scope=scope)
    pull(found)
    rule.step()
    for one, start, norm in zip(found, ([3.0, 4.0], [12.0]), norms, strict=True):
        torch.testing.assert_close(one.detach(), torch.tensor(start, dtype=torch.float64) * (1 - 0.5 / norm))


def test_groups_have_their_own_length_and_cap_and_report_them():
    found = parameters([3.0, 4.0], [12.0])
    rule = SNGD([{"params": found[:1], "lr": 0.1}, {"params": found[1:], "eta_max": 1e-3}], 0.5, scope="group")
    pull(found)
    rule.step()
    first, second = rule.param_groups
    assert (first["last_grad_norm"], second["last_grad_norm"]) == (5.0, 12.0)
    assert first["last_step"] == pytest.approx(0.02)
    assert not first["capped"]
    assert second["last_step"] == 1e-3
    assert second["capped"]
    assert second["last_displacement"] == pytest.approx(0.012)
    assert first["step_count"] == 1


def test_momentum_sums_normalised_steps_and_survives_a_round_trip():
    found = parameters([3.0, 4.0])
    rule = SNGD(found, 0.5, momentum=0.9)
    pull(found)
    rule.step()
    saved = deepcopy(rule.state_dict())  # as a file would keep it
    other = parameters(found[0].detach().tolist())
    copy = SNGD(other, 0.5, momentum=0.9)
    copy.load_state_dict(saved)
    for points, one in ((found, rule), (other, copy)):
        pull(points)
        one.step()
    # the direction never turns, so the second step is 0.5 (1 + 0.9) long
    assert found[0].norm().item() == pytest.approx(5 - 0.5 - 0.95)
    assert torch.equal(found[0], other[0])
    assert copy.param_groups[0]["step_count"] == 2


def test_decoupled_decay_uses_the_rate_and_coupled_decay_is_part_of_the_gradient():
    apart, together = parameters([3.0, 4.0], [3.0, 4.0])
    for one, decoupled in ((apart, True), (together, False)):
        one.grad = torch.tensor([0.0, 1e-3], dtype=torch.float64)
        SNGD([one], 0.1, weight_decay=0.2, decoupled=decoupled).step()
    torch.testing.assert_close(apart.detach(), torch.tensor([3 * 0.98, 4 * 0.98 - 0.1], dtype=torch.float64))
    gradient = torch.tensor([0.6, 0.801], dtype=torch.float64)
    expected = torch.tensor([3.0, 4.0], dtype=torch.float64) - 0.1 * gradient / gradient.norm()
    torch.testing.assert_close(together.detach(), expected)


def test_uncapped_normalised_descent_does_not_see_scaling_or_clipping():
    make = lambda p: SNGD(p, 0.1)
    plain, _ = trained(make)
    torch.testing.assert_close(trained(make, scale=1024.0)[0], plain, rtol=1e-12, atol=1e-13)
    torch.testing.assert_close(
        trained(make, clip=0.01)[0], plain, rtol=1e-5, atol=1e-6
    )  # clipping adds 1e-6 to the norm


def test_a_polyak_step_is_excess_over_squared_norm_with_cap():
    found = parameters([3.0, 4.0])
    rule = SPSmax(found, 10.0, c=2.0, l_star=2.5)
    loss = pull(found)  # 12.5, norm 5
    rule.step(loss=loss)
    assert rule.param_groups[0]["last_step"] == pytest.approx(10.0 / (2 * 25))
    capped = SPSmax(found, 0.01)
    capped.step(loss=pull(found).detach())
    assert capped.param_groups[0]["last_step"] == 0.01
    assert capped.param_groups[0]["capped"]


def test_a_loss_below_its_infimum_moves_nothing():
    found = parameters([3.0, 4.0])
    SPSmax(found, 1.0, l_star=100.0).step(loss=pull(found))
    assert found[0].tolist() == [3.0, 4.0]


def test_growth_update_norm_and_decay_bound_a_polyak_step():
    found = parameters([3.0, 4.0])
    rule = SPSmax(found, 10.0, c=100.0, gamma=4.0, batches_per_epoch=2)
    rule.step(loss=pull(found))
    first = rule.param_groups[0]["last_step"]
    rule.step(loss=1e6 * pull(found).detach())
    assert rule.param_groups[0]["last_step"] == pytest.approx(2 * first)
    short = SPSmax(parameters([3.0, 4.0]), 10.0, max_update_norm=0.125)
    short.step(loss=pull(short.param_groups[0]["params"]))
    assert short.param_groups[0]["last_displacement"] == pytest.approx(0.125)
    decayed = parameters([3.0, 4.0])
    rule = SPSmax(decayed, 10.0, weight_decay=1.0)
    rule.step(loss=pull(decayed))
    # loss and penalty are |p|^2/2 each and the gradient is 2p: 25 / 100
    assert rule.param_groups[0]["last_step"] == pytest.approx(0.25)


def test_a_closure_gives_the_loss_and_none_is_an_error():
    found = parameters([3.0, 4.0])
    rule = SPSmax(found, 10.0)
    assert rule.step(lambda: pull(found)).item() == 12.5
    assert found[0].norm().item() == pytest.approx(2.5)
    with pytest.raises(ValueError, match=r"step\(loss=loss.detach\(\)\)"):
        rule.step()
    with pytest.raises(FloatingPointError, match="loss is nan"):
        rule.step(loss=math.nan)
    assert SNGD(found, 0.1).step(lambda: pull(found)).item() == pytest.approx(3.125)


def test_clipping_lengthens_polyak_steps_and_is_noticed():
    with pytest.warns(PenchantWarning, match="max_update_norm"):
        _, rule = trained(lambda p: SPSmax(p, math.inf), steps=3, clip=0.01)
    _, free = trained(lambda p: SPSmax(p, math.inf), steps=1)
    _, clipped = trained(lambda p: SPSmax(p, math.inf), steps=1, clip=0.01)
    factor = 0.01 / free.param_groups[0]["last_grad_norm"]
    ratio = clipped.param_groups[0]["last_displacement"] / free.param_groups[0]["last_displacement"]
    assert ratio == pytest.approx(1 / factor, rel=1e-3)
    assert rule.param_groups[0]["last_grad_norm"] == pytest.approx(0.01, rel=1e-3)


@pytest.mark.parametrize("make", [lambda p: SNGD(p, 0.1, eta_max=0.05), lambda p: SPSmax(p, 0.5)])
def test_a_gradient_scaler_hands_over_true_gradients(make):
    plain, _ = trained(make, steps=3)
    module = network()
    rule, scaler = make(module.parameters()), torch.amp.GradScaler("cpu", init_scale=1024.0)
    for k in range(3):
        rule.zero_grad()
        loss = batch_loss(module, k)
        scaler.scale(loss).backward()
        scaler.step(rule, **({"loss": loss.detach()} if isinstance(rule, SPSmax) else {}))
        scaler.update()
    found = torch.cat([p.detach().ravel() for p in module.parameters()])
    torch.testing.assert_close(found, plain, rtol=1e-12, atol=1e-12)


def test_half_precision_norms_do_not_overflow():
    found = parameters([300.0, 400.0], dtype=torch.float16)  # the square of 300 is beyond half precision
    found[0].grad = found[0].detach().clone()
    rule = SNGD(found, 1.0)
    rule.step()
    assert rule.param_groups[0]["last_grad_norm"] == 500.0


@pytest.mark.parametrize(
    ("scale", "dtype"),
    [*((scale, torch.float32) for scale in (1e-37, 1e-23, 1e20, 1e25)), (1e-200, torch.float64)],
)
def test_gradients_whose_squares_leave_the_range_of_the_numbers_still_give_a_step(scale, dtype):
    """At margin 53 the gradient of the loss is 1e-23, which float32 holds and whose square it does not."""
    found = parameters([0.0, 0.0], dtype=dtype)
    found[0].grad = scale * torch.tensor([3.0, 4.0], dtype=dtype)
    rule = SNGD(found, 1.0)
    rule.step()
    torch.testing.assert_close(found[0].detach(), torch.tensor([-0.6, -0.8], dtype=dtype))
    assert float(rule.param_groups[0]["last_grad_norm"]) == pytest.approx(5 * scale, rel=1e-6)


@pytest.mark.parametrize(
    ("scale", "dtype", "moved"),
    [(1e-6, torch.float16, 1.0), (1e-41, torch.float32, 1.0), (1e-307, torch.float64, 1.0), (5e-324, torch.float64, 0)],
)
def test_gradients_below_the_normal_numbers_are_told_and_never_spoil_a_weight(scale, dtype, moved):
    """Their step is one number over another that is larger than the type holds; below 5e-309 there is none."""
    found = parameters([0.0, 0.0], dtype=dtype)
    found[0].grad = torch.tensor([3 * scale, 4 * scale], dtype=dtype)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        SNGD(found, 1.0).step()
        assert bool(seen) == (scale < torch.finfo(dtype).tiny / 5)
    np.testing.assert_allclose(found[0].detach().double(), [-0.6 * moved, -0.8 * moved], rtol=0.03)  # few digits left
    far = parameters([1.0], dtype=torch.float64)
    far[0].grad = torch.tensor([1e-170], dtype=torch.float64)  # whose square is 0
    SPSmax(far, 1e200).step(loss=1e-171)
    assert far[0].item() == pytest.approx(0.9)


def test_missing_zero_sparse_and_infinite_gradients():
    found = parameters([3.0, 4.0], [1.0])
    rule = SNGD(found, 0.5)
    rule.step()
    assert found[0].tolist() == [3.0, 4.0]
    found[0].grad = torch.zeros(2, dtype=torch.float64)
    rule.step()
    assert found[0].tolist() == [3.0, 4.0]
    found[0].grad = torch.tensor([math.inf, 0.0], dtype=torch.float64)
    with pytest.raises(FloatingPointError, match="GradScaler"):
        rule.step()
    assert found[0].tolist() == [3.0, 4.0]
    found[0].grad = torch.zeros(2, dtype=torch.float64).to_sparse()
    with pytest.raises(ArgumentError, match="dense"):
        rule.step()


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda p: SNGD(p, 0.0), "lr"),
        (lambda p: SNGD(p, 0.1, momentum=1.0), "momentum"),
        (lambda p: SNGD(p, 0.1, scope="layer"), "scope"),
        (lambda p: SNGD(p, math.nan), "lr"),
        (lambda p: SNGD([{"params": p, "scope": "tensr"}], 0.1), "scope"),
        (lambda p: SNGD([{"params": p, "lr": -1.0}], 0.1), "lr"),
        (lambda p: SPSmax(p, 0.1, c=-1.0), "c"),
        (lambda p: SPSmax(p, 0.1, l_star=math.nan), "l_star"),
        (lambda p: SPSmax(p, 0.1, gamma=2.0), "gamma"),
        (lambda p: SPSmax(p, 0.1, max_update_norm=0.0), "max_update_norm"),
    ],
)
def test_bad_arguments_are_named(make, name):
    with pytest.raises(ArgumentError, match=f"'{name}'"):
        make(parameters([1.0]))


def test_a_rate_scheduler_lowers_the_length_and_the_cap():
    for make in (lambda p: SNGD(p, 0.5), lambda p: SPSmax(p, 0.02)):
        found = parameters([3.0, 4.0])
        rule = make(found)
        schedule, moved = torch.optim.lr_scheduler.ExponentialLR(rule, 0.1), []
        for _ in range(2):
            rule.step(loss=pull(found).detach())
            schedule.step()
            moved.append(
                rule.param_groups[0]["last_displacement"]
                / rule.param_groups[0]["last_grad_norm"] ** isinstance(rule, SPSmax)
            )
        assert moved[1] == pytest.approx(0.1 * moved[0], rel=1e-12)


@pytest.mark.parametrize(
    "make",
    [
        lambda p: SNGD(p, 0.1, eta_max=3.0, momentum=0.9, weight_decay=0.01, scope="tensor"),
        lambda p: SPSmax(p, 5.0, c=0.5, gamma=2.0, batches_per_epoch=3, weight_decay=0.01),
    ],
)
@pytest.mark.parametrize("copied", [False, True])
def test_a_run_that_is_resumed_or_copied_has_the_same_bits(make, copied):
    whole, _ = trained(make, steps=8)
    module = network()
    rule = make(module.parameters())

    def go(steps):
        for k in steps:
            rule.zero_grad()
            loss = batch_loss(module, k)
            loss.backward()
            rule.step(loss=loss.detach())

    go(range(4))
    if copied:
        module, rule = deepcopy((module, rule))
    else:
        file = io.BytesIO()
        torch.save([module.state_dict(), rule.state_dict()], file)
        file.seek(0)
        weights, state = torch.load(file)
        module = network(1)
        module.load_state_dict(weights)
        rule = make(module.parameters())
        rule.load_state_dict(state)
    go(range(4, 8))
    assert torch.equal(torch.cat([p.detach().ravel() for p in module.parameters()]), whole)


RULES = {
    "joint": (pt.normalised_descent(0.25), lambda p: SNGD(p, 0.25)),  # steps of 0.5 overshoot and amplify roundings
    "capped": (pt.normalised_descent(0.5, cap=0.4), lambda p: SNGD(p, 0.5, eta_max=0.4)),
    "momentum": (pt.momentum(0.1, 0.9), lambda p: SNGD(p, 0.1, momentum=0.9)),
    "Polyak": (pt.polyak(2.0, cap=3.0), lambda p: SPSmax(p, 3.0, c=2.0)),
}


@pytest.mark.parametrize("name", RULES)
def test_the_rules_are_those_of_the_engine(name):
    ours, theirs = RULES[name]
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(12, 5))
    labels = np.sign(inputs @ rng.normal(size=5))
    setting = pt.Setting(pt.Classification(inputs, labels), pt.Direct(), pt.Logistic())
    run = pt.train(setting, ours, steps=40)
    (weight,) = parameters(np.zeros(5))
    rule, signed = theirs([weight]), torch.tensor(inputs * labels[:, None])
    reduce = torch.sum if setting.reduction == "sum" else torch.mean
    for _ in range(40):
        rule.zero_grad()
        loss = reduce(torch.nn.functional.softplus(-(signed @ weight)))
        loss.backward()
        rule.step(loss=loss.detach())
    np.testing.assert_allclose(weight.detach().numpy(), run.weight(), rtol=1e-12)  # 40 steps of a few roundings each


@pytest.mark.parametrize(
    ("ours", "options"),
    [
        (pt.optimisers.block_normalised(0.05), {"scope": "group"}),
        (pt.optimisers.block_normalised(0.05, cap=0.06), {"scope": "group", "eta_max": 0.06}),
        (pt.normalised_descent(0.05), {"scope": "global"}),
    ],
)
def test_blocks_of_attention_and_decoder_are_normalised_as_by_the_engine(ours, options):
    rng = np.random.default_rng(3)
    tokens, labels = rng.normal(size=(4, 3, 6)), np.array([1.0, -1, 1, -1])
    data = JointTokens(tokens, labels, np.zeros(4, int))
    start = normal_start(data, 0, 0.1)
    run = pt.train(joint_setting(data, start), ours, steps=60)
    u, W = parameters(np.array(start.u), np.array(start.W))
    X, y = torch.tensor(tokens), torch.tensor(labels)
    rule = SNGD([{"params": [u]}, {"params": [W]}], 0.05, **options)
    for _ in range(60):
        rule.zero_grad()
        share = torch.softmax(torch.einsum("ntd,de,ne->nt", X, W, X[:, 0]), 1)
        loss = torch.exp(-y * torch.einsum("nt,ntd,d->n", share, X, u)).mean()
        loss.backward()
        rule.step(loss=loss.detach())
    np.testing.assert_allclose(u.detach().numpy(), run.named()["u"], rtol=1e-11, atol=1e-13)
    np.testing.assert_allclose(W.detach().numpy(), run.weight(), rtol=1e-11, atol=1e-13)
