"""The list of citations holds works, each once: neither theorem numbers nor remarks."""

from penchant.report.formulas import bibtex, works

WORK = "Ji, Telgarsky, Gradient descent aligns the layers of deep linear networks, ICLR 2019"
NOTES = "Ma et al., Lecture notes on machine learning theory, chapter 9: implicit regularization effect"
OTHER = "Sheen, Chen, Implicit regularization of gradient flow, 2024, arXiv 2403.08699"


def test_works_are_listed_once_without_numbers_and_remarks():
    texts = (
        f"{WORK}, Lemma 8; 3 R_0 there",
        f"{WORK}, Theorem 3; the twin starts on the stable manifold of the saddle",
        f"repair of {NOTES}, (9.113); derived for penchant",
        f"{NOTES}, Theorem 9.18; {OTHER}, Lemma 4.1",
        "derived for penchant; the paper lists rates as open",
        "none",
    )
    assert works(list(texts)) == sorted([WORK, NOTES, OTHER])
    assert works(["stable manifold of the saddle"]) == []


def test_entries_name_authors_title_year_and_preprint():
    assert bibtex(WORK).splitlines() == [
        "@misc{ji2019,",
        "  author = {Ji and Telgarsky},",
        "  title = {Gradient descent aligns the layers of deep linear networks},",
        "  year = {2019},",
        "  note = {ICLR 2019},",
        "}",
    ]
    entry = bibtex(OTHER)
    for line in ("@misc{sheen2024,", "author = {Sheen and Chen},", "year = {2024},", "eprint = {2403.08699},"):
        assert line in entry
    assert "author = {Ma and others}" in bibtex(NOTES)
    assert "title" not in bibtex("Arora, Cohen, Hazan 2018")
