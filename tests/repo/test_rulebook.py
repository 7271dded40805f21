"""What the code cites stands in docs/: rules ("H1") in hazards.md, sections of the format ("spec 7.3") in format.md."""

import ast
import re
from collections.abc import Iterator, Mapping
from functools import cache

import pytest

from tests.repo.trees import ROOT, Broken, Source, sources, texts, told

HAZARDS, FORMAT = "docs/hazards.md", "docs/format.md"
NUMBER = r"\d+(?:\.\d+)?"
# Split, so that this file cites nothing.
CITED_RULE = re.compile(r"\bH" + r"(\d{1,2})\b(?:\.(\d+)| \((\d+)\))?")
CITED_SECTION = re.compile(rf"\bspec\s+(?:sections?\s+)?({NUMBER}(?:(?:,\s+|\s+and\s+|\s+to\s+|-){NUMBER})*)")
INNER_SECTION = re.compile(rf"\(({NUMBER}(?:, {NUMBER})*)\)|\bsection ({NUMBER})")
HEADING = re.compile(rf"^#+ (?:H(?P<rule>\d+): |(?P<section>{NUMBER})\.? )", re.MULTILINE)
NAMED = re.compile(r"`([\w/.]+\.(?:py|md))((?:::\w+)*)`")
PARTS = ("- **In the code:**", "- **Guarded by:**")


@cache
def page(path: str) -> dict[str, str]:
    """Number of a rule or section -> its text, of one page."""
    text = dict(texts())[path]
    found = list(HEADING.finditer(text))
    ends = [match.start() for match in found[1:]] + [len(text)]
    numbers = [match["rule"] or match["section"] for match in found]
    assert len(set(numbers)) == len(numbers), f"{path}: a number stands twice"
    return {number: text[match.start() : end] for number, match, end in zip(numbers, found, ends, strict=True)}


def cited_rules(text: str) -> Iterator[tuple[int, str, str]]:
    """(where, rule, step or "") of each citation."""
    for match in CITED_RULE.finditer(text):
        yield match.start(), match[1], match[2] or match[3] or ""


def cited_sections(text: str) -> Iterator[tuple[int, str]]:
    plain = re.sub(r"\n\s*#", lambda found: "\n".ljust(len(found[0])), text)  # a comment may go on in the next line
    for match in CITED_SECTION.finditer(plain):
        for number in re.findall(NUMBER, match[1]):
            yield match.start(), number


def check(path: str, text: str, rules: Mapping[str, str], sections: Mapping[str, str]) -> list[Broken]:
    """Citations that lead nowhere."""

    def broken(at: int, what: str, instead: str) -> Broken:
        return Broken(path, text.count("\n", 0, at) + 1, what, instead)

    found = []
    for at, rule, step in cited_rules(text):
        if rule not in rules:
            found.append(broken(at, f"cites the rule H{rule}", f"write it into {HAZARDS}, or cite another"))
        elif step and f"({step})" not in rules[rule]:
            found.append(broken(at, f"cites step {step} of H{rule}", f"number the steps in {HAZARDS}"))
    for at, section in cited_sections(text):
        if section not in sections:
            found.append(broken(at, f"cites section {section}", f"write it into {FORMAT}, or cite another"))
    return found


@cache
def names_of(path: str) -> frozenset[str]:
    """`TestClass::test_name` and `test_name` of a file, from its text."""
    source = next((source for source in sources() if str(source.path) == path), None)
    return frozenset() if source is None else frozenset(_names(source.tree.body, ""))


def _names(body: list[ast.stmt], before: str) -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield from _names(node.body, f"{before}{node.name}::")
        elif isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            yield before + node.name


def test_every_citation_leads_to_a_heading():
    rules, sections = page(HAZARDS), page(FORMAT)
    broken = [each for path, text in texts() for each in check(path, text, rules, sections)]
    assert not broken, told(broken)


def test_sections_of_the_format_refer_to_each_other_rightly():
    sections = page(FORMAT)
    named = {
        number
        for text in sections.values()
        for match in INNER_SECTION.finditer(text)
        for number in re.findall(NUMBER, match[0])
    }
    assert len(named) > 20
    assert sorted(named - sections.keys()) == []


def test_rules_are_numbered_without_a_gap():
    assert list(page(HAZARDS)) == [str(number) for number in range(1, len(page(HAZARDS)) + 1)]


def test_every_rule_is_cited_by_the_code():
    code = {str(source.path) for source in sources() if not source.is_test}
    cited = {rule for path, text in texts() if path in code for _, rule, _ in cited_rules(text)}
    assert sorted(page(HAZARDS).keys() - cited, key=int) == []


@pytest.mark.parametrize("rule", page(HAZARDS))
def test_a_rule_names_where_the_code_keeps_to_it_and_a_test_that_exists(rule):
    in_the_code, guarded = (page(HAZARDS)[rule].partition(part)[2].partition("\n- ")[0] for part in PARTS)
    modules, guards = NAMED.findall(in_the_code), NAMED.findall(guarded)
    assert modules
    assert guards
    code = {str(source.path) for source in sources() if not source.is_test}
    assert [path for path, test in modules if path not in code or test] == []
    assert [path + test for path, test in guards if test.removeprefix("::") not in names_of(path)] == []


@pytest.mark.parametrize("path", [HAZARDS, FORMAT])
def test_files_that_a_page_names_exist(path):
    named = {name for name, _ in NAMED.findall(dict(texts())[path]) if "/" in name}
    assert named
    assert sorted(name for name in named if not (ROOT / name).is_file()) == []


H = "H"  # as above: what is planted here is not cited
SPEC = "spec"


class TestTheCheckItself:
    RULES, SECTIONS = {"1": "", "16": "order: (1) first; (2) then"}, {"2": "", "2.1": "", "7.3": "", "10.2": ""}

    @pytest.mark.parametrize(
        ("line", "what"),
        [
            (f"zeroed ({H}1)", ""),
            (f"zeroed ({H}2)", f"cites the rule {H}2"),
            (f"in the order of {H}16.2, and {H}16 (1)", ""),
            (f"in the order of {H}16.3", f"cites step 3 of {H}16"),
            (f"in the order of {H}16 (4)", f"cites step 4 of {H}16"),
            (f"SHA256 and {H}100 and {H}TTP1", ""),
            (f"({SPEC} 2.1, 7.3; hazards {H}1)", ""),
            (f"({SPEC} 2.1, 7.4)", "cites section 7.4"),
            (f"({SPEC} section 2) and {SPEC} 10.2-10.3", "cites section 10.3"),
            (f"({SPEC} 2.1,\n    # 9.9)", "cites section 9.9"),
            (f"{SPEC} = find(1.5)", ""),
        ],
    )
    def test_a_citation_that_leads_nowhere_is_found(self, line, what):
        broken = told(check("x.py", f"first\n{line}\n", self.RULES, self.SECTIONS))
        assert broken.startswith("x.py:2:") and what in broken if what else broken == "", broken

    def test_tests_are_collected_with_their_classes(self):
        source = Source.of("tests/x.py", "class TestA:\n    def test_b(self): ...\ndef test_c(): ...\ndef d(): ...\n")
        assert list(_names(source.tree.body, "")) == ["TestA::test_b", "test_c"]
