"""Sentences with formulas in ASCII as sentences with MathML, made when a page is written: whatever is no formula stays text.

>>> str(typeset("If w <= B then L >= e^-B."))
'If <math><mi>w</mi><mo>≤</mo><mi>B</mi></math> then <math><mi>L</mi><mo>≥</mo><msup><mi>e</mi><mrow><mo>−</mo><mi>B</mi></mrow></msup></math>.'
>>> str(typeset("norm over its minimum - 1 < 1e-06, 12 designs"))
'norm over its minimum − <math><mn>1</mn><mo>&lt;</mo><msup><mn>10</mn><mn>−6</mn></msup></math>, 12 designs'
>>> str(typeset("seeds 0-9, = -2 <= -1"))
'seeds 0–9, <math><mo form="infix">=</mo><mo>−</mo><mn>2</mn><mo>≤</mo><mo>−</mo><mn>1</mn></math>'
>>> str(typeset("steps 1e3"))
'steps <math><msup><mn>10</mn><mn>3</mn></msup></math>'

The works behind a page: found in the citations of claims, each once, and as BibTeX.
"""

import re
from html import escape
from itertools import accumulate
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from markupsafe import Markup


_GREEK = {"alpha": "α", "beta": "β", "gamma": "γ", "delta": "δ", "eps": "ε", "epsilon": "ε", "zeta": "ζ", "eta": "η", "theta": "θ", "kappa": "κ", "lambda": "λ", "mu": "μ", "nu": "ν", "pi": "π", "rho": "ρ", "sigma": "σ", "tau": "τ", "phi": "φ", "chi": "χ", "psi": "ψ", "omega": "ω", "Sigma": "Σ", "Delta": "Δ", "Lambda": "Λ", "Phi": "Φ", "inf": "∞", "grad": "∇", "sum": "∑"}  # fmt: skip
_FUNCTIONS = {"log", "exp", "max", "min", "sqrt", "tr", "arcsinh", "sinh", "cosh", "softmax", "sign", "Hess", "diag", "rank", "step", "dt", "dL", "dR", "dW", "corr", "tan", "sin", "cos", "arg", "dist"}  # fmt: skip
_QUANTITIES = {"margin", "norm", "loss", "gap", "curvature", "terms", "steps"}  # in a formula after an operator
_SIGNS = {"+-": "±", "<=": "≤", ">=": "≥", "!=": "≠", "->": "→", "-": "−", "*": "·", "~": "∼", "'": "′"}
_TOKEN = re.compile(r"\d+(?:\.\d+)?(?:e[-+]?\d+)?|Õ|[A-Za-z]+|\+-|<=|>=|!=|->|[-+*/^_=<>~|'(){}\[\],⟨⟩⋆]")
_HOW = {"|": ' lspace="0" rspace="0" stretchy="false"', "/": ' lspace="0" rspace="0"'}  # how an operator stands
_HOW |= dict.fromkeys("()[]⟨⟩", ' stretchy="false"')
_OPEN, _CLOSE = (f'<mo stretchy="false">{one}</mo>' for one in "()")
_THIN = '<mspace width="0.2em"></mspace>'  # between factors that stand side by side
_LONG = 12  # tokens of a formula that fits on every line
_WORD = re.compile(r"[A-Za-z]{2,}")
_PAIR = re.compile(r"<(\S[^<>=]*,[^<>=]*\S)>")  # <x, y>, a scalar product
_STARRED = re.compile(r"(?<=[A-Za-z])\*(?:\^(\d)|(?![\w(]))")  # L*, the best value of L, and its square
# w+^2, the square of w with the index +; and w+w-
_SIGNED = re.compile(r"(?<![A-Za-z])([a-z])([+-])(?=\^| ?\1)|(?:(?<=\+)|(?<=\+ ))([a-z])(-)(?!\S)")
_POWER = re.compile(r"\^(?:\(([^()]*)\)|(-\d+/\d+))")
# What stands for a sign also between words.
_SPELT = {name: sign for name, sign in _GREEK.items() if name not in ("inf", "grad", "sum", "eps")}
_SPELT |= {"linf": "l∞", "Q_alpha": "Qα", "frobenius": "Frobenius"}
_SPELT_OUT = re.compile(rf"\b(?:{'|'.join(_SPELT)})(?![^\W_])|[<>]=|\+-|(?<= )[-*](?= )|(?<=[ (\[])-(?=[\w(])")
_RELATED = re.compile(
    r"(?=.*[A-Za-z\d]).*?(?:[=<>^_~|+*]|[A-Za-z)]\s?/\s?[A-Za-z(\d]|\d/[A-Za-z(]|\S - \S|[A-Za-z]\(|->|\de[-+]?\d)"
)
# Letters that stand for something, as v, w or (K, Q), where they are no part of a word, a number or a name.
_VARIABLES = re.compile(r"(?<![\w.'’-])\(?[b-zB-HJ-Z](?:, [A-Za-z])*\)?(?![\w'’]|[.-][A-Z]|\.\w)")
_RANGE = re.compile(r"(?<=[a-z] \d)-(?=\d+\b)")  # seeds 0-9
_TUPLE = re.compile(r"\((?:[A-Za-z1]|eps|delta)'?(?:, (?:[A-Za-z]|eps|delta)'?)+\)")


def _runs(text: str) -> list[tuple[bool, str]]:
    """A sentence as pieces, each with whether it is a formula: the longest stretches without words and full stops, if they relate anything."""
    pieces, start, end = [], None, 0
    spans = [(match.start(), match.end(), match.group()) for match in _TOKEN.finditer(text)]
    for begin, stop, token in [*spans, (len(text), len(text), "word")]:
        apart = start is not None and text[end:begin].strip() != ""
        fits = (
            not _WORD.fullmatch(token) or token in _GREEK or token in _FUNCTIONS or text[stop : stop + 1] == "^"
        )  # margin^2
        fits |= start is not None and begin > 0 and text[begin - 1] == "_"  # u_mm
        fits |= start is not None and token in _QUANTITIES and bool(re.search(r"([-+*/^(|]|log) ?$", text[start:begin]))
        if start is not None and (apart or not fits):
            pieces.append((start, end))
            start = None
        if fits:
            start = begin if start is None else start
            end = stop
    found, last = [], 0
    for begin, stop in (_trimmed(text, *piece) for piece in pieces):
        named = (one.match(text, begin) for one in (_VARIABLES, _TUPLE))
        related = stop > begin + 1 and _RELATED.search(text[begin:stop]) and _balanced(text[begin:stop])
        if related or any(one and one.end() == stop for one in named):
            found += [(False, text[last:begin]), (True, text[begin:stop])]
            last = stop
    return [*found, (False, text[last:])]


def _trimmed(text: str, begin: int, end: int) -> tuple[int, int]:
    """Without commas, articles, half of a pair of brackets at the ends, and the number of what is counted next: `x <= 1, 20 data sets`."""
    if (counted := re.search(r",\s*\d+$", text[begin:end])) and re.match(r" [a-z]{2}", text[end:]):
        end -= len(counted.group())
    uneven = lambda: not _balanced(text[begin:end])
    while begin < end and text[begin] in ", )":
        begin += 1
    while end > begin and (text[end - 1] in ", /+-*=^_<>(" or (text[end - 1] in ")]" and uneven())):
        end -= 1
    while begin < end and (
        text[begin] in ", )/+*=" or text[begin : begin + 2] == "- " or (text[begin] in "([" and uneven())
    ):
        begin += 1
    # Or the number of an equation, or the last of a range.
    article = re.match(r"(?:a|A|I)\s+(?=[A-Za-z\d(|])|\(\d+\),\s*|\d+, (?==)", text[begin:end])
    return begin + (article.end() if article else 0), end


def _balanced(text: str) -> bool:
    """Whether every bracket that closes was open, and every one that opens is closed."""
    for left, right in ("()", "[]", "{}"):
        depth = list(accumulate((c == left) - (c == right) for c in text))
        if depth and (min(depth) < 0 or depth[-1]):
            return False
    return text.count("|") % 2 == 0


def _atom(tokens: list[str]) -> str:
    """The next thing a power or an index may belong to."""
    token = tokens.pop(0)
    depth = list(accumulate(((one in "({") - (one in ")}") for one in tokens), initial=1))
    if token in "({" and 0 in depth:  # elsewhere the other half stands on the next line
        end = depth.index(0)
        body = _row(tokens[: end - 1])
        del tokens[:end]
        return f"<mrow>{body}</mrow>" if token == "{" else f"<mrow>{_OPEN}{body}{_CLOSE}</mrow>"
    if token == "sqrt" and tokens and tokens[0] == "(":
        return f"<msqrt>{_bare(tokens)}</msqrt>"
    if token[0].isdigit():
        digits, _, power = token.partition("e")
        ten = f"<msup><mn>10</mn><mn>{int(power)}</mn></msup>".replace("-", "−") if power else ""
        return ten if ten and digits == "1" else f"<mn>{digits}</mn>" + (f"<mo>·</mo>{ten}" if ten else "")
    if token[0].isalpha():
        upright = ' mathvariant="normal"' if token in _FUNCTIONS else ""
        return f"<mi{upright}>{_GREEK.get(token, token)}</mi>"
    return f"<mo{_HOW.get(token, '')}>{escape(_SIGNS.get(token, token))}</mo>"


def _bare(tokens: list[str]) -> str:
    """What stands in an exponent: a sign with its number, or a bracket without its parentheses."""
    if tokens and tokens[0] == "-":
        return f"<mrow>{_atom(tokens)}{_bare(tokens)}</mrow>"
    if not tokens:
        return "<mrow></mrow>"
    found, bracket = _atom(tokens), f"<mrow>{_OPEN}"
    return f"<mrow>{found[len(bracket) : -len(_CLOSE) - 7]}</mrow>" if found.startswith(bracket) else found


def _row(tokens: list[str], begins: bool = True) -> str:
    """Tokens in a row, with their indices and powers; a minus that begins a formula is a sign, elsewhere a difference."""
    found = []
    tokens = list(tokens)
    while tokens:
        base = _atom(tokens)
        if not found:  # a relation has its space in any case
            form = "prefix" if begins and base == "<mo>−</mo>" else "infix"
            base = re.sub("^<mo>(?=[=∼≤≥→+−/])", f'<mo form="{form}">', base)
        marks = {}
        while tokens and tokens[0] in ("^", "_") and tokens[0] not in marks:
            mark = tokens.pop(0)
            marks[mark] = _bare(tokens)
        low, high = marks.get("_"), marks.get("^")
        if low and high:
            base = f"<msubsup>{base}{low}{high}</msubsup>"
        elif low or high:
            base = f"<msub>{base}{low}</msub>" if low else f"<msup>{base}{high}</msup>"
        beside = found and not re.match("(?:<m[a-z]+>)?<mo", base) and not found[-1].startswith("<mo")
        found += [_THIN, base] if beside else [base]
    return "".join(found)


def _lines(piece: str) -> list[list[str]]:
    """The tokens of a formula, cut where a long one may be broken: before relations and after commas that no bracket holds, and before a sum."""
    piece = _POWER.sub(r"^{\1\2}", re.sub(r"\b([a-z])(\d)\b", r"\1_\2", piece))  # b2, the second b
    tokens, found, depth, braces = _TOKEN.findall(piece), [[]], 0, 0
    for token in tokens:
        related = depth == 0 and len(tokens) > _LONG and token in ("=", "<=", ">=", "->")
        if found[-1] and (
            related
            or (len(found[-1]) > _LONG and not braces and token in ("+", "-", "/") and found[-1][-1] not in ("^", "_"))
        ):
            found.append([])
        found[-1].append(token)
        depth, braces = depth + (token in "([{⟨") - (token in ")]}⟩"), braces + (token == "{") - (token == "}")
        if depth == 0 and token == ",":
            found.append([])
    return [line for line in found if line]


def _formula(piece: str) -> str:
    """A formula that may be broken between its lines, where an operator or a comma has its own space."""
    found, goes_on = "", False
    for line in _lines(piece):
        found += ("<wbr>" if found else "") + f"<math>{_row(line, not goes_on)}</math>"
        goes_on = line[-1] != ","
    return found


def spelt(text: str) -> str:
    """Words with signs in place of their names.

    >>> spelt("log(L - L*) <= alpha, theta_1, 1 - corr to the linf margin = -1")
    'log(L − L⋆) ≤ α, θ_1, 1 − corr to the l∞ margin = −1'
    """
    return _SPELT_OUT.sub(lambda found: (_SPELT | _SIGNS)[found.group()], _STARRED.sub(r"⋆\1", text))


def typeset(text: str) -> "Markup":
    """A sentence as markup that is safe to show."""
    from markupsafe import Markup

    signed = lambda found: "{}_{{{}}}".format(*filter(None, found.groups()))
    text = _RANGE.sub("–", text)
    text = _SIGNED.sub(signed, _PAIR.sub(r"⟨\1⟩", _STARRED.sub(r"^{⋆\1}", text.replace("O~(", "Õ("))))
    told = lambda formula, piece: _formula(piece) if formula else escape(spelt(piece), quote=False)
    sentence = lambda piece: "".join(told(*run) for run in _runs(piece))
    quoted = lambda piece: f"<code>{escape(piece)}</code>"
    return Markup("".join((quoted if k % 2 else sentence)(piece) for k, piece in enumerate(text.split("`"))))


# A work from its first author to its year (and arXiv number) or, for lecture notes, to its chapter; remarks after a semicolon are none.
_WORK = re.compile(r"[A-Z][^;]*?(?:\b(?:19|20)\d\d\b(?:, arXiv [\d.]+\d)?|chapter \d+: [^,;]*)")
_AUTHOR = re.compile(r"[A-ZÀ-Ž][\w'’.-]*(?: (?:et al\.|de|van|von|[A-Z][\w.-]*))*")


def works(texts: list[str]) -> list[str]:
    """The works that citations name, without the theorem numbers, sorted, each once."""
    return sorted({work for text in texts for work in _WORK.findall(text)})


def spoken(work: str) -> str:
    """How a work is spoken of.

    >>> spoken("Ji, Telgarsky, Gradient descent aligns the layers, ICLR 2019")
    'Ji and Telgarsky 2019'
    """
    parts, year = work.split(", "), re.search(r"\b(?:19|20)\d\d\b", work)
    names = parts[: _authors(parts)]
    told = " and ".join(names) if len(names) < 3 else f"{names[0]} et al."
    return f"{told} {year.group()}" if year else told


def _authors(parts: list[str]) -> int:
    """How many parts of a work are names."""
    return next((k for k, part in enumerate(parts) if not _AUTHOR.fullmatch(part)), len(parts) - 1) or 1


def bibtex(work: str) -> str:
    """A work as an entry: authors are the names it begins with, then come title, and where and when."""
    parts = work.split(", ")
    count = _authors(parts)
    year, eprint = re.search(r"\b(?:19|20)\d\d\b", work), re.search(r"arXiv ([\d.]+\d)", work)
    key = re.sub(r"\W", "", parts[0].split()[0]).lower() + (year.group() if year else "")
    authors = " and ".join(part.replace(" et al.", " and others") for part in parts[:count])
    if re.fullmatch(r"[A-Z][\w-]* \d{4}", parts[count]):  # a work by its authors alone
        authors, parts[count] = f"{authors} and {parts[count].split()[0]}", ""
    note = ", ".join(part for part in parts[count + 1 :] if part != (year and year.group()))
    fields = {"author": authors, "title": parts[count], "year": year.group() if year else "", "note": note}
    fields |= {"eprint": eprint.group(1), "archivePrefix": "arXiv"} if eprint else {}
    return f"@misc{{{key},\n" + "".join(f"  {name} = {{{text}}},\n" for name, text in fields.items() if text) + "}"
