"""Every notebook runs from a clean kernel and keeps to its form."""
import ast
import pathlib

import pytest

_REASON = 'notebooks need the extra `notebook`: pip install -e .[notebook]'
jupyter_client = pytest.importorskip('jupyter_client', reason=_REASON)
nbclient = pytest.importorskip('nbclient', reason=_REASON)
nbformat = pytest.importorskip('nbformat', reason=_REASON)
pytest.importorskip('ipykernel', reason=_REASON)

_ROOT = pathlib.Path(__file__).parents[1]
_PATHS = sorted((_ROOT / 'notebooks').glob('*.ipynb'))
_CODE_CELLS, _FUNCTION_LINES, _SECONDS = 12, 10, 60
_FOR_DISPLAY = {'numpy', 'matplotlib'}

every_notebook = pytest.mark.parametrize(
    'path', _PATHS, ids=lambda path: path.stem)


def _code(notebook):
  return [cell for cell in notebook.cells if cell.cell_type == 'code']


def _printed(notebook):
  return [''.join(output.text for output in cell.outputs
                  if output.output_type == 'stream')
          for cell in _code(notebook)]


def _execute(notebook):
  """Runs all cells in this Python, whatever kernels the user has installed."""
  specs = jupyter_client.kernelspec.KernelSpecManager(kernel_dirs=[])
  manager = jupyter_client.AsyncKernelManager(
      kernel_name='python3', kernel_spec_manager=specs)
  nbclient.NotebookClient(
      notebook, km=manager, timeout=_SECONDS, coalesce_streams=True,
      resources={'metadata': {'path': str(_ROOT)}}).execute()


def _imports(cell):
  for node in ast.walk(ast.parse(cell.source)):
    if isinstance(node, ast.Import):
      yield from (alias.name.split('.')[0] for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
      yield node.module.split('.')[0]


def test_there_is_a_notebook():
  assert _PATHS


@every_notebook
def test_a_notebook_runs_in_a_clean_kernel_and_prints_what_is_stored(path):
  notebook = nbformat.read(path, as_version=4)
  stored = _printed(notebook)
  for cell in _code(notebook):
    cell.outputs = []
  _execute(notebook)  # raises at the first cell that fails
  assert _printed(notebook) == stored


@every_notebook
def test_a_notebook_asks_one_question_and_answers_it_in_words(path):
  cells = nbformat.read(path, as_version=4).cells
  title = cells[0].source.splitlines()[0]
  assert title.startswith('# ') and title.endswith('?')
  assert cells[-1].cell_type == 'markdown'


@every_notebook
def test_a_notebook_is_short_and_imports_in_its_first_cell(path):
  first, *rest = _code(nbformat.read(path, as_version=4))
  assert set(_imports(first)) <= {'rlclip', *_FOR_DISPLAY}
  assert not [name for cell in rest for name in _imports(cell)]
  assert len(rest) < _CODE_CELLS
  assert not [
      node.name for cell in rest for node in ast.walk(ast.parse(cell.source))
      if isinstance(node, ast.FunctionDef)
      and node.end_lineno - node.lineno + 1 > _FUNCTION_LINES]
