r"""Draws completions and shows them as they come.

  python -m experiments.sample --config=F --model=DIR --prompt='Why is 2 + 2 4?'
  python -m experiments.sample --config=F --workdir=D --task=arithmetic

Prompts come from --prompt, from --file (a prompt a line) or from the test
split of --task (--num_prompts of them). A chat template is applied where the
model has one, unless --raw. --inspect colors each token by its log-prob and
prints both its log-prob and the entropy of the distribution, in nats.
"""
import pathlib
import sys

from absl import app, flags, logging
from ml_collections import config_flags

_CONFIG = config_flags.DEFINE_config_file(
    'config', 'configs/default.py', 'Lengths and sampling settings.',
    lock_config=True)
_WORKDIR = flags.DEFINE_string('workdir', None, "A run's folder.")
_MODEL = flags.DEFINE_string('model', None, 'A Hugging Face folder or hub id.')
_STEP = flags.DEFINE_integer('step', None, 'Checkpoint; default the newest.')
_PROMPT = flags.DEFINE_multi_string('prompt', [], 'A prompt; may be repeated.')
_FILE = flags.DEFINE_string('file', None, 'Text file with a prompt a line.')
_TASK = flags.DEFINE_string('task', None, 'Task whose test split is asked.')
_NUM_PROMPTS = flags.DEFINE_integer('num_prompts', 1, 'Of --task.')
_NUM_SAMPLES = flags.DEFINE_integer(
    'num_samples', 1, 'Completions a prompt.', lower_bound=1)
_TEMPERATURE = flags.DEFINE_float('temperature', 1.0, '0 is greedy.')
_TOP_P = flags.DEFINE_float('top_p', 1.0, '1 keeps all tokens.')
_TOP_K = flags.DEFINE_integer('top_k', 0, '0 keeps all tokens.')
_MAX_TOKENS = flags.DEFINE_integer(
    'max_tokens', None, "Default: the config's completion length.")
_STOP = flags.DEFINE_multi_string('stop', [], 'A text that ends a completion.')
_RAW = flags.DEFINE_bool('raw', False, 'Prompts as they are, no template.')
_INSPECT = flags.DEFINE_bool('inspect', False, 'Log-probs and entropies.')


def main(argv):
  if len(argv) > 1:
    raise app.UsageError(f'Unknown arguments: {argv[1:]}.')
  if _WORKDIR.value and _MODEL.value:
    raise app.UsageError('Give --workdir or --model, not both.')
  logging.set_verbosity(logging.WARNING)  # orbax tells all it does
  from rlclip import assembly, config, inspection
  from rlclip.types import SamplingSpec
  raw = _CONFIG.value
  raw.warm_start.num_steps = 0
  # Whatever the run samples with: servers hold weights of their own.
  raw.sampler.kind, raw.sampler.urls, raw.sampler.weights_folder = (
      'local', (), '')
  if _MODEL.value:
    raw.model.path = _MODEL.value
  if _MAX_TOKENS.value:
    raw.rollout.completion_length = _MAX_TOKENS.value
  lines = (pathlib.Path(_FILE.value).read_text(encoding='utf-8').splitlines()
           if _FILE.value else [])
  spec = SamplingSpec(
      raw.rollout.completion_length, (), _TEMPERATURE.value, _TOP_P.value,
      _TOP_K.value, stop_strings=tuple(_STOP.value))
  try:
    parts = assembly.build(config.resolve(raw))
    requests = inspection.requests(
        parts, [*_PROMPT.value, *filter(str.strip, lines)], _TASK.value,
        spec, num_prompts=_NUM_PROMPTS.value, num_samples=_NUM_SAMPLES.value,
        raw=_RAW.value)
    step, params = (
        assembly.restored_params(parts, _WORKDIR.value, _STEP.value)
        if _WORKDIR.value else (0, assembly.initial_params(parts)))
    parts.sampler.load_weights(params, step)
    completions = inspection.stream(parts.sampler, requests, parts.tokenizer)
    if _INSPECT.value:
      inspection.show(parts, params, requests, completions)
  except (ValueError, OSError) as error:
    sys.exit(f'{type(error).__name__}: {error}')


if __name__ == '__main__':
  app.run(main)
