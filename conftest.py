"""Which worker takes which tests, and examples in modules of an extra only where that extra is installed."""

from importlib.util import find_spec

import pytest

EXTRAS = {
    "torch": ("src/penchant/bridge/torch*.py", "docs/tutorials/7-*.md"),
    "transformers": ("src/penchant/bridge/torch_transformers.py",),
    "lightning": ("src/penchant/bridge/torch_lightning.py",),
    "sklearn": ("src/penchant/bridge/sklearn.py",),
    "optax": ("src/penchant/bridge/optax.py",),
}
collect_ignore_glob = [one for name, patterns in EXTRAS.items() if find_spec(name) is None for one in patterns]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """A file stays with one worker: its tests share compiled code, and two workers would compile it twice."""
    for item in items:
        if item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(item.nodeid.split("::")[0]))
