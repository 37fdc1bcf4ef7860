"""Turn a trusted reference into one program that needs torch alone: its function, and all that it calls, in order."""

import ast
import importlib.util
import textwrap
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from kb.errors import ValidatorError

_OURS = "kb.validators."


class _Bare(ast.NodeTransformer):
    """Takes annotations off: they would pull in types that no value needs."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        self.generic_visit(node)
        node.returns = None
        for one in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs, node.args.vararg, node.args.kwarg):
            if one is not None:
                one.annotation = None
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.stmt:
        self.generic_visit(node)
        if node.value is None:
            return ast.Pass()
        return ast.copy_location(ast.Assign([node.target], node.value), node)


class _Module:
    """Top-level names of one module, and where those that it imports come from."""

    def __init__(self, name: str) -> None:
        found = importlib.util.find_spec(name)
        if found is None or found.origin is None:
            raise ValidatorError(f"the module {name} has no source")
        tree = ast.parse(Path(found.origin).read_text(encoding="utf-8"))
        self.nodes: dict[str, ast.stmt] = {}
        self.imported: dict[str, tuple[str, str]] = {}
        self.plain: dict[str, str] = {}
        for node in tree.body:
            self._take(node)

    def _take(self, node: ast.stmt) -> None:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            self.nodes[node.name] = node
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                for one in ast.walk(target):
                    if isinstance(one, ast.Name):
                        self.nodes[one.id] = node
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            for each in node.names:
                self.imported[each.asname or each.name] = (node.module, each.name)
        elif isinstance(node, ast.Import):
            for each in node.names:
                self.plain[each.asname or each.name.split(".")[0]] = ast.unparse(ast.Import([each]))


@lru_cache(maxsize=256)
def _module(name: str) -> _Module:
    return _Module(name)


class _Gathering:
    """Statements of a program, those that are needed first."""

    def __init__(self) -> None:
        self.imports: dict[str, str] = {}
        self.parts: dict[str, str] = {}
        self._homes: dict[str, str] = {}
        self._seen: set[tuple[str, int]] = set()

    def take(self, home: str, name: str) -> None:
        """Take one top-level name of a module, and whatever it uses.

        Raises:
            ValidatorError: Two modules give one name to two things.
        """
        module = _module(home)
        if name in module.plain:
            self._claim(name, "import")
            self.imports[name] = module.plain[name]
        elif name in module.imported:
            source, original = module.imported[name]
            self._imported(source, original, name)
        elif name in module.nodes:
            self._node(home, module.nodes[name])

    def _imported(self, source: str, original: str, name: str) -> None:
        if not source.startswith(_OURS):
            self._claim(name, source)
            self.imports[name] = f"from {source} import {original}" + (f" as {name}" if name != original else "")
            return
        self.take(source, original)
        if name != original:
            self._claim(name, f"{source}.{original}")
            self.parts[name] = f"{name} = {original}"

    def _node(self, home: str, node: ast.stmt) -> None:
        key = (home, node.lineno)
        if key in self._seen:
            return
        self._seen.add(key)
        bare = _Bare().visit(ast.parse(ast.unparse(node)).body[0])
        for used in _used(bare):
            whole = _whole_module(_module(home), used)
            if whole is not None:
                self._namespace(whole, used, _attributes(bare, used))
            else:
                self.take(home, used)
        for name in _named(bare):
            self._claim(name, home)
        self.parts[f"{home}:{node.lineno}"] = ast.unparse(ast.fix_missing_locations(bare))

    def _namespace(self, module: str, name: str, wanted: list[str]) -> None:
        """Take what is used of a whole module; its names stay inside a function, apart from ours."""
        inner = _Gathering()
        for one in wanted:
            inner.take(module, one)
        self._claim(name, f"{module}: {', '.join(wanted)}")
        self.imports.update(inner.imports)
        self.imports["types"] = "import types"
        body = textwrap.indent("\n\n".join(inner.parts.values()), "    ")
        given = ", ".join(f"{one}={one}" for one in wanted)
        self.parts[name] = f"def _{name}():\n{body}\n    return types.SimpleNamespace({given})\n\n\n{name} = _{name}()"

    def _claim(self, name: str, home: str) -> None:
        if self._homes.setdefault(name, home) != home:
            raise ValidatorError(f"{name} is one thing in {self._homes[name]} and another in {home}")


def _whole_module(module: _Module, name: str) -> str | None:
    """Return the module of ours that a name stands for, or None if it stands for anything else."""
    source, original = module.imported.get(name, ("", ""))
    full = f"{source}.{original}"
    return full if full.startswith(_OURS) and importlib.util.find_spec(source) and _is_module(full) else None


def _is_module(full: str) -> bool:
    try:
        return importlib.util.find_spec(full) is not None
    except ModuleNotFoundError:
        return False


def _attributes(node: ast.stmt, name: str) -> list[str]:
    return sorted(
        {
            one.attr
            for one in ast.walk(node)
            if isinstance(one, ast.Attribute) and isinstance(one.value, ast.Name) and one.value.id == name
        }
    )


def _used(node: ast.stmt) -> Iterator[str]:
    seen = {one.id for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load)}
    yield from sorted(seen)


def _named(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Assign):
        for target in node.targets:
            yield from (one.id for one in ast.walk(target) if isinstance(one, ast.Name))


def program_of(module: str, name: str, *, needs: tuple[str, ...] = ()) -> str:
    """Return a program that defines a function of one of our modules, and needs none of them.

    Args:
        module: Full name of the module.
        name: The function.
        needs: Lines of import that whoever adds to the program wants, too.

    Returns:
        Python: imports, then constants and functions, each after what it uses; annotations are left out.

    Raises:
        ValidatorError: The source is not there, or two modules give one name to two things.
    """
    gathering = _Gathering()
    gathering.take(module, name)
    imports = sorted({*gathering.imports.values(), *needs})
    return "\n".join(imports) + "\n\n\n" + "\n\n\n".join(gathering.parts.values()) + "\n"
