"""The run store: a folder of groups, each a parquet file of rows with its arrays beside it.

A file is named by what it holds: the key of its group and the digest of its bytes. It appears by a rename, whole or not at all; writing it twice
changes nothing; one that was cut, copied by half or changed no longer fits its name, and is named and left out before anything reads it.
A run is known by its key, the hash of what determines its result, and counts once, in however many files it is.
"""

import hashlib
import io
import json
import os
import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..errors import ArgumentError, DataFileError, MissingExtra, kind
from ..files import check_writable, load_npz, mark, write_bytes

EVENT = re.compile(r"\s*([a-z]\w*)\s*(<=|>=|==|<|>)\s*(\S+)\s*")  # a condition on a column of a run
FORMAT = mark("runs")
_NAME = re.compile(r"([0-9a-f]{20})-([0-9a-f]{16})\.(parquet|npz)")
_TEMPORARY = re.compile(r"\..*\.[0-9a-f]{8}")


def digest(content: object) -> str:
    """20 letters for a JSON value.

    >>> digest({"d": 4, "seed": 0}) == digest({"seed": 0, "d": 4})
    True
    """
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:20]


def _parquet() -> Any:
    try:
        import pyarrow.parquet as parquet
    except ImportError:
        raise MissingExtra("sweeps", "The run store") from None
    return parquet


class Group(NamedTuple):
    """One file of runs that is what it says it is."""

    path: Path
    made: dict[str, Any]
    arrays: Path | None


class Store:
    """A folder of runs; one that is to be written is refused where that cannot be, before there is anything to write."""

    def __init__(self, path: object, writes: bool = False):
        if not isinstance(path, str | os.PathLike):
            raise ArgumentError("path", "Store", "the name of a folder", kind(path))
        self.path = Path(path)
        if self.path.exists() and not self.path.is_dir():
            raise DataFileError(f"'{self.path}' is a file; a run store is a folder.")
        if writes:
            _parquet()
            check_writable(str(self.path / "group.parquet"))

    def write(
        self, rows: Sequence[Mapping[str, Any]], made: Mapping[str, Any], arrays: Mapping[str, np.ndarray] | None = None
    ) -> Path:
        """Add a group: first its arrays, then the rows that name them."""
        import pyarrow

        group = digest([row["key"] for row in rows])
        held = self._put(group, _npz(arrays), "npz") if arrays else None
        names = dict.fromkeys(name for row in rows for name in row if any(one.get(name) is not None for one in rows))
        table = pyarrow.table({name: pyarrow.array([row.get(name) for row in rows]) for name in names})
        beside = [held.name, held.stat().st_size] if held else []
        known = {"format": FORMAT, "arrays": beside, "made": dict(made)}
        content = io.BytesIO()
        _parquet().write_table(table.replace_schema_metadata({"penchant": json.dumps(known, sort_keys=True)}), content)
        return self._put(group, content.getvalue(), "parquet")

    def _put(self, group: str, content: bytes, ending: str) -> Path:
        path = self.path / f"{group}-{hashlib.sha256(content).hexdigest()[:16]}.{ending}"
        return write_bytes(path, content)  # over what is there, which may be cut short

    def scan(self, whole: bool = False) -> tuple[list[Group], dict[str, str]]:
        """The groups that are whole, and why the other files are not; with `whole` their arrays are read as well."""
        groups, bad = [], {}
        files = sorted(self.path.iterdir()) if self.path.is_dir() else []
        for file in files:
            if (file.suffix == ".npz" and _NAME.fullmatch(file.name)) or _TEMPORARY.fullmatch(file.name):
                continue
            try:
                groups.append(self._group(file, whole))
            except DataFileError as error:
                bad[file.name] = str(error)
        return groups, bad

    def _group(self, file: Path, whole: bool) -> Group:
        name = _NAME.fullmatch(file.name)
        if not name or not file.is_file():
            raise DataFileError("foreign: the run store did not write it")
        content = file.read_bytes()
        if hashlib.sha256(content).hexdigest()[:16] != name[2]:
            raise DataFileError("cut short or changed: it does not hold what its name says")
        try:
            known = json.loads(_parquet().read_metadata(io.BytesIO(content)).metadata[b"penchant"])
        except Exception as error:
            raise DataFileError(f"foreign: no rows of penchant ({type(error).__name__})") from None
        if known.get("format") != FORMAT:
            raise DataFileError(f"of another version: {known.get('format')!r}, and this penchant reads '{FORMAT}'")
        return Group(file, known["made"], self._beside(known["arrays"], whole))

    def _beside(self, named: Sequence, whole: bool) -> Path | None:
        """The arrays of a group, of the right size; what they hold is read only where all is checked."""
        if not named:
            return None
        name, size = named
        path, parts = self.path / name, _NAME.fullmatch(name)
        if not parts or not path.is_file():
            raise DataFileError(f"half copied: its arrays '{name}' are missing")
        changed = whole and hashlib.sha256(path.read_bytes()).hexdigest()[:16] != parts[2]
        if changed or path.stat().st_size != size:
            raise DataFileError(f"its arrays '{name}' are cut short or changed")
        return path

    @cached_property
    def _scanned(self) -> tuple[list[Group], dict[str, str]]:
        return self.scan()

    @property
    def skipped(self) -> dict[str, str]:
        """Files that were left out, and why."""
        return self._scanned[1]

    def rows(self) -> list[dict[str, Any]]:
        """Every run once; a result before a failure."""
        found: dict[str, dict] = {}
        for group in self.scan()[0]:
            for row in _parquet().read_table(group.path).to_pylist():
                if row["key"] not in found or found[row["key"]]["status"] == "failed":
                    found[row["key"]] = row
        return list(found.values())

    def arrays(self, key: str) -> dict[str, np.ndarray]:
        """The arrays that were kept of a run."""
        for group in self.scan()[0]:
            held = load_npz(group.arrays) if group.arrays else {}
            own = {name.partition("/")[2]: array for name, array in held.items() if name.startswith(f"{key}/")}
            if own:
                return own
        return {}

    def query(self, sql: str) -> tuple[list[str], list[tuple]]:
        """Columns and rows of a question in SQL about the table `runs`, which holds every run once. It can read nothing else, and writes nothing."""
        try:
            import duckdb
        except ImportError:
            raise MissingExtra("sweeps", "A query of the run store") from None
        groups, asks = [str(group.path) for group in self._scanned[0]], duckdb.StatementType
        if not groups:
            out = "".join(f"\n  Left out: '{file}', {why}." for file, why in self.skipped.items())
            raise DataFileError(f"There are no runs in '{self.path}'.{out}")
        once = "row_number() over (partition by key order by status = 'failed', filename) = 1"
        every = "select * exclude (filename) from read_parquet(?, union_by_name = true, filename = true)"
        with duckdb.connect() as base:
            base.execute(f"create table runs as {every} qualify {once}", [groups])
            base.execute("set enable_external_access = false; set lock_configuration = true")
            try:
                if {one.type for one in base.extract_statements(sql)} - {asks.SELECT, asks.EXPLAIN, asks.MULTI}:
                    raise duckdb.Error("a statement that changes something")
                answer = base.execute(sql)
                return [column[0] for column in answer.description or ()], answer.fetchall()
            except duckdb.Error as error:
                columns = ", ".join(row[0] for row in base.execute("describe runs").fetchall())
                wanted, found = f"SQL over the columns {columns}", str(error).splitlines()[0]
                raise ArgumentError("query", "penchant runs", wanted, found) from None

    def prune(self, where: str) -> int:
        """Remove the runs for which an SQL condition holds; groups that lose some are written again without them."""
        gone = {row[0] for row in self.query(f"select key from runs where {where}")[1]}
        for group in self._scanned[0]:
            rows = _parquet().read_table(group.path).to_pylist()
            left = [row for row in rows if row["key"] not in gone]
            if len(left) == len(rows):
                continue
            held = load_npz(group.arrays) if group.arrays else {}
            if left:
                arrays = {name: array for name, array in held.items() if name.partition("/")[0] not in gone}
                self.write(left, group.made, arrays)
            for file in (group.path, group.arrays):
                if file is not None:
                    file.unlink()
        return len(gone)


def _npz(arrays: Mapping[str, np.ndarray]) -> bytes:
    content = io.BytesIO()
    np.savez_compressed(content, allow_pickle=False, **dict(arrays))
    return content.getvalue()
