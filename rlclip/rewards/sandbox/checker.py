"""The trusted process: runs tests, with stand-ins for the program's functions.

A stand-in sends its arguments to the program's process and gets plain values
back. So the tests compare values of Python's own types, made here, with an
interpreter that the program has never touched.
"""
import ast
import builtins
import importlib
import sys
from typing import Any, Callable

import codec

_FORWARDED = ('len', 'bool', 'str', 'getitem', 'setitem', 'contains')


class ProgramError(Exception):
  """An exception of a class of the program's own."""


def check(request: dict, reader: int, writer: int) -> str:
  """'passed', or 'broken' where the tests do not even compile.

  Args:
    request: 'programs', 'preamble' (trusted source that the tests may use),
      'tests' (source) and 'entry_point' (a name or None).
    reader: of answers.
    writer: of calls.

  Raises:
    Exception: of any kind: a test has failed.
  """
  namespace: dict[str, Any] = {'__name__': 'tests'}
  try:
    tree = ast.parse(request['tests'])
    preamble = compile(request['preamble'], '<preamble>', 'exec')
    tests = compile(tree, '<tests>', 'exec')
  except SyntaxError:
    return 'broken'
  codec.send(writer, [request['programs'], request['entry_point']])
  if codec.receive(reader) != 'loaded':
    raise ValueError('The program\'s process did not load it.')
  exec(preamble, namespace)
  if 'random' in request['tests']:
    importlib.import_module('random').seed(0)  # the same verdict every time
  remote = _Remote(reader, writer)
  modules, names = _wanted(tree, request['entry_point'], namespace)
  for name in modules:
    namespace[name] = importlib.import_module(name)
  for name in names:
    namespace[name] = remote.by_name(name)
  exec(tests, namespace)
  return 'passed'


class _Remote:
  """The program's process."""

  def __init__(self, reader: int, writer: int):
    self._reader, self._writer = reader, writer
    self._objects: dict[int, Any] = {}

  def by_name(self, name: str) -> Any:
    codec.send(self._writer, ['name', name, {}])
    return self._result([])

  def do(self, action: str, args: tuple, kwargs: dict) -> Any:
    encode = lambda value: codec.encode(value, _number)
    codec.send(self._writer, [
        action, [encode(arg) for arg in args],
        {key: encode(value) for key, value in kwargs.items()}])
    return self._result(args)

  def _result(self, args) -> Any:
    kind, first, second = codec.receive(self._reader)
    if kind == 'error':
      raise _error(first, second)
    for place, node in second:
      _become(args[place], codec.decode(node, self._object))
    return codec.decode(first, self._object)

  def _object(self, number: int) -> Any:
    # The same object of the program has the same stand-in.
    if number not in self._objects:
      self._objects[number] = StandIn(self, number)
    return self._objects[number]


class StandIn:
  """A function or an object of the program.

  It equals itself alone: whether an object of the program's own classes equals
  something is for its `__eq__` to say, which is not to be believed.
  """

  def __init__(self, remote: _Remote, number: int):
    object.__setattr__(self, '_remote', remote)
    object.__setattr__(self, '_number', number)

  def __call__(self, *args, **kwargs):
    return self._remote.do('call', (self, *args), kwargs)

  def __getattr__(self, name: str):
    if name.startswith('__'):
      raise AttributeError(name)
    return self._remote.do('getattr', (self, name), {})

  def __setattr__(self, name: str, value):
    self._remote.do('setattr', (self, name, value), {})

  def __iter__(self):
    return iter(self._remote.do('list', (self,), {}))


def _forward(action: str) -> Callable:
  return lambda self, *args: self._remote.do(action, (self, *args), {})


for _action in _FORWARDED:
  setattr(StandIn, f'__{_action}__', _forward(_action))


def _number(value: Any) -> int:
  if not isinstance(value, StandIn):
    raise TypeError(
        f'Expected an argument that can be sent to a program, got '
        f'{type(value).__name__}.')
  return value._number


def _error(names: list[str], message: str) -> Exception:
  for name in names:
    kind = getattr(builtins, name, None)
    if (isinstance(kind, type) and issubclass(kind, Exception)
        and not issubclass(kind, UnicodeError)):  # these take more than a text
      return ProgramError(message) if kind is Exception else kind(message)
  return ProgramError(message)


def _become(old: Any, new: Any) -> None:
  """Does to an argument what the program did to its copy."""
  if type(old) is not type(new):
    raise TypeError('A program cannot change the type of an argument.')
  if isinstance(old, (list, bytearray)):
    old[:] = new
  elif isinstance(old, (set, dict)):
    old.clear()
    old.update(new)
  elif hasattr(old, 'extend'):  # a deque
    old.clear()
    old.extend(new)


def _wanted(tree: ast.Module, entry_point: str | None, namespace: dict
            ) -> tuple[set[str], set[str]]:
  """Modules that the tests use without import, and names of the program.

  Where the tests call nothing unknown, the function on the left of their
  assertions is the program's though a builtin has the name: `sum(1, 2) == 3`.
  """
  nodes = list(ast.walk(tree))
  names = [node for node in nodes if isinstance(node, ast.Name)]
  bound = {n.id for n in names if not isinstance(n.ctx, ast.Load)}
  bound |= {n.name for n in nodes if isinstance(
      n, (ast.FunctionDef, ast.ClassDef))}
  bound |= {n.arg for n in nodes if isinstance(n, ast.arg)}
  bound |= {(n.asname or n.name).partition('.')[0] for n in nodes
            if isinstance(n, ast.alias)}
  called = {n.func.id for n in nodes if isinstance(n, ast.Call)
            and isinstance(n.func, ast.Name)}
  unknown = ({n.id for n in names} - bound - set(namespace)
             - set(vars(builtins)))
  modules = {n for n in unknown - called if n in sys.stdlib_module_names}
  wanted = unknown - modules
  if entry_point:
    wanted.add(entry_point)
  elif not wanted:
    wanted |= set(filter(None, map(_left_function, nodes)))
  return modules, wanted


def _left_function(node: ast.AST) -> str | None:
  if not isinstance(node, ast.Assert):
    return None
  test = node.test.left if isinstance(node.test, ast.Compare) else node.test
  is_call = isinstance(test, ast.Call) and isinstance(test.func, ast.Name)
  return test.func.id if is_call else None
