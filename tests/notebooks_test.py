"""Every notebook runs from a clean kernel."""
import pathlib

import pytest

nbclient = pytest.importorskip(
    'nbclient', reason='notebooks need the extra `notebook`')
import nbformat  # noqa: E402

_ROOT = pathlib.Path(__file__).parents[1]
_PATHS = sorted((_ROOT / 'notebooks').glob('*.ipynb'))


@pytest.mark.parametrize('path', _PATHS, ids=lambda path: path.stem)
def test_a_notebook_runs_from_a_clean_kernel(path):
  notebook = nbformat.read(path, as_version=4)
  client = nbclient.NotebookClient(
      notebook, timeout=120, kernel_name='python3',
      resources={'metadata': {'path': str(_ROOT)}})
  client.execute()  # raises at the first cell that fails
  code = [cell for cell in notebook.cells if cell.cell_type == 'code']
  assert code and all(cell.execution_count for cell in code)


@pytest.mark.parametrize('path', _PATHS, ids=lambda path: path.stem)
def test_a_notebook_asks_one_question_and_answers_it(path):
  cells = nbformat.read(path, as_version=4).cells
  assert cells[0].source.splitlines()[0].endswith('?')
  assert cells[-1].cell_type == 'markdown'
  code = [cell for cell in cells if cell.cell_type == 'code']
  assert len(code) <= 12 and all(cell.outputs for cell in code)
