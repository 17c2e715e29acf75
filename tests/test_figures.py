"""The figures in prose are those of the tables that they cite, which scripts write from committed runs."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "results"
BLOB = "https://github.com/hf-focal/hf_focal/blob/main/"
# Their tables are written from recipes/papers/records, which other tests repeat; some are CSV files that they link.
WRITTEN = ("cifar10", "newsgroups", "sft", "sst", "yes_or_no")
# Numbers of the setting: millions of parameters, the choice of the learning rate, weight decay, the grid of T. And
# p-values.
SETTING = {
    "yes_or_no": {"0.78", "1.52", "3.76", "3.82", "17.5", "18.7", "80.5"},  # temperatures of labels, estimated shares
    "newsgroups": {"0.1", "0.2"},
    "sft": {"0.01"},
    "sst": {"22.6", "0.02", "0.04", "0.08"},
}
NUMBER = re.compile(r"(?<![\w.,/=])\d+\.\d+(?![\w.])")


def blocks(markdown):
    """Paragraphs, list items, and table rows, without code and comments."""
    text = re.sub(r"```.*?```|<!--.*?-->", "", markdown, flags=re.S)
    return [block for paragraph in re.split(r"\n\s*\n", text) for block in re.split(r"\n(?=[-*] |\|)", paragraph)]


def figures(text):
    """The decimal numbers of a text, as written, without those of code, of links' targets, and of α and γ."""
    return NUMBER.findall(re.sub(r"\]\([^)]*\)|`[^`]*`|[αγ] =\s+[\d.]+", "]", text))


def in_tables(markdown, folder=RESULTS):
    """The numbers of the tables of a page, and of the CSV files that it links."""
    rows = "\n".join(line for line in markdown.splitlines() if line.startswith("|"))
    for file in re.findall(r"\]\(([^)\s]+\.csv)\)", markdown):
        path = ROOT / file.removeprefix(BLOB) if file.startswith(BLOB) else folder / file
        rows += path.read_text(encoding="utf-8")
    return [float(number) for number in re.findall(r"\d+(?:\.\d+)?", rows)]


def missing(written, numbers):
    """Those of the written figures to which none of the numbers rounds."""
    half = {figure: 0.5 * 10 ** -len(figure.partition(".")[2]) + 1e-9 for figure in written}
    return [figure for figure in written if not any(abs(number - float(figure)) <= half[figure] for number in numbers)]


def cited(page, block):
    """The text of the pages that a block links, of the section alone where a link names one."""
    texts = []
    for file, anchor in re.findall(r"\]\(([^)#\s:]+\.md)(?:#([^)]*))?\)", block):
        text = (page.parent / file).resolve().read_text(encoding="utf-8")
        if anchor:
            sections = re.split(r"\n(?=#+ )", text)
            text = next(part for part in sections if slug(part.splitlines()[0]) == anchor)
        texts.append(text)
    return "\n".join(texts)


def slug(heading):
    return re.sub(r"[^\w\- ]", "", heading.lstrip("# ").lower()).strip().replace(" ", "-")


@pytest.mark.parametrize("page", ["README.md", "docs/guides/losses.md"])
def test_advice_has_the_figures_of_the_pages_that_it_links(page):
    page, checked = ROOT / page, 0
    for block in blocks(page.read_text(encoding="utf-8")):
        if "Python ≥ 3" not in block:  # versions
            written = figures(block)
            checked += len(written)
            numbers = [float(number) for number in re.findall(r"\d+(?:\.\d+)?", cited(page, block))]
            assert not missing(written, numbers), block
    assert checked > 5


@pytest.mark.parametrize("name", WRITTEN)
def test_prose_has_the_figures_of_the_tables_below_it(name):
    text = (RESULTS / f"{name}.md").read_text(encoding="utf-8")
    by_hand = text.partition("<!-- What follows")[0]
    prose = [block for block in blocks(by_hand) if not block.startswith("|")]
    written = [figure for block in prose for figure in figures(block)]
    numbers = in_tables(text)
    assert written and len(numbers) > 15
    assert set(missing(written, numbers)) <= SETTING.get(name, set())


def test_a_wrong_figure_is_found():
    numbers = in_tables("prose 7.5\n| loss | 2.46 | 16.31 ± 0.4 |\n")
    assert missing(figures("16.3% and [2.5](page.md#a-1.25) %"), numbers) == []
    assert missing(figures("16.4% and 2.47, 7.5"), numbers) == ["16.4", "2.47", "7.5"]
