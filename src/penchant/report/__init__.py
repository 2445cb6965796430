"""Pages from saved files. Called, this folder is the public function of its name, which importing it would otherwise hide."""

import sys
from types import ModuleType
from typing import Any


class _Folder(ModuleType):
    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return sys.modules["penchant"].__getattr__("report")(*arguments, **options)


sys.modules[__name__].__class__ = _Folder
