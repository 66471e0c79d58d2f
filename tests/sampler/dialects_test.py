"""Engine kinds: what is asked of them and read from them.

vLLM's answers are recorded ones, in remote_test.py. SGLang's are written by
hand after its documentation: no server of that kind has been asked.
"""
import pytest

from rlclip.sampler import dialects
from rlclip.sampler.dialects import BadAnswer, Question
from rlclip.types import SamplingSpec

SPEC = SamplingSpec(12, (3, 7), temperature=0.6, top_p=0.9, top_k=5)
SGLANG = {
    'text': 'ab', 'output_ids': [4, 7], 'meta_info': {
        'id': 'x', 'finish_reason': {'type': 'stop', 'matched': 7},
        'prompt_tokens': 2, 'completion_tokens': 2, 'weight_version': '3-ab',
        'output_token_logprobs': [[-0.5, 4, None], [-1.5, 7, None]],
        'output_top_logprobs': [[[-0.5, 4, None], [-2.0, 9, None]], None]}}


@pytest.mark.parametrize('kind, path', [
    ('vllm', '/v1/completions'), ('sglang', '/generate')])
def test_every_kind_is_told_all_of_the_spec(kind, path):
  call = dialects.get(kind).ask('policy', Question((5, 6), SPEC, 99, top=2))
  assert (call.method, call.path) == ('POST', path)
  told = {**call.body, **call.body.get('sampling_params', {})}
  of = lambda *names: next(told[name] for name in names if name in told)
  assert of('prompt', 'input_ids') == [5, 6]
  assert of('seed', 'sampling_seed') == 99
  assert of('max_tokens', 'max_new_tokens') == 12
  assert of('logprobs', 'top_logprobs_num') == 2
  assert (told['temperature'], told['top_p'], told['top_k']) == (0.6, 0.9, 5)
  assert told['stop_token_ids'] == [3, 7]
  # What a model's generation_config.json could bring in else.
  assert (told['repetition_penalty'], told['min_p']) == (1.0, 0.0)
  assert (told['presence_penalty'], told['frequency_penalty']) == (0.0, 0.0)


def test_sglang_without_stop_ids_ignores_its_own():
  ask = lambda stops: dialects.get('sglang').ask('policy', Question(
      (5,), SamplingSpec(4, stops), 0)).body['sampling_params']['ignore_eos']
  assert (ask(()), ask((3,))) == (True, False)


def test_sglang_reloads_by_folder_and_label():
  call, = dialects.get('sglang').reload('/weights/00000003', '3-ab')
  assert call.path == '/update_weights_from_disk'
  assert call.body['model_path'] == '/weights/00000003'
  assert call.body['weight_version'] == '3-ab'
  assert call.body['flush_cache']


def test_an_answer_of_sglang_is_read():
  answer = dialects.get('sglang').read(SGLANG)
  assert answer.tokens == [4, 7] and answer.logps == [-0.5, -1.5]
  assert answer.top == [{4: -0.5, 9: -2.0}, {}]
  assert answer.label == '3-ab'


@pytest.mark.parametrize('kind', dialects.REGISTRY.names())
@pytest.mark.parametrize('answer', [
    None, [], 'text', {}, {'choices': [{}]}, {'choices': [{}, {}]},
    {'output_ids': [4]}, {**SGLANG, 'meta_info': None},
    {**SGLANG, 'output_ids': ['four']}])
def test_what_is_no_answer_is_named_and_shown(kind, answer):
  with pytest.raises(BadAnswer, match='Expected .*, got '):
    dialects.get(kind).read(answer)


def test_an_unknown_kind_names_those_there_are():
  with pytest.raises(ValueError, match="Did you mean 'vllm'.* sglang, vllm"):
    dialects.get('vlm')
