"""What the linters do not see: sizes, first lines, names, errors, comments."""
import ast
import pathlib

import pytest

_ROOT = pathlib.Path(__file__).parents[1]
_FILE_LINES, _FUNCTION_LINES, _MAIN_LINES = 400, 60, 80
_VAGUE = {'utils', 'util', 'helpers', 'helper', 'common', 'misc'}
# Assertions are what tests are made of; elsewhere errors say what to do.
_FOLDERS = ('rlclip', 'experiments', 'configs', 'tests')

# (file, function): where code that is not ours may raise anything, and what it
# raised goes on as text. Nothing else is done inside the try.
_CALLS_FOREIGN_CODE = {
    ('rlclip/rewards/worker.py', '_contained'),  # reward functions
    ('rlclip/rewards/sandbox/program.py', '_answer'),  # untrusted programs
}


def _files(*folders):
  return [path for folder in folders or _FOLDERS
          for path in sorted((_ROOT / folder).rglob('*.py'))]


def _tree(path):
  return ast.parse(path.read_text(encoding='utf-8'))


def _length(path):
  return len(path.read_text(encoding='utf-8').splitlines())


def _name(path, node=None):
  where = path.relative_to(_ROOT)
  return f'{where}:{node.lineno}' if node else str(where)


def test_a_file_is_one_idea_of_at_most_400_lines():
  long = {_name(f): _length(f) for f in _files() if _length(f) > _FILE_LINES}
  assert not long


def test_a_main_has_at_most_80_lines():
  long = {_name(f): _length(f) for f in _files('experiments')
          if _length(f) > _MAIN_LINES}
  assert not long


def _code_lines(function):
  first, *_ = function.body
  lines = function.end_lineno - function.lineno + 1
  if ast.get_docstring(function) is not None:
    lines -= first.end_lineno - first.lineno + 1
  return lines


def test_a_function_has_at_most_60_lines():
  # Its docstring apart, which may explain as much as it needs to. A config
  # is a list of keys, as long as there are keys.
  long = {}
  for path in _files('rlclip', 'experiments', 'tests'):
    for node in ast.walk(_tree(path)):
      if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        lines = _code_lines(node)
        if lines > _FUNCTION_LINES:
          long[f'{_name(path, node)} {node.name}'] = lines
  assert not long


def test_the_first_line_says_what_a_file_is_for():
  silent = []
  for path in _files():
    tree = _tree(path)
    if tree.body and (
        ast.get_docstring(tree) is None or tree.body[0].lineno != 1):
      silent.append(_name(path))
  assert not silent


def test_no_file_has_a_vague_name():
  assert not [_name(path) for path in _files() if path.stem in _VAGUE]


def test_no_bare_assert_outside_tests():
  found = [_name(path, node) for path in _files(*_FOLDERS[:-1])
           for node in ast.walk(_tree(path)) if isinstance(node, ast.Assert)]
  assert not found


def _swallows_all(handler):
  kinds = ast.walk(handler.type) if handler.type else [
      ast.Name('BaseException')]
  return any(isinstance(kind, ast.Name)
             and kind.id in ('Exception', 'BaseException') for kind in kinds
             ) and not any(isinstance(node, ast.Raise)
                           for node in ast.walk(handler))


def _functions_that_swallow_all():
  return {
      (_name(path), function.name) for path in _files()
      for function in ast.walk(_tree(path))
      if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef))
      for node in ast.walk(function)
      if isinstance(node, ast.ExceptHandler) and _swallows_all(node)}


def test_handlers_swallow_every_error_where_foreign_code_is_called_only():
  found = [_name(path, node) for path in _files()
           for node in ast.walk(_tree(path))
           if isinstance(node, ast.ExceptHandler) and _swallows_all(node)]
  assert _functions_that_swallow_all() == _CALLS_FOREIGN_CODE
  assert len(found) == len(_CALLS_FOREIGN_CODE)  # one each, none elsewhere


def test_every_config_key_has_a_comment():
  path = _ROOT / 'configs' / 'default.py'
  lines = path.read_text(encoding='utf-8').splitlines()
  keys = [node for node in ast.walk(_tree(path))
          if isinstance(node, ast.Assign)
          and any(isinstance(t, ast.Attribute) for t in node.targets)
          and not ast.unparse(node.value).endswith('ConfigDict()')]
  assert len(keys) > 30  # else this looks in the wrong place
  bare = [ast.unparse(node) for node in keys
          if not any('#' in line
                     for line in lines[node.lineno - 1:node.end_lineno])]
  assert not bare


@pytest.mark.parametrize('source, expected', [
    ('except Exception: pass', True), ('except: pass', True),
    ('except (OSError, Exception): x = 1', True),
    ('except Exception as e: raise ValueError() from e', False),
    ('except OSError: pass', False)])
def test_the_handler_rule_itself(source, expected):
  (handler,) = ast.parse(f'try:\n  pass\n{source}').body[0].handlers
  assert _swallows_all(handler) == expected
