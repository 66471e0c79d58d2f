"""The untrusted process: runs a program, and answers calls of its functions.

It knows neither the tests nor what they expect. Whatever the program does to
this process, all it can reach is the answers given from here.
"""
import ast
import builtins
import operator
import sys
import types

import codec

_ACTIONS = {
    'call': lambda function, *args, **kwargs: function(*args, **kwargs),
    'getattr': getattr, 'setattr': setattr, 'getitem': operator.getitem,
    'setitem': operator.setitem, 'len': len, 'list': list, 'bool': bool,
    'str': str, 'contains': operator.contains}


def run(source: str) -> None:
  """Runs a program as `python program.py` does."""
  _load(source, '__main__')


def serve(reader: int, writer: int) -> None:
  """Loads the program that is sent, then answers until the pipe closes."""
  module = _load(_choose(*codec.receive(reader)), 'program')
  kept: list = []
  numbers: dict[int, int] = {}

  def keep(value) -> int:
    if id(value) not in numbers:  # kept alive below, so the id stays its own
      numbers[id(value)] = len(kept)
      kept.append(value)
    return numbers[id(value)]

  codec.send(writer, 'loaded')
  while True:
    try:
      action, args, kwargs = codec.receive(reader)
    except EOFError:
      return
    if action == 'name':
      found = vars(module)
      codec.send(writer, (
          ['value', codec.encode(found[args], keep), []] if args in found
          else ['error', ['NameError'], f'The program has no {args!r}.']))
      continue
    args = [codec.decode(node, kept.__getitem__) for node in args]
    kwargs = {k: codec.decode(v, kept.__getitem__) for k, v in kwargs.items()}
    codec.send(writer, _answer(action, args, kwargs, keep))


def _answer(action: str, args: list, kwargs: dict, keep) -> list:
  """What a call returned and changed of its arguments, or what it raised.

  A program may raise anything, and its tests may expect it to: any Exception
  goes back as a name. SystemExit and the like end the process, as they would
  end a program that runs its own tests.
  """
  before = [codec.encode(arg, keep) for arg in args]
  try:
    value = codec.encode(_ACTIONS[action](*args, **kwargs), keep)
    after = [codec.encode(arg, keep) for arg in args]
  except Exception as error:
    names = [kind.__name__ for kind in type(error).__mro__]
    return ['error', names, str(error)[:2000]]
  changed = [
      [i, new] for i, (old, new) in enumerate(zip(before, after))
      if old != new]
  return ['value', value, changed]


def _choose(programs: list[list[str]], entry_point: str | None) -> str:
  """The first program whose second part defines the entry point."""
  for head, tail in programs:
    if entry_point is None or entry_point in _defined(tail):
      return head + tail
  return ''.join(programs[0])


def _defined(source: str) -> set[str]:
  """Names that a program binds at its top; none where it does not compile."""
  try:
    compile(source, '<program>', 'exec')
  except (SyntaxError, ValueError, RecursionError, MemoryError):
    return set()
  tree = ast.parse(source)
  names = {node.name for node in tree.body if isinstance(
      node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))}
  targets = [target for node in tree.body if isinstance(node, ast.Assign)
             for target in node.targets]
  return names | {t.id for t in targets if isinstance(t, ast.Name)}


def _load(source: str, name: str) -> types.ModuleType:
  # What `site` adds, which is not loaded here.
  builtins.exit = builtins.quit = sys.exit
  module = types.ModuleType(name)
  sys.modules[name] = module
  exec(compile(source, '<program>', 'exec'), vars(module))
  return module
