"""Files of the repository as text and as syntax trees, and what a broken rule looks like."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[2]
PROCESSES = ("master", "slave", "allocate", "flush", "reput", "serve", "ha", "remoting", "metrics")
FOLDERS = (*PROCESSES, "cli", "loadtest", "pipeline")  # at the top, and linked to from `towline`
EXAMPLES = "examples"  # programs of users, which tests run: they are in no package
PACKAGES = ("towline", "peers", "pyspark_towline")
IN_REPOSITORY_ONLY = ("peers",)  # packages that no wheel contains
TEXTS = {".py", ".md", ".toml", ".conf", ".txt", ".sh", ".golden", ""}
NOT_OURS = {".git", ".venv", "build", "dist", "site", "__pycache__"}


@dataclass(frozen=True, order=True)
class Broken:
    """A rule that a line breaks, and what to write there."""

    path: str
    line: int
    what: str
    instead: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.what}; {self.instead}"


@dataclass(frozen=True)
class Source:
    """A Python file: `path` as in the repository, parsed once."""

    path: PurePosixPath
    tree: ast.Module

    @classmethod
    def of(cls, path: str, text: str) -> "Source":
        return cls(PurePosixPath(path), ast.parse(text))

    @property
    def is_test(self) -> bool:
        """Of the tests, or a program of examples/, which they run: neither is packaged, and it has no layer."""
        return self.path.parts[0] in ("tests", EXAMPLES)

    @property
    def package(self) -> str:
        """The package that the file's relative imports start from."""
        parts = self.path.parts[:-1]
        return ".".join(("towline", *parts) if parts and parts[0] in FOLDERS else parts)

    @property
    def module(self) -> str:
        if self.path.name == "__init__.py":
            return self.package
        return ".".join(filter(None, (self.package, self.path.stem)))

    def broken(self, node: ast.AST, what: str, instead: str) -> Broken:
        return Broken(str(self.path), getattr(node, "lineno", 1), what, instead)


@cache
def sources() -> tuple[Source, ...]:
    """Every Python file of the packages and of the tests."""
    return tuple(Source.of(path, text) for path, text in texts() if path.endswith(".py"))


@cache
def texts() -> tuple[tuple[str, str], ...]:
    """(path, content) of every text file of the repository, requirements.lock aside."""
    found = sorted(path for path in _files(ROOT) if path.suffix in TEXTS)
    return tuple((path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")) for path in found)


def _files(directory: Path) -> Iterator[Path]:
    for path in directory.iterdir():
        hidden = path.name.startswith(".") and path.name != ".ci"
        if path.name in NOT_OURS or hidden or path.suffix == ".egg-info":
            continue
        if path.is_dir():
            if not path.is_symlink():
                yield from _files(path)
        else:
            yield path


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def told(broken: list[Broken]) -> str:
    """The message of a failing test: one line each, and nothing when all is well."""
    return "\n".join(str(each) for each in sorted(broken))
