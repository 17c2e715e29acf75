"""What the files of a release say agrees."""

import re
import tomllib

import yaml
from documented import ROOT

import hf_focal


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def test_the_version_is_the_same_everywhere():
    assert yaml.safe_load(text_of("CITATION.cff"))["version"] == hf_focal.__version__
    (newest, *_) = re.findall(r"^## \[(\d.*?)\] - \d{4}-\d\d-\d\d$", text_of("CHANGELOG.md"), re.MULTILINE)
    assert newest == hf_focal.__version__
    assert f"[{newest}]: https://github.com/hf-focal/hf_focal/releases/tag/v{newest}" in text_of("CHANGELOG.md")


def test_the_addresses_are_the_same_everywhere():
    urls = tomllib.loads(text_of("pyproject.toml"))["project"]["urls"]
    citation, site = yaml.safe_load(text_of("CITATION.cff")), yaml.safe_load(text_of("mkdocs.yml"))
    assert citation["repository-code"] == urls["Homepage"]
    assert site["edit_uri_template"].startswith(f"{urls['Homepage']}/edit/")
    assert citation["url"] == site["site_url"] == urls["Documentation"]


def test_links_of_the_readme_lead_to_the_repository_on_pypi():
    hook = tomllib.loads(text_of("pyproject.toml"))["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]
    readme = text_of("README.md")
    for substitution in hook["substitutions"]:
        readme = re.sub(substitution["pattern"], substitution["replacement"], readme)
    targets = re.findall(r"\]\(([^)\s]+)\)", readme)
    assert any("raw.githubusercontent.com" in target for target in targets)
    assert all(target.startswith("https://") for target in targets)
