"""A MkDocs hook: the page errors.md lists every error that names a remedy, with an anchor for each message.

It is made from the calls in the code that create errors, so the repository has no copy. Values in a message
stand as ‹name› or …; an anchor is made of the other words, so it does not change with them.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import product
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
ERRORS = ROOT / "infra" / "errors.py"
PACKAGES = ("shardmill", "flows", "beam_jobs", "training", "infra")
# Other classes with a remedy -> the positions of message and remedy among their arguments; a description.
_OTHERS = {
    "Problem": (2, 3, "A problem that the platform shows and notifies of."),
    "WrongValue": (0, 1, "A value that a setting does not take; a `ConfigError` begins with the setting."),
}
_OF_THE_CASE = "The error names the remedy for its case."
_SOMETHING = "…"
_DEPTH = 4  # names and functions that are followed one after the other
_INTRODUCTION = """\
# Errors

Every error that names a remedy, by its type. Words in ‹ › and … stand for values: search for the other words
of your message. A command ends with the exit status of the type.
"""


@dataclass(frozen=True, slots=True)
class Template:
    """A message or a remedy as the code writes it, with ``…`` or ‹name› in place of values."""

    text: str

    @property
    def words(self) -> str:
        """The words of the code, joined by hyphens."""
        return "-".join(re.findall(r"[a-z0-9]+", re.sub("‹[^›]*›", " ", self.text).lower()))


@dataclass(slots=True)
class Message:
    """A message of errors of one type, with everything that the code names as its remedy."""

    kind: str
    text: str
    remedies: list[str] = field(default_factory=list)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the page."""
    files.append(File.generated(config, "errors.md", content=render()))
    return files


def render() -> str:
    """Return the whole page."""
    kinds = _kinds()
    by_kind: dict[str, dict[str, Message]] = {kind: {} for kind in kinds}
    for anchor, message in messages().items():
        by_kind[message.kind][anchor] = message
    parts = [_INTRODUCTION]
    for kind, found in by_kind.items():
        if found:
            parts.append(f"\n## {kind} {{#{kind.lower()}}}\n\n{kinds[kind]}\n")
            parts += [_entry(anchor, found[anchor]) for anchor in sorted(found)]
    return "".join(parts)


def _entry(anchor: str, message: Message) -> str:
    told = [remedy for remedy in message.remedies if Template(remedy).words] or [_OF_THE_CASE]
    linked = (re.sub(r"docs/([\w-]+\.md)", r"[docs/\1](\1)", _plain(remedy)) for remedy in told)
    remedies = "".join(f"- {remedy}\n" for remedy in linked)
    return f"\n#### {_plain(message.text)} {{#{anchor}}}\n\n{remedies}"


def _plain(text: str) -> str:
    """Return text that Markdown shows as it is, on one line."""
    return re.sub(r"[^\w\s.,;:()/=…‹›'?%-]|_", lambda found: f"&#{ord(found[0])};", " ".join(text.split()))


def messages() -> dict[str, Message]:
    """Return every message that names a remedy, by its anchor."""
    found: dict[str, Message] = {}
    for call in calls():
        for anchor, text, remedy in call.entries():
            message = found.setdefault(anchor, Message(call.kind, text))
            if remedy not in message.remedies:
                message.remedies.append(remedy)
    return dict(sorted(found.items()))


@dataclass(frozen=True, slots=True)
class Call:
    """A place of the code that creates an error with a remedy.

    Attributes:
        kind: the class.
        place: file and line.
        texts, remedies: what the message and the remedy may be.
    """

    kind: str
    place: str
    texts: tuple[Template, ...]
    remedies: tuple[Template, ...]

    @property
    def is_passed_on(self) -> bool:
        """Whether it has neither words nor a remedy of its own: it repeats those of another error."""
        return not any(one.words for one in (*self.texts, *self.remedies))

    def entries(self) -> Iterator[tuple[str, str, str]]:
        """Yield anchor, message and remedy. The words of the remedy name a message that has none."""
        for text, remedy in product(self.texts, self.remedies):
            if words := text.words or remedy.words:
                yield f"{self.kind.lower()}-{words}", text.text, remedy.text


@cache
def calls() -> tuple[Call, ...]:
    """Return the places of all packages."""
    kinds = _kinds()
    return tuple(call for path in _files() for call in _calls_of(path, kinds))


def _files() -> list[Path]:
    """Return the files of the packages; the links in shardmill/ lead to the same ones."""
    paths = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    return [path for path in paths if not any(part.is_symlink() for part in path.parents)]


def _kinds() -> dict[str, str]:
    """Return the classes of errors, with the text that introduces each: those of the tree, in its order."""
    tree = ast.parse(ERRORS.read_text(encoding="utf-8"))
    found: dict[str, str] = {}
    status: dict[str, int] = {}
    for node in (node for node in tree.body if isinstance(node, ast.ClassDef)):
        parent = ast.unparse(node.bases[0]) if node.bases else ""
        if node.name != "ShardmillError" and parent not in status:
            continue
        own = [
            line.value
            for line in node.body
            if isinstance(line, ast.Assign) and isinstance(line.value, ast.Constant)
        ]
        status[node.name] = own[0].value if own else status[parent]
        first = (ast.get_docstring(node) or "").partition("\n")[0]
        found[node.name] = f"{first} Exit status {status[node.name]}."
    return found | {name: text for name, (_, _, text) in _OTHERS.items()}


def _calls_of(path: Path, kinds: Mapping[str, str]) -> Iterator[Call]:
    module = _module(path)
    for function, node in module.calls:
        kind = _called(node)
        if kind not in kinds:
            continue
        at_text, at_remedy, _ = _OTHERS.get(kind, (0, 1, ""))
        given = {word.arg: word.value for word in node.keywords}
        text = node.args[at_text] if len(node.args) > at_text else given.get("message", given.get("text"))
        remedy = node.args[at_remedy] if len(node.args) > at_remedy else given.get("remedy")
        if text is None or remedy is None or any(isinstance(one, ast.Starred) for one in node.args):
            continue
        scope = _Scope(module, function)
        texts, remedies = scope.texts(text), [one for one in scope.texts(remedy) if one]
        if remedies:
            place = f"{path.relative_to(ROOT)}:{node.lineno}"
            yield Call(kind, place, tuple(map(Template, texts)), tuple(map(Template, remedies)))


def _called(node: ast.Call) -> str:
    return node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")


_Functions = tuple[ast.AST, ...]


def _nodes(tree: ast.Module) -> Iterator[tuple[_Functions, ast.AST]]:
    """Yield every node with the classes and functions around it, the innermost last."""
    todo: list[tuple[_Functions, ast.AST]] = [((), tree)]
    while todo:
        inside, node = todo.pop()
        yield inside, node
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            inside = (*inside, node)
        todo += [(inside, child) for child in ast.iter_child_nodes(node)]


@dataclass(frozen=True, slots=True, eq=False)
class _Module:
    """A file: its calls, its constants and functions by name, and the file of each imported name."""

    calls: Sequence[tuple[_Functions, ast.Call]]
    values: Mapping[str, ast.expr]
    functions: Mapping[str, ast.FunctionDef]
    imported: Mapping[str, Path]


@cache
def _module(path: Path) -> _Module:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    calls, values, functions, imported = [], {}, {}, {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            values[node.targets[0].id] = node.value
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            values[node.target.id] = node.value
        elif isinstance(node, ast.FunctionDef):
            functions[node.name] = node
    for inside, node in _nodes(tree):
        if isinstance(node, ast.Call):
            calls.append((inside, node))
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("shardmill."):
            place = ROOT / str(node.module).removeprefix("shardmill.").replace(".", "/")
            file = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
            imported.update({alias.asname or alias.name: file for alias in node.names if file.exists()})
    return _Module(calls, values, functions, imported)


@dataclass(frozen=True, slots=True)
class _Scope:
    """What names mean at a place: a module, and the classes and functions around the place."""

    module: _Module
    inside: _Functions
    depth: int = _DEPTH

    def texts(self, node: ast.expr) -> list[str]:
        """Return every text that an expression may be, with … or ‹name› in place of values."""
        match node:
            case ast.Constant(value=None):
                return [""]
            case ast.Constant(value=str() as text):
                return [text]
            case ast.JoinedStr(values=parts):
                return ["".join(self._part(part) for part in parts)]
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                return ["".join(pair) for pair in product(self.texts(left), self.texts(right))]
            case ast.IfExp(body=body, orelse=other):
                return self._all(body, other)
            case ast.BoolOp(op=ast.Or(), values=values):
                return self._all(*values)
            case ast.Name(id=name):
                return self._named(name)
            case ast.Attribute(value=ast.Name(id="self"), attr=name):
                return self._method(name)
            case ast.Call(func=ast.Attribute(value=ast.Name(id="self"), attr=name)):
                return self._method(name)
            case ast.Call(func=ast.Name(id=name)):
                return self._returned(name)
        return [_placeholder(node)]

    def _all(self, *nodes: ast.expr) -> list[str]:
        return list(dict.fromkeys(text for node in nodes for text in self.texts(node)))

    def _part(self, part: ast.expr) -> str:
        if not isinstance(part, ast.FormattedValue):
            return str(getattr(part, "value", _SOMETHING))
        if isinstance(part.value, ast.Name) and part.value.id.isupper():
            found = self._named(part.value.id)
            return found[0] if len(found) == 1 else _placeholder(part.value)
        return _placeholder(part.value)

    def _named(self, name: str) -> list[str]:
        """Return the texts of a local variable, or of a constant of this module or of another one."""
        if self.depth:
            deeper = _Scope(self.module, self.inside, self.depth - 1)
            assigned = [value for function in self.inside[-1:] for value in _assigned(function, name)]
            if assigned:
                return deeper._all(*assigned)
            if passed := self._passed(name):
                return passed
            if name in self.module.values:
                return deeper.texts(self.module.values[name])
            if name in self.module.imported:
                other = _module(self.module.imported[name])
                if name in other.values:
                    return _Scope(other, (), self.depth - 1).texts(other.values[name])
        return [_placeholder(ast.Name(name))]

    def _passed(self, name: str) -> list[str]:
        """Return the texts that callers pass for a parameter of the function, if no other has its name."""
        function = self.inside[-1] if self.inside else None
        if not isinstance(function, ast.FunctionDef) or _definitions()[function.name] != 1:
            return []
        names = [one.arg for one in function.args.args if one.arg not in ("self", "cls")]
        found: list[str] = []
        for scope, call in _uses().get(function.name, ()):
            given = {word.arg: word.value for word in call.keywords} | dict(
                zip(names, call.args, strict=False)
            )
            if name in given:
                found += _Scope(scope.module, scope.inside, self.depth - 1).texts(given[name])
        return list(dict.fromkeys(found))

    def _method(self, name: str) -> list[str]:
        of_class = next((node for node in reversed(self.inside) if isinstance(node, ast.ClassDef)), None)
        members = [] if of_class is None else of_class.body
        found = next(
            (node for node in members if isinstance(node, ast.FunctionDef) and node.name == name), None
        )
        return [_SOMETHING] if found is None else self._of_function(self.module, (of_class, found))

    def _returned(self, name: str) -> list[str]:
        """Return the texts that a function of this module or of another one returns."""
        if name in self.module.functions:
            return self._of_function(self.module, (self.module.functions[name],))
        if name in self.module.imported:
            other = _module(self.module.imported[name])
            if name in other.functions:
                return self._of_function(other, (other.functions[name],))
        return [_SOMETHING]

    def _of_function(self, module: _Module, inside: _Functions) -> list[str]:
        if not self.depth:
            return [_SOMETHING]
        returned = [
            node.value for node in ast.walk(inside[-1]) if isinstance(node, ast.Return) and node.value
        ]
        return _Scope(module, inside, self.depth - 1)._all(*returned) or [_SOMETHING]


@cache
def _definitions() -> Counter[str]:
    """Return how many functions of the packages have each name."""
    text = (path.read_text(encoding="utf-8") for path in _files())
    return Counter(name for one in text for name in re.findall(r"^ *def (\w+)", one, re.MULTILINE))


@cache
def _uses() -> Mapping[str, list[tuple[_Scope, ast.Call]]]:
    """Return every call, with its scope, by the name that is called."""
    found: dict[str, list[tuple[_Scope, ast.Call]]] = {}
    for module in map(_module, _files()):
        for inside, node in module.calls:
            found.setdefault(_called(node), []).append((_Scope(module, inside), node))
    return found


def _assigned(function: ast.AST, name: str) -> Iterator[ast.expr]:
    """Yield what a function assigns to a name."""
    for node in ast.walk(function):
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, ast.AnnAssign | ast.NamedExpr):
            targets = [node.target]
        else:
            continue
        if node.value is not None and any(isinstance(one, ast.Name) and one.id == name for one in targets):
            yield node.value


def _placeholder(node: ast.expr) -> str:
    """Return the name of a value in ‹›, or … if it has none."""
    name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
    return f"‹{name.strip('_').replace('_', ' ').lower()}›" if name.strip("_") else _SOMETHING
