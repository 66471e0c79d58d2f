"""Completions on a terminal: what is printed is what was drawn."""
import io
import subprocess
import sys

import numpy as np
import pytest
import rich.console

from configs import tiny
from rlclip import assembly, config, inspection
from rlclip.types import Request, SamplingSpec

_SECONDS = 240


@pytest.fixture(scope='module')
def loaded():
  parts = assembly.build(config.resolve(tiny.get_config()))
  params = assembly.initial_params(parts)
  parts.sampler.load_weights(params, 3)
  return parts, params


def _requests(parts, count):
  prompt = parts.tokenizer.encode('7+5=')
  return [Request(i, prompt, SamplingSpec(12, (), 0.7)) for i in range(count)]


def _printed(call):
  out = io.StringIO()
  result = call(rich.console.Console(file=out, width=200))
  return out.getvalue(), result


@pytest.mark.parametrize('count', [1, 3])
def test_all_text_is_printed_once(loaded, count):
  parts, _ = loaded
  requests = _requests(parts, count)
  text, completions = _printed(lambda out: inspection.stream(
      parts.sampler, requests, parts.tokenizer, out))
  expected = parts.sampler.generate(requests)
  for i, (got, wanted) in enumerate(zip(completions, expected, strict=True)):
    np.testing.assert_array_equal(got.tokens, wanted.tokens)
    assert got.version == 3
    whole = parts.tokenizer.decode(wanted.tokens)
    assert (whole if count == 1 else f'[{i}] {whole}') in text
  assert text.count('(length, 12 tokens)') == count


def test_numbers_are_those_of_the_distribution_drawn_from(loaded):
  parts, params = loaded
  requests = _requests(parts, 2)
  completions = parts.sampler.generate(requests)
  rows = inspection.tokens(parts, params, requests, completions)
  vocab = parts.model.config.vocab_size
  for row, completion in zip(rows, completions, strict=True):
    np.testing.assert_array_equal([t.logp for t in row], completion.logps)
    # Random weights: the softmax is all but uniform.
    np.testing.assert_allclose(
        [t.entropy for t in row], np.log(vocab), rtol=0, atol=0.1)
  text, _ = _printed(lambda out: inspection.show(
      parts, params, requests, completions, out))
  for token in rows[0]:
    assert f'{token.logp:9.4f} {token.entropy:9.4f}' in text


def test_the_command_asks_for_a_prompt(tmp_path):
  run = lambda *flags: subprocess.run(
      [sys.executable, '-m', 'experiments.sample', '--config=configs/tiny.py',
       *flags], capture_output=True, text=True, timeout=_SECONDS)
  without = run()
  assert without.returncode == 1
  assert 'No prompt. Give --prompt, --file or --task.' in without.stderr
  file = tmp_path / 'prompts.txt'
  file.write_text('1+2=\n\n3+4=\n', encoding='utf-8')
  done = run(f'--file={file}', '--task=arithmetic', '--max_tokens=4',
             '--temperature=0')
  assert done.returncode == 0, done.stderr
  assert done.stdout.count('tokens)') == 3
