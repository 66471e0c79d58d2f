"""Real-looking files give known points, and say what they lose."""
import json
import pathlib

import pytest

from rlclip import translate
from rlclip.losses import dials, LossSpec, mismatch, Penalty, reduce
from rlclip.trust_region import bounds, gates

_CONFIGS = pathlib.Path(__file__).parent / 'configs'
_ACTOR = 'actor_rollout_ref.actor.'
_LOSS = f'{_ACTOR}policy_loss.'
_RS = 'algorithm.rollout_correction.rollout_'
_IS = 'algo.advantage.is_correction_'

SPECS = {
    'trl.yaml': LossSpec(
        bounds=bounds.Fixed(1.0, 4.0), gate=gates.ClippedWeight(),
        anchor='old', penalty=Penalty('reverse_kl', 1e-3),
        mismatch=mismatch.TruncatedImportance(2.0),
        reduction=reduce.TokenMean(),
        advantage='reinforce_pp_baseline(epsilon=0.0001)'),
    'verl.yaml': LossSpec(
        bounds=bounds.Fixed(0.2, 0.28), gate=gates.DualClip(3.0), anchor='old',
        penalty=Penalty('reverse_kl', 1e-3, estimator='unweighted_k3'),
        mismatch=mismatch.IcePop(0.5, 5.0), reduction=reduce.TokenMean(),
        advantage='group_mean'),
    'tunix.yaml': LossSpec(
        anchor='old', reduction=reduce.TokenMean(),
        penalty=Penalty('reverse_kl', 0.08, estimator='unweighted_k1')),
    'openrlhf.json': LossSpec(
        bounds=bounds.Fixed(0.2, 0.27), gate=gates.DualClip(3.0), anchor='old',
        penalty=Penalty('reverse_kl', 1e-4, estimator='score',
                        placement='inside'),
        mismatch=mismatch.IcePop(0.5, 5.0), reduction=reduce.TokenMean(),
        advantage='group_mean', entropy_bonus=0.001),
}
# group_size, num_prompts, num_epochs, num_mini_batches, num_micro_batches.
SIZES = {'trl.yaml': [8, 16, 2, 4, 4], 'verl.yaml': [16, 512, 1, 16, 32],
         'tunix.yaml': [4, 16, 1, 2, 4], 'openrlhf.json': [8, 128, 1, 4, None]}
# Options that a warning must be about.
WARNED = {
    'trl.yaml': {'epsilon_high', 'scale_rewards', 'top_entropy_quantile',
                 'top_p', 'steps_per_generation'},
    'verl.yaml': {f'{_ACTOR}clip_ratio', f'{_ACTOR}kl_loss_type',
                  f'{_ACTOR}loss_agg_mode', 'algorithm.filter_groups.enable'},
    'tunix.yaml': {'num_iterations', 'loss_agg_mode', 'kl_loss_mode',
                   'rollout_config.top_k'},
    'openrlhf.json': {'algo.kl.init_coef', 'algo.advantage.estimator',
                      'algo.dynamic_filtering_range', 'train.async_enable'},
}
UNKNOWN = {
    'trl.yaml': ('epsilon_hi', 'epsilon_high'),
    'verl.yaml': ('clip_ratio_hgih', f'{_ACTOR}clip_ratio_high'),
    'tunix.yaml': ('beat', 'beta'),
    'openrlhf.json': ('n_sample_per_prompt', 'n_samples_per_prompt')}
# One option, and what it puts on an axis.
AXES = [
    ('trl', {'loss_type': 'vespo', 'vespo_lambda_neg': 1}, 'gate',
     gates.GammaWeight(2, 3, 3, 1)),
    ('trl', {'loss_type': 'vespo'}, 'level', 'sequence_product_token'),
    ('trl', {'off_policy_mask_threshold': .3}, 'gate',
     gates.OffPolicyMask(.3)),
    ('trl', {'delta': 4}, 'gate', gates.TwoSided(4)),
    ('trl', {'entropy_coef': .01}, 'entropy_bonus', .01),
    ('trl', {'use_vllm': True}, 'mismatch',
     mismatch.IcePop(0, 3, 'sequence_product')),
    ('verl', {}, 'gate', gates.DualClip(3)),
    ('verl', {f'{_LOSS}loss_mode': 'clip_cov', f'{_LOSS}clip_cov_lb': 2},
     'gate', gates.CovarianceClip(2e-4, 2, 5)),
    ('verl', {f'{_LOSS}loss_mode': 'kl_cov'}, 'gate',
     gates.CovariancePenalty(2e-4, .1)),
    ('verl', {f'{_LOSS}loss_mode': 'dppo_kl'}, 'bounds', bounds.BinaryKL(.2)),
    ('verl', {f'{_RS}rs': 'seq_max_k3', f'{_RS}rs_threshold': .1}, 'mismatch',
     mismatch.SequenceMask(.1, 'k3', 'max')),
    # 1024 rows / 10,000, over 4 updates a batch.
    ('verl', {'algorithm.use_kl_in_reward': True,
              'algorithm.kl_ctrl.type': 'adaptive'}, 'beta_dial',
     dials.TargetKL(.1, .0256)),
    ('tunix', {}, 'penalty',
     Penalty('reverse_kl', .04, estimator='unweighted_k1')),
    ('tunix', {'dynamic_sampling': True}, 'bounds', bounds.Fixed(.2, .28)),
    ('tunix', {'algo_variant': 'drgrpo'}, 'reduction', reduce.SequenceSum(64)),
    ('openrlhf', {'entropy_loss_coef': .02}, 'entropy_bonus', .02),
    ('openrlhf', {'kl_target': .05, 'kl_horizon': 1000}, 'beta_dial',
     dials.TargetKL(.05, .128)),
    ('openrlhf', {f'{_IS}level': 'seq'}, 'mismatch',
     mismatch.IcePop(.5, 5, 'sequence')),
]


def _translated(name):
  return translate.translate(name.partition('.')[0], str(_CONFIGS / name))


def _from(tmp_path, library, config):
  path = tmp_path / 'config.json'
  path.write_text(json.dumps(config), encoding='utf-8')
  return translate.translate(library, str(path))


@pytest.mark.parametrize('name', SPECS)
def test_a_file_gives_its_point(name):
  assert _translated(name).point.spec == SPECS[name]


@pytest.mark.parametrize('name', SIZES)
def test_a_file_gives_its_sizes(name):
  found = {s.name: s.value for s in _translated(name).point.settings}
  keys = ('rollout.group_size', 'rollout.num_prompts', 'learner.num_epochs',
          'learner.num_mini_batches', 'learner.num_micro_batches')
  assert [found.get(key) for key in keys] == SIZES[name]


@pytest.mark.parametrize('name', WARNED)
def test_what_is_lost_is_said(name):
  assert not WARNED[name] - {n.option for n in _translated(name).point.notes}


@pytest.mark.parametrize('name', UNKNOWN)
def test_only_the_misspelt_key_is_unknown_and_has_a_hint(name):
  assert _translated(name).reading.unknown == (UNKNOWN[name],)


@pytest.mark.parametrize('library', translate.LIBRARIES)
def test_every_note_and_setting_is_about_an_option(library, tmp_path):
  done = _from(tmp_path, library, {'temperature': 1.0})
  options = {*translate.LIBRARIES[library].module.OPTIONS, ''}
  assert {*(n.option for n in done.point.notes),
          *(s.option for s in done.point.settings)} <= options


@pytest.mark.parametrize('library, config, axis, value', AXES)
def test_an_option_or_default_sets_its_axis(
    library, config, axis, value, tmp_path):
  spec = _from(tmp_path, library, config).point.spec
  assert getattr(spec, axis) == value


def test_a_value_that_yaml_reads_otherwise_is_read_as_it_is_meant(tmp_path):
  path = tmp_path / 'c.yaml'
  path.write_text('algo:\n  advantage:\n    is_correction_level: off\n'
                  '  kl: {use_loss: "true", init_coef: 1e-3}\n')
  spec = translate.translate('openrlhf', str(path)).point.spec
  assert spec.mismatch is None
  assert spec.penalty.beta == 1e-3


def test_a_reference_to_another_key_is_followed(tmp_path):
  done = _from(tmp_path, 'verl', {
      'data.max_response_length': 4096,
      f'{_ACTOR}loss_agg_mode': 'seq-mean-token-sum-norm',
      f'{_ACTOR}loss_scale_factor': '${data.max_response_length}',
      'trainer.nnodes': '${oc.select:nnodes,2}',
      'actor_rollout_ref.rollout.n': '${oc.env:N}'})
  assert done.point.spec.reduction == reduce.SequenceSum(4096.0)
  assert done.reading.values['trainer.nnodes'] == 2
  assert done.reading.unresolved == ('actor_rollout_ref.rollout.n',)


def test_trl_cap_under_one_is_said_to_be_no_width(tmp_path):
  done = _from(tmp_path, 'trl', {'loss_type': 'cispo'})
  assert done.point.spec.bounds == bounds.Fixed(1.0, 0.0)
  (note,) = [n for n in done.point.notes if n.option == 'epsilon_high']
  assert 'the cap itself, 0.2' in note.text


@pytest.mark.parametrize('library, config, message', [
    ('tlr', {}, "Did you mean 'trl'"),
    ('trl', {'beta': 'big'}, 'beta should be a float'),
    ('trl', {'epsilon': None}, 'epsilon should be a float, got None'),
    ('verl', {f'{_RS}rs': 'seq_mean_k3'}, 'needs .*rollout_rs_threshold'),
    ('trl', {'loss_type': 'ppo'}, 'loss_type must be one of grpo'),
    ('trl', {'epsilon': -0.1}, 'must be 0 or more'),
    ('verl', {f'{_LOSS}loss_mode': 'ppo'}, 'loss_mode must be one of vanilla'),
    ('tunix', {'algo_variant': 'ppo'}, 'needs a value function'),
    ('openrlhf', {'actor.policy_loss_type': 'cispo'}, 'ppo or gspo')])
def test_errors_say_what_came_and_what_was_expected(
    library, config, message, tmp_path):
  with pytest.raises(ValueError, match=message):
    _from(tmp_path, library, config)


def test_a_file_that_is_none(tmp_path):
  with pytest.raises(ValueError, match='found none at'):
    translate.main_text('trl', str(tmp_path / 'absent.yaml'))
  (tmp_path / 'list.yaml').write_text('- beta\n- epsilon\n')
  with pytest.raises(ValueError, match='holds a list'):
    translate.main_text('trl', str(tmp_path / 'list.yaml'))


def test_text_has_point_settings_warnings_and_keys():
  text = translate.main_text('verl', str(_CONFIGS / 'verl.yaml'))
  for part in (
      'read as verl 0.9.1', 'gate          DualClip(cap=3.0',
      'rollout.group_size = 16  (actor_rollout_ref.rollout.n = 16)',
      'learner.num_epochs = 1  (actor_rollout_ref.actor.ppo_epochs = 1, '
      'default)', 'clip_ratio = 0.25: is read only where',
      'actor_rollout_ref.actor.optim (3 keys)',
      'clip_ratio_hgih  Did you mean actor_rollout_ref.actor.clip_ratio_high?'):
    assert part in text


def test_text_names_the_algorithm_that_is_most_like_it(tmp_path):
  (tmp_path / 'c.json').write_text(json.dumps({
      'loss_type': 'grpo', 'importance_sampling_level': 'sequence',
      'epsilon': 3e-4, 'epsilon_high': 4e-4}))
  text = translate.main_text('trl', str(tmp_path / 'c.json'))
  assert 'The algorithm gspo differs from it in anchor, advantage.' in text
