"""What the bridge to PyTorch costs: step rules against `torch.optim.SGD`, and the probe, on a 6-layer transformer on one core.

`python -m benchmarks.torch_bridge` prints the tables of RESULTS.md. Contestants take turns step by step, and medians of their times are compared.
"""

import time
from collections.abc import Callable
from statistics import median

import torch
from torch import nn

from penchant.bridge.torch_optimisers import SNGD, SPSmax
from penchant.bridge.torch_probe import Probe

WIDTH, LENGTH, BATCH, CLASSES = 256, 64, 8, 10


def transformer() -> nn.Sequential:
    """Six pre-norm layers of width 256 with 4 heads, read out from the first token: 4.7 million parameters."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, dropout=0.0, batch_first=True, norm_first=True)
    encoder = nn.TransformerEncoder(layer, 6, enable_nested_tensor=False)
    return nn.Sequential(encoder, nn.Flatten(), nn.Linear(LENGTH * WIDTH, CLASSES))


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    drawn = torch.Generator().manual_seed(1)
    return torch.randn(BATCH, LENGTH, WIDTH, generator=drawn), torch.randint(0, CLASSES, (BATCH,), generator=drawn)


def seconds(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def optimisers(rounds: int = 40) -> dict[str, tuple[float, float]]:
    """Median seconds of a whole training step, and of its update alone."""
    rules = {
        "torch.optim.SGD": lambda p: torch.optim.SGD(p, 0.01),
        "SNGD": lambda p: SNGD(p, 0.01),
        "SNGD, per tensor": lambda p: SNGD(p, 0.01, scope="tensor"),
        "torch.optim.SGD, momentum": lambda p: torch.optim.SGD(p, 1e-3, momentum=0.9),
        "SNGD, momentum": lambda p: SNGD(p, 1e-3, momentum=0.9),
        "SPSmax": lambda p: SPSmax(p, 0.01),
    }
    x, y = batch()
    runs = {name: (module := transformer(), make(module.parameters())) for name, make in rules.items()}
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in rules}
    for _ in range(rounds):
        for name, (module, rule) in runs.items():
            begin = time.perf_counter()
            rule.zero_grad()
            loss = nn.functional.cross_entropy(module(x), y)
            loss.backward()
            given = {"loss": loss.detach()} if name == "SPSmax" else {}
            alone = seconds(lambda rule=rule, given=given: rule.step(**given))
            times[name].append((time.perf_counter() - begin, alone))
            if name == "torch.optim.SGD":  # what any rule pays that has to know the norm before it moves
                slopes = [one.grad for one in module.parameters()]
                times.setdefault("reading every gradient", []).append(
                    (0.0, seconds(lambda s=slopes: torch._foreach_norm(s)))
                )
    kept = {name: found[3:] for name, found in times.items()}
    return {name: tuple(median(column) for column in zip(*found, strict=True)) for name, found in kept.items()}


def print_optimisers() -> None:
    found = optimisers()
    print("| rule | training step, ms | over SGD | update alone, ms | over SGD |\n|---|---|---|---|---|")
    for name, (whole, alone) in found.items():
        base = found["torch.optim.SGD, momentum" if "momentum" in name else "torch.optim.SGD"]
        print(f"| {name} | {1e3 * whole:.1f} | {whole / base[0]:.3f} | {1e3 * alone:.2f} | {alone / base[1]:.2f} |")


def probed(kind: str, limit: float = 60.0) -> tuple[int, float, int, float, float]:
    """Steps, median milliseconds of one, records after the first, milliseconds of one, and share of the probe in the time of training.

    The share is the time inside the probe over the time outside: runs with and without it differ by more than 3 % on a machine that is not idle.
    """
    model, (x, y) = transformer(), batch()
    used = torch.compile(model) if kind == "compiled" else model
    optimiser = torch.optim.SGD(model.parameters(), 0.01)

    def step() -> None:
        optimiser.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=kind == "autocast"):
            loss = nn.functional.cross_entropy(used(x).float(), y)
        loss.backward()
        optimiser.step()

    step()  # compiles
    probe, times, begin, inside = Probe(used, x, y), [], time.perf_counter(), 0.0
    while time.perf_counter() - begin < limit:
        times.append(seconds(step))
        inside += seconds(probe.step)
    records = len(probe.steps) - 1
    return len(times), 1e3 * median(times), records, 1e3 * inside / max(records, 1), inside / sum(times)


def print_probe() -> None:
    print(
        "| training | steps | ms per step | records | ms per record | share of the training time |\n|---|---|---|---|---|---|"
    )
    for kind in ("eager", "compiled", "autocast"):
        steps, each, records, cost, share = probed(kind)
        print(f"| {kind} | {steps} | {each:.0f} | {records} | {cost:.0f} | {100 * share:.2f} % |", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    print_optimisers()
    print_probe()
