"""Report folders of single runs, and of comparisons of several runs."""

from collections.abc import Callable, Sequence
from pathlib import Path

import yaml

from .figures.gamma_figure import gamma_heatmap
from .figures.group_figure import group_figure
from .figures.reliability_figures import comparison_figure, reliability_diagram
from .figures.risk_coverage_figure import risk_coverage_of
from .results.run_results import RunResult, shared_axes
from .wording.markdown_tables import escaped, label_table, results_table
from .wording.text_summary import decision_lines, group_table

_DIAGRAMS = ("reliability_before.png", "reliability_after.png", "reliability_labels.png")
_PICTURES = {*(Path(name).stem for name in _DIAGRAMS), "risk_coverage", "groups", "gamma"}
_PICTURE_SUFFIXES = (".png", ".svg")  # earlier versions wrote SVG


def write_report(folder: str | Path, result: RunResult, *, pictures: bool = True) -> list[Path]:
    """Write the report of one run: metrics.json, table.md, loss.yaml, and diagrams before and after the correction.

    With ``pictures=False``, it has no pictures, which only a card needs: the page draws its own. Pictures are PNG
    files. For a multi-label model, table.md also has the `label_table`, and
    reliability_labels.png shows the labels with the largest ECE before T. If the result has them, risk_coverage.png
    shows the error rate at each coverage, groups.png the ECE of each group, and gamma.png the updates of AdaFocal's γ
    in `result.subsets.gamma_history`. Diagrams after T are left out if there is no correction, and loss.yaml is
    left out if `LossConfig.parse` does not know the loss.

    Returns:
        The paths of the files. metrics.json is written last: if it exists, the report is complete.
    """
    decisions = "".join(f"\n{escaped(line)}\n" for line in decision_lines(result))
    labels = f"\n{label_table(result)}" if result.subsets.labels else ""
    groups = f"\n{group_table(result.subsets.groups)}" if result.subsets.groups else ""
    paths = write_run_files(Path(folder), result, results_table([result]) + labels + groups + decisions, pictures)
    result.save(Path(folder, "metrics.json"))
    return [*paths, Path(folder, "metrics.json")]


def diagrams_of(result: RunResult) -> list[str]:
    """Return the file names of the PNG reliability diagrams that `write_report` writes for a result."""
    drawn = True, result.method is not None, bool(result.subsets.worst_labels)
    return [name for name, is_drawn in zip(_DIAGRAMS, drawn, strict=True) if is_drawn]


def write_comparison(
    folder: str | Path, results: Sequence[RunResult], table_of: Callable[[Sequence], str] = results_table
) -> list[Path]:
    """Write the comparison of several runs, table.md (from `table_of`) and comparison.png, and return both paths."""
    markdown = table_of(results)
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    table, figure = folder / "table.md", folder / "comparison.png"
    table.write_text(markdown, encoding="utf-8")
    bins = {result.name: (result.pre_bins, result.post_bins) for result in results}
    comparison_figure(bins, figure, link=shared_axes(results))
    return [table, figure]


def write_run_files(folder: Path, result: RunResult, markdown: str, pictures: bool = True) -> list[Path]:
    """Write the files that reports of all kinds of runs have, with `markdown` as table.md, and return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    table, loss = folder / "table.md", folder / "loss.yaml"
    table.write_text(markdown, encoding="utf-8")
    for path in folder.glob("*"):
        is_picture = path.stem in _PICTURES and path.suffix in _PICTURE_SUFFIXES
        if is_picture or path in (loss, folder / "examples.html"):
            path.unlink()  # from an earlier report
    paths = [table]
    if (config := result.loss_config) is not None:
        loss.write_text(yaml.safe_dump(config.to_dict(), sort_keys=False), encoding="utf-8")
        paths.append(loss)
    return [*paths, *_draw(folder, result)] if pictures else paths


def _draw(folder: Path, result: RunResult) -> list[Path]:
    before, after, labels = (folder / name for name in _DIAGRAMS)
    paths, diagrams = [], [(before, result.pre_bins, result.name)]
    if result.method is not None:
        diagrams.append((after, result.post_bins, f"{result.name}, {result.correction_title(6)}"))
    for path, bins, title in diagrams:
        reliability_diagram(metrics=bins, title=title, link=result.axes, path=path)
        paths.append(path)
    if worst := result.subsets.worst_labels:
        panels = {"all labels": [result.pre_bins, result.post_bins], **worst}
        sides = 2 if result.method else 1
        comparison_figure({name: bins[:sides] for name, bins in panels.items()}, labels, link=result.link)
        paths.append(labels)
    if (figure := risk_coverage_of(result)) is not None:
        paths.append(folder / "risk_coverage.png")
        figure.savefig(paths[-1], dpi=150)
    if groups := result.subsets.groups:
        paths.append(folder / "groups.png")
        group_figure(groups, paths[-1])
    if history := result.subsets.gamma_history:
        paths.append(folder / "gamma.png")
        gamma_heatmap(history, title=result.name, path=paths[-1])
    return paths
