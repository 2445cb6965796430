"""Examples in modules of an extra are collected only where that extra is installed."""

from importlib.util import find_spec

EXTRAS = {
    "torch": "src/penchant/bridge/torch.py",
    "sklearn": "src/penchant/bridge/sklearn.py",
    "optax": "src/penchant/bridge/optax.py",
}
collect_ignore = [file for name, file in EXTRAS.items() if find_spec(name) is None]
