"""Weights for other processes: a folder a version, and how to tell they came.
"""
import dataclasses
import functools
import os
import re
import shutil
from typing import Callable, Mapping, NamedTuple, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from rlclip.models import config as config_lib
from rlclip.models import huggingface, layout, transformer
from rlclip.types import Params, SamplingSpec

START = 'start'  # the folder that servers are started with

# Not 1, at which log-probs before and after temperature are the same.
TEMPERATURE = 0.7
# Most log-probs a position that vLLM tells unless it is started otherwise.
_TOP = 20
_PROMPTS = (1, 7, 40, 300)  # lengths; a long one is in the prefix cache
_VERSION = re.compile(r'\d{8}')

# By the dtype that a server computes in, nats: the largest difference of
# log-probs at TEMPERATURE that rounding explains, and the smallest that must
# show in an answer. SmolLM2-135M in bfloat16 is 0.47 nats from float32 in vLLM,
# and 0.40 in our own transformer.
TOLERANCE = {'float32': 1e-3, 'bfloat16': 1.0}
_VISIBLE = {'float32': 1e-4, 'bfloat16': 0.05}


def publish(root: str, name: str, config: config_lib.ModelConfig,
            params: Params, *, dtype: str, tokenizer_dir: str) -> str:
  """Writes a Hugging Face folder that appears at `root`/`name` when whole.

  The folder belongs to one run. One of that name, of an earlier process, makes
  room for it; a server that reads it has its files open.

  Args:
    root: the folder of folders.
    name: of this one.
    config: the architecture.
    params: float32, layers stacked.
    dtype: to store.
    tokenizer_dir: a folder whose tokenizer files are copied.

  Returns:
    The absolute path.
  """
  os.makedirs(root, exist_ok=True)
  path = os.path.abspath(os.path.join(root, name))
  if os.path.exists(path):
    old = os.path.join(root, f'.{name}.old')
    shutil.rmtree(old, ignore_errors=True)
    os.rename(path, old)
    shutil.rmtree(old)
  huggingface.save(
      path, config, params, dtype=dtype, tokenizer_dir=tokenizer_dir)
  return path


def untied(config: config_lib.ModelConfig, params: Params
           ) -> tuple[config_lib.ModelConfig, Params]:
  """The same function with an output head of its own."""
  if not config.tie_embeddings:
    return config, params
  return (dataclasses.replace(config, tie_embeddings=False),
          {**params, 'head': params['embedding'].T})


def start_weights(config: config_lib.ModelConfig, probe: 'Probe'
                  ) -> tuple[Params, np.ndarray]:
  """Weights of no use but to start a server with, and what they must give.

  Layers add nothing, so that the next token depends on the last one alone and
  its log-probs are computed here, without a device: a model of any size is
  written, and reloading it is tried, before there are weights.

  Returns:
    Parameters in numpy, and float32[prompts, V] as `scorer` gives.
  """
  rng = np.random.default_rng(0)
  is_norm = lambda path: path[-1].key == 'scale'
  params = jax.tree_util.tree_map_with_path(
      lambda path, leaf: np.full(leaf.shape, is_norm(path), np.float32),
      layout.abstract_params(config))
  size = config.hidden_size
  # Of this size a token's own logit is about 4.
  table = rng.standard_normal((config.vocab_size, size), np.float32) * 4 / size
  params['embedding'] = table
  if not config.tie_embeddings:
    params['head'] = table.T
  states = table[[prompt[-1] for prompt in probe.prompts]]
  mean_square = np.mean(states**2, -1, keepdims=True)
  states = states / np.sqrt(mean_square + config.norm_epsilon)
  logits = states @ table.T / probe.spec.temperature
  return params, logits - np.log(np.exp(logits).sum(-1, keepdims=True))


def name_of(version: int) -> str:
  """The folder's name for a version of the weights."""
  return f'{version:08}'


def keep(root: str, names: Sequence[str]) -> None:
  """Removes the folders of all other versions."""
  for name in os.listdir(root):
    if _VERSION.fullmatch(name) and name not in names:
      shutil.rmtree(os.path.join(root, name), ignore_errors=True)


class Probe(NamedTuple):
  """Prompts whose next-token distribution tells weights apart.

  Attributes:
    prompts: token ids, of several lengths.
    spec: how their next token is to be drawn.
    top: likeliest tokens to be told.
  """
  prompts: tuple[tuple[int, ...], ...]
  spec: SamplingSpec
  top: int


def make_probe(vocab_size: int, max_prompt: int) -> Probe:
  """Random prompts, the same in every run."""
  lengths = sorted({min(length, max_prompt) for length in _PROMPTS})
  rng = np.random.default_rng(0)
  return Probe(
      tuple(tuple(rng.integers(0, vocab_size, length).tolist())
            for length in lengths),
      SamplingSpec(1, (), TEMPERATURE), min(_TOP, vocab_size))


@functools.cache
def scorer(config: config_lib.ModelConfig, probe: Probe
           ) -> Callable[[Params], np.ndarray]:
  """params -> float32[prompts, V], log-probs of the next token.

  Computed in float32 whatever the servers compute in; compiled once a model.
  """
  model = transformer.make(config)
  longest = max(map(len, probe.prompts))
  tokens = np.zeros((len(probe.prompts), longest), np.int32)
  for row, prompt in zip(tokens, probe.prompts, strict=True):
    row[:len(prompt)] = prompt
  last = np.array([len(prompt) - 1 for prompt in probe.prompts])

  @jax.jit
  def score(params):
    positions = jnp.broadcast_to(jnp.arange(longest), tokens.shape)
    hidden, _, _ = model.apply(params, tokens, positions)
    logits = model.unembed(params, hidden[np.arange(len(last)), last])
    return jax.nn.log_softmax(logits / probe.spec.temperature)

  return lambda params: np.asarray(score(params))


def difference(expected: np.ndarray, told: Sequence[Mapping[int, float]]
               ) -> float:
  """The largest difference between what was expected and what is told, nats.

  Args:
    expected: float32[prompts, V].
    told: by prompt, token id -> log-prob.
  """
  return max(abs(row[token] - logp)
             for row, likeliest in zip(expected, told, strict=True)
             for token, logp in likeliest.items())


def is_stale(dtype: str, expected: np.ndarray,
             told: Sequence[Mapping[int, float]],
             expected_before: np.ndarray | None,
             told_before: Sequence[Mapping[int, float]] | None) -> bool:
  """Whether new weights should show in the answers, and they are the old ones.

  Small updates are within TOLERANCE of one another. But an answer that is the
  same to the last bit, where it should have moved, is one of the old weights.

  Args:
    dtype: that the server computes in.
    expected: float32[prompts, V] of the new weights.
    told: by prompt, token id -> log-prob.
    expected_before: of the weights that the server had before, if any.
    told_before: by the same server, with those.
  """
  if expected_before is None:
    return False
  moved = difference(expected, [
      {token: expected_before[i, token] for token in likeliest}
      for i, likeliest in enumerate(told)])
  return moved > _VISIBLE[dtype] and list(told) == list(told_before)
