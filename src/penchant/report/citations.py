"""The works behind a page: found in the citations of claims, each once, and as BibTeX."""

import re

# A work from its first author to its year (and arXiv number) or, for lecture notes, to its chapter; remarks after a semicolon are none.
_WORK = re.compile(r"[A-Z][^;]*?(?:\b(?:19|20)\d\d\b(?:, arXiv [\d.]+\d)?|chapter \d+: [^,;]*)")
_AUTHOR = re.compile(r"[A-ZÀ-Ž][\w'’.-]*(?: (?:et al\.|de|van|von|[A-Z][\w.-]*))*")


def works(texts: list[str]) -> list[str]:
    """The works that citations name, without the theorem numbers, sorted, each once."""
    return sorted({work for text in texts for work in _WORK.findall(text)})


def bibtex(work: str) -> str:
    """A work as an entry: authors are the names it begins with, then come title, and where and when.

    >>> print(bibtex("Ji, Telgarsky, Gradient descent aligns the layers, ICLR 2019"))
    @misc{ji2019,
      author = {Ji and Telgarsky},
      title = {Gradient descent aligns the layers},
      year = {2019},
      note = {ICLR 2019},
    }
    """
    parts = work.split(", ")
    count = next((k for k, part in enumerate(parts) if not _AUTHOR.fullmatch(part)), len(parts) - 1) or 1
    year, eprint = re.search(r"\b(?:19|20)\d\d\b", work), re.search(r"arXiv ([\d.]+\d)", work)
    key = re.sub(r"\W", "", parts[0].split()[0]).lower() + (year.group() if year else "")
    authors = " and ".join(part.replace(" et al.", " and others") for part in parts[:count])
    if re.fullmatch(r"[A-Z][\w-]* \d{4}", parts[count]):  # a work by its authors alone
        authors, parts[count] = f"{authors} and {parts[count].split()[0]}", ""
    note = ", ".join(part for part in parts[count + 1 :] if part != (year and year.group()))
    fields = {"author": authors, "title": parts[count], "year": year.group() if year else "", "note": note}
    fields |= {"eprint": eprint.group(1), "archivePrefix": "arXiv"} if eprint else {}
    return f"@misc{{{key},\n" + "".join(f"  {name} = {{{text}}},\n" for name, text in fields.items() if text) + "}"
