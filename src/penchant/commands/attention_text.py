"""What `predict` and `train` print for people with `--setting attention-regression`."""

from typing import Any

from .own_data import number, print_hypotheses
from .pages import print_files

_SHOWN = 8  # rows and columns of a matrix that fit a terminal


def print_prediction(content: dict[str, Any]) -> None:
    found = content["estimate"]
    sizes = ", ".join(f"{size:.4g}" for size in found["sizes"])
    spread = f"{found['covariance_eigenvalues'][0]:.4g} to {found['covariance_eigenvalues'][-1]:.4g}"
    print(f"theorem    {content['theorem']}: {content['statement']}\n           {content['citation']}")
    print(
        f"estimate   n = {found['samples']}, d = {found['inputs']}, m = {found['outputs']}; noise {found['noise']:.4g}"
    )
    print(f"           covariance eigenvalues {spread}")
    print(f"           sizes of A Sigma^(1/2): {sizes}; noise level {found['size_noise_level']:.3g}")
    _print_matrix(
        "Sigma",
        f"known to {found['covariance_half_width']:.3g} in operator norm, |Sigma| sqrt(d/n)",
        found["covariance"],
    )
    errors = ", ".join(number(error) for error in found["planted_standard_errors"][:_SHOWN])
    _print_matrix("A", f"standard errors by column: {errors}", found["planted"])
    print(f"checked    against {content['checked_against']}")
    print_hypotheses(content["hypotheses"])
    floors = content["floors"]
    print(
        f"excess     spectral start {floors['start']:.3g}, after training {number(floors['trained'])} (of it bias {number(floors['bias'])})"
    )
    for option in content["geometries"]:
        chosen = "  <- recommended" if option == content["recommended"] else ""
        pace = option["steps_per_decade"]
        text = f"{pace:.3g} steps" if pace >= 1 else "less than one step"
        print(
            f"train with {option['geometry']}, step {option['step']:.4g}{_trial(option)}: {text} per factor 10{chosen}"
        )
    if not content["geometries"]:
        print(f"train with any geometry: A has a kernel (A2 fails), and none is recommended; {content['rate']}")
    scale = content["scale"]
    gain = "from infinite" if scale["gain"] is None else f"{scale['gain']:.3g} times smaller"
    bound = " that keeps A3" if scale["key_norm"] < 0.25 else ""
    print(
        f"scale      (c U, V/c) with c = {scale['factor']:.4g} has the least bias of the loss{bound}, B_1/n with B_1 = {scale['bias']:.4g} ({gain})"
    )
    print(
        f"           that is not the scale of least excess: v/n is {number(floors['scaled'])} there, against {number(floors['start'])} at the spectral start"
    )
    print(f"           {scale['how']}")
    for warning in content["warnings"]:
        print(f"warning    {warning}")
    if "saved" in content:
        print(f"saved      {content['saved']}")


def _print_matrix(name: str, noise: str, rows: list[list[float]]) -> None:
    """A matrix with its noise; large ones are left to `--json` and `--save`."""
    print(f"           {name}, {noise}")
    if max(len(rows), len(rows[0])) > _SHOWN:
        print(f"           {len(rows)} x {len(rows[0])}: in the output of --json, and saved by --save")
        return
    for row in rows:
        print("             " + " ".join(f"{entry: .4g}".ljust(11) for entry in row).rstrip())


def _trial(option: dict[str, Any]) -> str:
    """Whether the step is that of the population, and what trying it on the sample made of it."""
    if option["halvings"] is None:
        return " (population; not tried on the sample)"
    halved = f"halved {option['halvings']} times, as the sample curves more than the population; " * bool(
        option["halvings"]
    )
    return f" ({halved}tried on the sample)"


def print_run(content: dict[str, Any]) -> None:
    print(f"status     {content['status']}: {content['message']}")
    print(
        f"run        {content['steps']} steps, empirical loss {content['loss']:.8g}, gradient {content['gradient_norm']:.4g}"
    )
    print(f"step       {content['step_used']}")
    print(
        f"excess     {number(content['excess'])}; predicted {number(content['predicted_excess'])} by {content['predicted_law']}"
    )
    context = content["finite_context_part"]
    print(
        f"left out   loss of left-out queries minus m sigma^2: {content['left_out_loss_above_noise']:.4g}; not the excess: "
        f"it contains the finite context, {'infinite' if context is None else f'about {context:.3g}'}, and the fit to these samples"
    )
    print_hypotheses(content["hypotheses"])
    print(f"verdict    {content['verdict']}: {content['inequality']}")
    for warning in content["warnings"]:
        print(f"warning    {warning}")
    print_files(content)
