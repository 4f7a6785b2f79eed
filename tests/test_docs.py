"""The documentation as a whole: formulas convert, pages are reachable, pictures can be made again, links lead somewhere."""

import ast
import importlib.util
import logging
import re
from pathlib import Path
from types import ModuleType

import markdown
import pytest
import yaml
from mkdocs.config.defaults import MkDocsConfig

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
LINK = re.compile(r"(?<!`)!?\[[^\]]*\]\((?!https?:|#)([^)#\s]+)(?:#[^)]*)?\)")


@pytest.fixture(scope="module")
def hooks() -> ModuleType:
    spec = importlib.util.spec_from_file_location("documentation_hooks", DOCS / "hooks.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def rendered(text: str, hooks: ModuleType) -> str:
    return markdown.markdown(text, extensions=["fenced_code", "tables", hooks.Formulas()])


def settings() -> dict:
    """mkdocs.yml without the tags that only MkDocs can read (it has none today; this keeps the test honest)."""
    return yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))


def listed(entry: object) -> list[str]:
    """Every page named in a navigation entry."""
    if isinstance(entry, str):
        return [entry]
    if isinstance(entry, dict):
        return [page for value in entry.values() for page in listed(value)]
    assert isinstance(entry, list)
    return [page for value in entry for page in listed(value)]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(DOCS)))
def test_formulas_convert(page: Path, hooks: ModuleType, caplog: pytest.LogCaptureFixture) -> None:
    """No page shows raw TeX: every formula becomes MathML without a warning."""
    with caplog.at_level(logging.WARNING):
        html = rendered(page.read_text(encoding="utf-8"), hooks)
    assert not caplog.records
    text = re.sub(r"<(pre|code|math)\b.*?</\1>", "", html, flags=re.S)
    assert "$" not in text


@pytest.mark.parametrize(
    ("source", "wanted"),
    [
        ("cost $a_i$ here", '<math aria-label="a_i"'),
        ("$$\na + b\n$$", 'display="block"'),
        ("see :math:`x^2`", '<math aria-label="x^2"'),
        (".. math:: x = 1", 'display="block"'),
        ("A :class:`Model`.", "<code>Model</code>"),
        ("`$a$` stays", "<code>$a$</code>"),
        ("5 $ and 6 $", "5 $ and 6 $"),
        ("```\n$$\nx\n$$\n```", "$$"),
    ],
)
def test_what_is_a_formula(source: str, wanted: str, hooks: ModuleType) -> None:
    """Formulas are found in pages and docstrings, code and money are left alone."""
    assert wanted in rendered(source, hooks)


def test_a_formula_that_cannot_be_converted_is_a_warning(
    hooks: ModuleType, caplog: pytest.LogCaptureFixture
) -> None:
    """The strict build fails on it, rather than showing nonsense."""
    with caplog.at_level(logging.WARNING):
        hooks.to_mathml(r"\begin{aligned} a &= b \end{aligned}", display=True)
    assert "could not be converted" in caplog.text


def test_every_page_is_in_the_navigation(hooks: ModuleType) -> None:
    """Nothing is written that a reader cannot find, and nothing is promised that is not there."""
    config = MkDocsConfig(str(ROOT / "mkdocs.yml"))
    config.load_dict(settings() | {"docs_dir": str(DOCS), "hooks": [], "plugins": []})
    assert config.validate() == ([], [])
    shown = listed(hooks.on_config(config).nav)
    assert sorted(shown) == [str(page.relative_to(DOCS)) for page in PAGES]


@pytest.mark.parametrize("page", [ROOT / "README.md", *PAGES], ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    """Relative links and pictures exist; the README is read where there is no site."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    missing = [target for target in LINK.findall(text) if not (page.parent / target).exists()]
    assert not missing


def defined(path: Path) -> set[str]:
    """Functions, classes and methods of a module, by their qualified names."""
    names = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{item.name}" for item in node.body if isinstance(item, ast.FunctionDef)}
    return names


def test_the_walk_through_names_what_exists() -> None:
    """Every function of the inference in the architecture page is defined in the file beside it."""
    text = (DOCS / "architecture.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([\w.]+)` \| `([\w./]+\.py)` \|", text, re.M)
    assert len(rows) > 25
    missing = [(name, file) for name, file in rows if name not in defined(ROOT / "src" / "headcount" / file)]
    assert not missing


def test_the_theory_names_what_exists() -> None:
    """Every class of its table of symbols is defined in the package, and every file that a section or a page names is there."""
    source = ROOT / "src" / "headcount"
    defined_somewhere = {name for file in source.rglob("*.py") for name in defined(file)}
    symbols = re.findall(r"^\| \$.*\| ([^|]*) \|$", (DOCS / "theory.md").read_text(encoding="utf-8"), re.M)
    classes = {name for cell in symbols for name in re.findall(r"`([A-Z]\w+)", cell)}
    assert len(classes) > 6
    assert not classes - defined_somewhere
    files = {file.name for folder in ("src", "tests", "tools") for file in (ROOT / folder).rglob("*.py")}
    pages = [
        page for page in PAGES if page.name != "benchmarks.md"
    ]  # which has measurements of older sources, too
    named = {
        name for page in pages for name in re.findall(r"\b(_\w+\.py)`", page.read_text(encoding="utf-8"))
    }
    assert len(named) > 30
    assert not named - files - {"_name.py"}


def test_every_picture_has_a_script() -> None:
    """A picture that nobody can draw again is a number without a source."""
    scripts = "".join(p.read_text(encoding="utf-8") for p in (DOCS / "figures").glob("*.py"))
    orphans = [p.name for p in (DOCS / "images").iterdir() if p.name not in scripts]
    assert not orphans


def test_the_site_has_its_live_report(hooks: ModuleType, tmp_path: Path) -> None:
    """The home page's frame shows a page that the build makes from a stored result of real data."""
    config = MkDocsConfig()
    config.docs_dir, config.site_dir = str(DOCS), str(tmp_path)
    hooks.on_post_build(config)
    home = (DOCS / "index.md").read_text(encoding="utf-8")
    for name, title in hooks.LIVE.items():
        assert f'src="live/{name}.html"' in home
        assert f"<title>{title}</title>" in (tmp_path / "live" / f"{name}.html").read_text(encoding="utf-8")


def test_pages_ask_no_other_host() -> None:
    """The theme's fonts, scripts and styles all come with the site, the one for searching without a server too.

    `tools.site` looks at what was built; this is seen without building.
    """
    made = settings()
    assert made["theme"]["font"] is False
    assert "offline" in made["plugins"]
    assert [path for path in made["extra"]["polyfills"] if "iframe-worker" in path and (DOCS / path).exists()]
    for key in ("extra_javascript", "extra_css"):
        assert not [path for path in made.get(key, []) if re.match(r"(https?:)?//", str(path))]
