r"""Compares our logits with those of transformers and torch, live.

python -m tests.models.parity --smollm2=.cache/smollm2 [--gguf=FILE]

Needs the extra `torch`, and for --gguf also accelerate. For each family,
freshly drawn, and for SmolLM2: ours against transformers' from the same
folder, and transformers' from our export of it, which must be equal; ours of
the GGUF file against transformers' own reading of it. All float32.

A difference may be 1e-4; exits with 1 where one is larger. Ours are computed
at matmul precision 'highest' (see linear.matmul): SmolLM2's logits reach
38 and its residual stream 4,400, so that transformers' own float32 is 1e-4
from its float64, which stands beside each difference, as ours does.
"""
import os
import tempfile
from typing import Iterable, Iterator, NamedTuple

from absl import app, flags
import jax
import jax.numpy as jnp
import numpy as np
import transformers

from rlclip.models import gguf, huggingface, transformer
from tests.models.golden import make

_SMOLLM2 = flags.DEFINE_string(
    'smollm2', '.cache/smollm2', "Its converted folder; '' leaves it out.")
_GGUF = flags.DEFINE_string('gguf', None, 'The GGUF file, compared as well.')
_SEED = flags.DEFINE_integer('seed', 17, 'Of the drawn checkpoints.')

TOLERANCE = 1e-4
_SIZES = dict(vocab_size=320, num_hidden_layers=3, intermediate_size=96)
_TEXT = ('Natalia sold clips to 48 of her friends in April, and then she sold '
         'half as many clips in May. How many clips did Natalia sell '
         'altogether in April and May?')


class Finding(NamedTuple):
  what: str
  distance: float  # largest |difference| of two logits
  limit: float | None  # None: for information


def forward(config, params, tokens) -> np.ndarray:
  """float32 logits [B, T, V] of one full pass."""
  model = transformer.make(config)
  positions = jnp.broadcast_to(jnp.arange(tokens.shape[1]), tokens.shape)
  run = jax.jit(lambda p: model.unembed(p, model.apply(
      p, tokens, positions)[0]))
  with jax.default_matmul_precision('highest'):
    return np.asarray(run(params))


def compare(name, folder, tokens) -> Iterator[Finding]:
  """The differences of one folder: loading, exporting."""
  config, params = huggingface.load(folder)
  theirs = make.logits(folder, tokens)
  exact = make.logits(folder, tokens, dtype='float64')
  rounding = _distance(theirs, exact)
  ours = forward(config, params, tokens)
  yield Finding(f'{name}: ours - transformers', _distance(ours, theirs),
                TOLERANCE)
  yield Finding(f'{name}: ours - transformers in float64',
                _distance(ours, exact), None)
  yield Finding(f'{name}: transformers - the same in float64', rounding, None)
  with tempfile.TemporaryDirectory() as scratch:
    exported = os.path.join(scratch, 'exported')
    huggingface.save(exported, config, params, dtype='float32',
                     max_shard_bytes=100_000_000)
    again = make.logits(exported, tokens)
  yield Finding(f'{name}: transformers, exported - original',
                _distance(again, theirs), 0.0)


def compare_gguf(path, tokens) -> Iterator[Finding]:
  """Our reading of a GGUF file against transformers'."""
  config, params = gguf.load(path)
  folder, file = os.path.split(path)
  theirs = make.logits(folder, tokens, gguf_file=file)
  with tempfile.TemporaryDirectory() as scratch:
    exported = os.path.join(scratch, 'exported')
    huggingface.save(exported, config, params, dtype='float32')
    exact = make.logits(exported, tokens, dtype='float64')
  ours = forward(config, params, tokens)
  yield Finding('GGUF: ours - transformers', _distance(ours, theirs),
                TOLERANCE)
  yield Finding('GGUF: transformers - the same in float64',
                _distance(theirs, exact), None)


def main(_):
  transformers.utils.logging.disable_progress_bar()
  passed = report(drawn_families())
  if _SMOLLM2.value:
    tokenizer = transformers.AutoTokenizer.from_pretrained(
        huggingface.fetch(_SMOLLM2.value))
    chat = tokenizer.apply_chat_template(
        [{'role': 'user', 'content': _TEXT}], tokenize=False)
    for name, text in (('SmolLM2, text', _TEXT), ('SmolLM2, chat', chat)):
      tokens = np.asarray([tokenizer.encode(text)])
      passed &= report(compare(name, _SMOLLM2.value, tokens))
    if _GGUF.value:
      passed &= report(compare_gguf(_GGUF.value, tokens))
  if not passed:
    raise SystemExit(1)


def drawn_families() -> Iterator[Finding]:
  with tempfile.TemporaryDirectory() as scratch:
    for i, (name, values) in enumerate(make.FAMILIES.items()):
      folder = os.path.join(scratch, name)
      # Saved in transformers 5's spelling where golden/ has the old, and back.
      make.draw(values | _SIZES, folder, _SEED.value + i,
                name not in make.NEW_SPELLING)
      tokens = np.random.default_rng(_SEED.value + i).integers(
          _SIZES['vocab_size'], size=(2, make.LENGTH))
      yield from compare(name, folder, tokens)


def report(findings: Iterable[Finding]) -> bool:
  """Prints each difference; whether all are within their limits."""
  passed = True
  for what, distance, limit in findings:
    fits = limit is None or distance <= limit  # a nan does not
    verdict = ('' if limit is None else
               f'{"ok" if fits else "DIFFERS"} (limit {limit:.2e})')
    print(f'{what:52} {distance:9.2e}  {verdict}', flush=True)
    passed &= fits
  return passed


def _distance(ours, theirs) -> float:
  return float(np.max(np.abs(ours - theirs)))


if __name__ == '__main__':
  app.run(main)
