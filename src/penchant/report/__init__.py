"""Pages from saved files. Called, this folder is the public function of its name, which importing it would otherwise hide."""

import sys
from pathlib import Path
from types import ModuleType


class _Folder(ModuleType):
    def __call__(self, *arguments: object, **options: object) -> Path:
        return sys.modules["penchant"].__getattr__("report")(*arguments, **options)


sys.modules[__name__].__class__ = _Folder
