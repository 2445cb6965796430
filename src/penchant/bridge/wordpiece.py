"""Words to the numbers that the pretrained encoder knows them by: the WordPiece rule on lower-case text without accents."""

import unicodedata
from collections.abc import Iterable, Iterator

import numpy as np

_LONGEST = 100  # letters; a longer word is unknown
_UNKNOWN, _FIRST, _LAST = "[UNK]", "[CLS]", "[SEP]"


def _is_sign(letter: str) -> bool:
    """Whether a letter stands alone: punctuation, the symbols of ASCII, and ideographs."""
    code = ord(letter)
    ascii_sign = code < 128 and letter.isprintable() and not letter.isalnum() and letter != " "
    ideograph = 0x4E00 <= code <= 0x9FFF or 0x3400 <= code <= 0x4DBF or 0xF900 <= code <= 0xFAFF
    return ascii_sign or ideograph or unicodedata.category(letter).startswith("P")


def _words(text: str) -> Iterator[str]:
    plain = unicodedata.normalize("NFD", text.lower())
    kind = lambda letter: unicodedata.category(letter)
    kept = (
        one if one in "\t\n\r" or kind(one)[0] != "C" else "" for one in plain if kind(one) != "Mn" and one != "\ufffd"
    )
    yield from "".join(f" {one} " if one and _is_sign(one) else one for one in kept).split()


class WordPiece:
    """The words of a vocabulary, one to a line; `tokens` cuts and pads every text to the same length.

    >>> vocabulary = "\\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "play", "##ing", "!"])
    >>> WordPiece(vocabulary).tokens(["Playing!", "chess"], 6).tolist()
    [[2, 4, 5, 6, 3, 0], [2, 1, 3, 0, 0, 0]]
    """

    def __init__(self, vocabulary: str):
        self.places = {word: k for k, word in enumerate(vocabulary.split("\n"))}
        self._known: dict[str, list[int]] = {_LAST.lower(): [self.places[_LAST]]}

    def tokens(self, texts: Iterable[str], length: int) -> np.ndarray:
        """One row of at most `length` numbers for each text, between the marks of beginning and end, then zeros. `[SEP]` in a text is kept."""
        first, last = self.places[_FIRST], self.places[_LAST]
        rows = [[first, *self._pieces(text, length - 2), last] for text in texts]
        return np.array([row + [0] * (length - len(row)) for row in rows], np.int16)

    def _pieces(self, text: str, most: int) -> list[int]:
        found: list[int] = []
        for k, part in enumerate(text.split(_LAST)):
            found += [self.places[_LAST]] * (k > 0)
            for word in _words(part):
                if len(found) >= most:
                    return found[:most]
                found += self._known.get(word) or self._known.setdefault(word, self._cut(word))
        return found[:most]

    def _cut(self, word: str) -> list[int]:
        """The longest piece of the vocabulary that the word begins with, then that of the rest, and so on."""
        found, start = [], 0
        while start < len(word):
            ends = range(len(word), start, -1)
            piece = next((w for end in ends if (w := "##" * (start > 0) + word[start:end]) in self.places), None)
            if piece is None or len(word) > _LONGEST:
                return [self.places[_UNKNOWN]]
            found.append(self.places[piece])
            start += len(piece) - 2 * (start > 0)
        return found
