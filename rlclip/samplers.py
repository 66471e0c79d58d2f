"""Who draws a run's completions: the engine here, or servers."""
import os

import jax
import jax.numpy as jnp

from rlclip import config as config_lib
from rlclip import distributed, partitioning
from rlclip.data import tokenizer as tokenizer_lib
from rlclip.models import config as model_config
from rlclip.models import huggingface, transformer
from rlclip.sampler import engine, fleet, hosts, remote
from rlclip.types import Sampler


def make(experiment: config_lib.Experiment,
         architecture: model_config.ModelConfig,
         tokenizer: tokenizer_lib.Tokenizer,
         mesh: partitioning.Partitioner) -> Sampler:
  """The sampler that `config.sampler.kind` names, without weights.

  Raises:
    ValueError: for servers that do not fit the model, or several processes.
  """
  return _KINDS[experiment.sampler.kind](
      experiment, architecture, tokenizer, mesh)


def _local(experiment, architecture, tokenizer, mesh) -> Sampler:
  """The engine; with several processes one in each, on its own devices."""
  e, count = experiment, jax.process_count()
  own_mesh = partitioning.within_process(mesh) if count > 1 else mesh
  own = engine.Engine(
      architecture, seed=e.seed, num_slots=-(-e.num_slots // count),
      max_prompt=e.rollout.prompt_length,
      max_tokens=e.rollout.completion_length,
      steps_per_round=e.rollout.steps_per_round,
      dtype=jnp.dtype(e.model.dtype), constrain=own_mesh.constrain,
      decode=tokenizer.decode)
  if count == 1:
    return own
  model = transformer.make(architecture)
  return hosts.Hosts(own, own_mesh.tree_shardings(
      model.axes, jax.eval_shape(model.init, jax.random.key(0))))


def _remote(experiment, architecture, tokenizer, mesh) -> Sampler:
  """Waits for the servers, and refuses those that do not fit."""
  del mesh
  e, s = experiment, experiment.sampler
  if distributed.several():
    raise ValueError(
        f'config.sampler.kind must be local in a run of '
        f'{jax.process_count()} processes, got {s.kind}: each would write the '
        f'weights of its own. Run one process, or set it to local.')
  if e.model.path:
    tokenizer_dir = huggingface.fetch(e.model.path)
  else:
    tokenizer_dir = os.path.join(s.weights_folder, 'tokenizer')
    tokenizer.save(tokenizer_dir)
  sampler = remote.Remote(
      architecture,
      remote.Served(s.urls, s.kind, s.model, s.weights_folder, tokenizer_dir,
                    s.dtype),
      seed=e.seed, max_prompt=e.rollout.prompt_length,
      max_tokens=e.rollout.completion_length,
      settings=fleet.Settings(
          timeout_s=s.timeout, reload_timeout_s=s.reload_timeout,
          retries=s.retries, patience_s=s.patience, in_flight=s.in_flight))
  sampler.connect()
  return sampler


# By config.sampler.kind.
_KINDS = {'local': _local, 'vllm': _remote, 'sglang': _remote}
