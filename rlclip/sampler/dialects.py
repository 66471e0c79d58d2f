"""What inference servers of a kind are asked, and how they answer.

A dialect is a row of REGISTRY: pure functions between our records and a
server's JSON. Nothing here opens a connection.

  vllm    POST /v1/completions with token ids both ways. Weights: the worker's
          `reload_weights` with the new folder, then an empty prefix cache and
          a label that `/weight_info` tells. Needs VLLM_SERVER_DEV_MODE=1.
  sglang  POST /generate with token ids both ways. Weights: the server's
          `/update_weights_from_disk` with the new folder and a label, which
          `/model_info` tells.
"""
import dataclasses
import json
from typing import Any, Callable, Mapping, NamedTuple, Sequence

from rlclip import registry
from rlclip.types import SamplingSpec

REGISTRY = registry.Registry('engine kind')

MODELS = '/v1/models'  # every kind of server lists what it serves here


class BadAnswer(RuntimeError):
  """A server answered, and not with what it was asked for; asked again."""


class Call(NamedTuple):
  """One HTTP request."""
  method: str
  path: str
  body: Mapping[str, Any] | None = None


class Question(NamedTuple):
  """One completion, asked of a server.

  Attributes:
    prompt: token ids.
    spec: how to draw.
    seed: of the draw, 0 to 2^63 - 1.
    top: likeliest tokens whose log-probs are told beside the drawn one's; not
      more than the vocabulary has, as that ends vLLM 0.32.
  """
  prompt: Sequence[int]
  spec: SamplingSpec
  seed: int
  top: int = 0


class Answer(NamedTuple):
  """What a server drew.

  Attributes:
    tokens: ids, the stop token in.
    logps: of each, nats.
    top: by position, token id -> log-prob of the likeliest.
    model: served name, where the answer tells it.
    label: of the weights, where the answer tells it.
  """
  tokens: list[int]
  logps: list[float]
  top: list[dict[int, float]]
  model: str | None = None
  label: str | None = None


@dataclasses.dataclass(frozen=True)
class Dialect:
  """How servers of one kind are spoken to.

  Attributes:
    ask: (served model, Question) -> Call.
    read: parsed JSON -> Answer; BadAnswer where it is none.
    reload: (folder, label) -> the calls after which the server has the weights
      of that folder and tells the label.
    label: the call whose JSON has `weight_version`.
    start: how a server must be started.
    reloads_tied: whether a reload reaches an output head that is tied to the
      embedding. In vLLM 0.32 on a CPU it does not: the head is a packed copy
      of the weights that the server started with.
  """
  ask: Callable[[str, Question], Call]
  read: Callable[[Any], Answer]
  reload: Callable[[str, str], tuple[Call, ...]]
  label: Call
  start: str
  reloads_tied: bool


def get(name: str) -> Dialect:
  """Looks up a kind of server; ValueError names those there are."""
  return REGISTRY[name]


def served(models: Any) -> dict[str, Mapping[str, Any]]:
  """The answer to MODELS -> served name -> what is told of it.

  Raises:
    BadAnswer: where it is no list of models.
  """
  try:
    return {entry['id']: entry for entry in models['data']}
  except (KeyError, TypeError) as error:
    raise bad_answer('a list of models', models) from error


def label_of(answer: Any) -> str | None:
  """The answer to a dialect's `label` -> the label; None where it has none.

  Raises:
    BadAnswer: where it is no JSON object.
  """
  if not isinstance(answer, dict):
    raise bad_answer('an object with weight_version', answer)
  return answer.get('weight_version')


def bad_answer(expected: str, got: Any) -> BadAnswer:
  """An error that shows the answer's beginning."""
  text = got if isinstance(got, str) else json.dumps(got, default=str)
  return BadAnswer(f'Expected {expected}, got {text[:200]!r}.')


def _ask_vllm(model: str, question: Question) -> Call:
  # All that the model's generation_config.json could set is said here, else
  # the server takes its default for it, and draws from another distribution.
  spec = question.spec
  return Call('POST', '/v1/completions', {
      'model': model, 'prompt': [int(token) for token in question.prompt],
      'max_tokens': spec.max_tokens, 'temperature': spec.temperature,
      'top_p': spec.top_p, 'top_k': spec.top_k, 'min_p': 0.0,
      'repetition_penalty': 1.0, 'presence_penalty': 0.0,
      'frequency_penalty': 0.0, 'seed': question.seed,
      'stop_token_ids': list(spec.stop_ids), 'ignore_eos': True,
      'logprobs': question.top, 'return_token_ids': True,
      'return_tokens_as_token_ids': True, 'add_special_tokens': False})


def _read_vllm(answer: Any) -> Answer:
  try:
    choice, = answer['choices']
    logprobs = choice['logprobs']
    top = [{int(name.removeprefix('token_id:')): float(logp)
            for name, logp in likeliest.items()}
           for likeliest in logprobs['top_logprobs']]
    return Answer(
        [int(token) for token in choice['token_ids']],
        [float(logp) for logp in logprobs['token_logprobs']], top,
        model=answer['model'])
  except (KeyError, TypeError, ValueError, AttributeError) as error:
    raise bad_answer('one choice with token ids and log-probs', answer
                     ) from error


def _reload_vllm(folder: str, label: str) -> tuple[Call, ...]:
  return (
      Call('POST', '/collective_rpc', {
          'method': 'reload_weights', 'kwargs': {'weights_path': folder}}),
      Call('POST', '/reset_prefix_cache', {}),
      Call('POST', '/update_weight_version', {'new_version': label}))


REGISTRY.register('vllm')(Dialect(
    _ask_vllm, _read_vllm, _reload_vllm, Call('GET', '/weight_info'),
    'VLLM_SERVER_DEV_MODE=1 vllm serve FOLDER --served-model-name NAME '
    '--logprobs-mode processed_logprobs', reloads_tied=False))


def _ask_sglang(model: str, question: Question) -> Call:
  del model  # a server has one
  spec = question.spec
  return Call('POST', '/generate', {
      'input_ids': [int(token) for token in question.prompt],
      'sampling_params': {
          'max_new_tokens': spec.max_tokens, 'temperature': spec.temperature,
          'top_p': spec.top_p, 'top_k': spec.top_k or -1, 'min_p': 0.0,
          'repetition_penalty': 1.0, 'presence_penalty': 0.0,
          'frequency_penalty': 0.0, 'sampling_seed': question.seed,
          # With ignore_eos it would heed no stop id at all.
          'stop_token_ids': list(spec.stop_ids),
          'ignore_eos': not spec.stop_ids,
          'no_stop_trim': True, 'skip_special_tokens': False},
      'return_logprob': True, 'top_logprobs_num': question.top})


def _read_sglang(answer: Any) -> Answer:
  try:
    told = answer['meta_info']
    top = [{int(token): float(logp) for logp, token, *_ in likeliest or ()}
           for likeliest in told.get('output_top_logprobs') or ()]
    return Answer(
        [int(token) for token in answer['output_ids']],
        [float(logp) for logp, *_ in told['output_token_logprobs']], top,
        label=told.get('weight_version'))
  except (KeyError, TypeError, ValueError, AttributeError) as error:
    raise bad_answer('output_ids, and log-probs in meta_info', answer
                     ) from error


def _reload_sglang(folder: str, label: str) -> tuple[Call, ...]:
  return (Call('POST', '/update_weights_from_disk', {
      'model_path': folder, 'weight_version': label, 'flush_cache': True}),)


REGISTRY.register('sglang')(Dialect(
    _ask_sglang, _read_sglang, _reload_sglang, Call('GET', '/model_info'),
    'python -m sglang.launch_server --model-path FOLDER --served-model-name '
    'NAME --enable-deterministic-inference', reloads_tied=True))
