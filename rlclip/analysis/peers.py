"""What rules are called in other libraries, and where a name means another.

Read in the sources of TRL 1.16.0 (trl/trainer/grpo_trainer.py, grpo_config.py,
experimental/gmpo), verl 0.9.1 (verl/trainer/ppo/core_algos.py and
rollout_corr_helper.py; 0.6.1 and 0.7.0 for its mean over tokens), google-tunix
0.1.7 (tunix/rl/algo_core.py, common.py) and OpenRLHF 0.11.2
(openrlhf/models/loss.py, models/utils.py, trainer/ppo_utils; 0.9.10 where it
says so). Other versions differ.
"""
from typing import NamedTuple


class PeerName(NamedTuple):
  """A name elsewhere.

  Attributes:
    library: TRL, verl, Tunix or OpenRLHF.
    name: the option and its value, or the option that sets the numbers.
    note: where it means something else than here; '' where it is the same.
  """
  library: str
  name: str
  note: str = ''


def names_elsewhere(kind: str, name: str) -> tuple[PeerName, ...]:
  """What other libraries call something.

  Args:
    kind: one of KINDS.
    name: a registered name, without its numbers.

  Returns:
    PeerNames, none if nobody else is known to have it.

  Raises:
    ValueError: for an unknown kind.
  """
  if kind not in KINDS:
    raise ValueError(
        f'kind must be one of {", ".join(KINDS)}, got {kind!r}.')
  return _TABLE.get((kind, name), ())


KINDS = ('algorithm', 'divergence', 'bounds', 'gate', 'level', 'penalty',
         'mismatch', 'reduction', 'advantage')

_OLD = 'the ratio is to recomputed log-probs, anchor old'
_CUT = 'log w is clamped to [-20, 20], so w stops at 4.9e8 without gradient'
_K1 = ('as a loss its gradient has mean zero on policy: noise, that knows '
       'nothing of the reference')
_K3 = 'on policy it has the gradient of KL(reference || policy)'
_WHITE = ('mean and std are over tokens, so long completions weigh more; '
          'here over completions')
_STD = 'std with G - 1 degrees of freedom, as here'

# (kind, name): rows of (library, name there, note).
_ROWS = {
    ('algorithm', 'grpo'): (
        ('TRL', 'loss_type=grpo', 'beta is 0 by default; the default '
         'loss_type of GRPOTrainer is dapo; 1e-4 is added to the std'),
        ('verl', 'adv_estimator=grpo', 'the advantage only: the loss is '
         'dual clip (c = 3) with a mean over tokens unless set otherwise'),
        ('Tunix', 'GRPOConfig', 'beta 0.04 with kl_loss_mode=kl, the k1 that '
         'does not hold the policy back; with num_iterations=1 the ratio is '
         '1 and nothing is clipped'),
        ('OpenRLHF', 'advantage.estimator=group_norm', 'the advantage only: '
         'the loss is PPO\'s with a mean over tokens, and a k1 of 0.01 is '
         'subtracted from the reward by default')),
    ('algorithm', 'dr_grpo'): (
        ('TRL', 'loss_type=dr_grpo', 'the constant is max_completion_length; '
         'the std stays unless scale_rewards=none'),
        ('verl', 'norm_adv_by_std_in_grpo=false and '
         'loss_agg_mode=seq-mean-token-sum-norm', 'the constant is the padded '
         'width unless loss_scale_factor is set'),
        ('Tunix', 'DrGRPOConfig', 'the constant is the padded width; beta '
         'stays 0.04'),
        ('OpenRLHF', 'advantage.estimator=dr_grpo', 'the advantage only: the '
         'loss stays a mean over tokens, without the constant')),
    ('algorithm', 'dapo'): (
        ('TRL', 'loss_type=dapo', 'the mean over tokens only: epsilon_high '
         'stays at epsilon, overlong shaping and dynamic sampling are absent'),
        ('verl', 'clip_ratio_high=0.28, filter_groups, overlong_buffer_cfg',
         'dual clip (c = 3) stays on'),
        ('Tunix', 'DAPOConfig', 'dynamic_sampling is read by nothing; the '
         'overlong buffer counts characters, not tokens'),
        ('OpenRLHF', 'eps_clip_low_high, dynamic_filtering_enable, '
         'overlong_buffer_len', 'groups are filtered by their mean reward')),
    ('algorithm', 'gspo'): (
        ('TRL', 'importance_sampling_level=sequence with loss_type=grpo',
         'epsilon stays 0.2, a thousand times GSPO\'s, and loss_type dapo '
         'weighs rows by length'),
        ('verl', 'loss_mode=gspo', 'GSPO-token; widths stay 0.2, and '
         'loss_agg_mode token-mean'),
        ('Tunix', 'loss_algo=gspo-token', 'epsilon stays 0.2'),
        ('OpenRLHF', 'policy_loss_type=gspo', 'eps_clip stays 0.2; with '
         'is_correction on the ratio is to the sampler')),
    ('algorithm', 'cispo'): (
        ('TRL', 'loss_type=cispo', 'epsilon_high is the cap itself, not its '
         'distance from 1: 1.2 there is eps_high=0.2 here. Its default is '
         'epsilon, a cap of 0.2'),
        ('verl', 'loss_mode=cispo', 'clips the weight below too, at '
         '1 - clip_ratio_low; the paper above only')),
    ('algorithm', 'sapo'): (
        ('TRL', 'loss_type=sapo'),
        ('verl', 'loss_mode=sapo', 'loss_agg_mode has no effect')),
    ('algorithm', 'gmpo'): (
        ('TRL', 'experimental GMPOConfig', 'epsilon bounds log w, as here'),
        ('verl', 'loss_mode=geo_mean', 'clip_ratio bounds log w, and stays '
         '0.2; its mean is over the rows of a micro-batch')),
    ('algorithm', 'dual_clip_ppo'): (
        ('verl', 'loss_mode=vanilla', 'the default: clip_ratio_c=3 is always '
         'on, and clip_ratio is read only where clip_ratio_low or _high is '
         'null'),
        ('Tunix', 'epsilon_c', 'the loss reads it; no GRPO config has it'),
        ('OpenRLHF', 'actor.dual_clip')),
    ('algorithm', 'intellect_2'): (
        ('TRL', 'delta', 'under 1 + epsilon_high it also holds w back where '
         'A > 0'),),
    ('algorithm', 'reinforce'): (
        ('verl', 'loss_mode=gpg'),
        ('OpenRLHF', 'advantage.estimator=reinforce', 'the advantage only, '
         'whitened over the batch: the loss is PPO\'s')),
    ('algorithm', 'gspo_token'): (
        ('verl', 'loss_mode=gspo', 'widths stay 0.2'),
        ('Tunix', 'loss_algo=gspo-token', 'widths stay 0.2')),
    ('algorithm', 'luspo'): (
        ('TRL', 'loss_type=luspo', 'importance_sampling_level must be set to '
         'sequence; epsilon stays 0.2'),),
    ('algorithm', 'vespo'): (
        ('TRL', 'loss_type=vespo', 'with a mean over tokens'),),
    ('algorithm', 'opsm'): (('TRL', 'off_policy_mask_threshold'),),
    ('algorithm', 'dppo'): (
        ('verl', 'loss_mode=dppo_tv', 'budget 0.2 and cap 3 from the default '
         'config; to recomputed log-probs unless bypass_mode'),),
    ('algorithm', 'dppo_kl'): (
        ('verl', 'loss_mode=dppo_kl', 'budget 0.2 and cap 3 from the default '
         'config; to recomputed log-probs unless bypass_mode'),),
    ('algorithm', 'dro'): (('verl', 'loss_mode=dro'),),
    ('algorithm', 'clip_cov'): (('verl', 'loss_mode=clip_cov'),),
    ('algorithm', 'kl_cov'): (
        ('verl', 'loss_mode=kl_cov', 'ppo_kl_coef stays 0.1'),),
    ('algorithm', 'grpo_tis'): (
        ('TRL', 'vllm_importance_sampling_mode=token_truncate'),
        ('verl', 'rollout_is=token'),
        ('OpenRLHF', 'is_correction_mode=clip')),
    ('algorithm', 'icepop'): (
        ('TRL', 'vllm_importance_sampling_mode=token_mask', 'no lower bound '
         'by default'),
        ('verl', 'rollout_is_threshold=0.5_5'),
        ('OpenRLHF', 'is_correction_level=token')),
    ('divergence', 'forward_kl'): (
        ('TRL', 'k3 in beta', 'a penalty of ref / policy - 1 - log(ref / '
         'policy): estimates the reverse KL on policy'),
        ('Tunix', 'kl_loss_mode=kl', 'called a forward KL there; it is '
         'log(policy / reference), of mean KL(policy || reference)')),
    ('divergence', 'reverse_kl'): (
        ('TRL', 'beta', 'of policy and reference'),
        ('verl', 'use_kl_loss', 'of policy and reference'),
        ('OpenRLHF', 'kl.use_loss', 'of policy and reference')),
    ('divergence', 'squared_log_ratio'): (
        ('verl', 'kl_loss_type=k2, mse', 'as a penalty'),
        ('Tunix', 'kl_loss_mode=mse_kl', 'as a penalty'),
        ('OpenRLHF', 'kl.estimator=k2', 'as a penalty, clamped to 10')),
    ('divergence', 'absolute_log_ratio'): (
        ('verl', 'kl_loss_type=abs', 'as a penalty'),),
    ('divergence', 'total_variation'): (
        ('OpenRLHF', 'is_correction_gating=tv', 'of the sampled token against '
         'the rest, |p - q|, between sampler and old'),),
    ('bounds', 'fixed'): (
        ('TRL', 'epsilon, epsilon_high'),
        ('verl', 'clip_ratio_low, clip_ratio_high'),
        ('Tunix', 'epsilon, epsilon_high', 'GRPOConfig has no epsilon_high; '
         'DAPOConfig and the agentic one do'),
        ('OpenRLHF', 'eps_clip, eps_clip_low_high')),
    ('bounds', 'binary_tv'): (
        ('verl', 'loss_mode=dppo_tv', 'clip_ratio_low and _high are the '
         'budget, 0.2 by default against the paper\'s 0.15'),),
    ('bounds', 'binary_kl'): (
        ('verl', 'loss_mode=dppo_kl', 'KL(old || new); clip_ratio_low and '
         '_high are the budget, 0.2 by default against the paper\'s 0.05'),),
    ('gate', 'pessimistic_min'): (
        ('TRL', 'loss_type=grpo, bnpo, dr_grpo, dapo, luspo', _OLD),
        ('Tunix', 'policy_loss_fn=grpo', _CUT),
        ('OpenRLHF', 'policy_loss_type=ppo', _CUT)),
    ('gate', 'dual_clip'): (
        ('TRL', 'delta', 'the two-sided clip; the same above 1 + '
         'epsilon_high'),
        ('verl', 'clip_ratio_c', f'always on, 3 by default; {_CUT}'),
        ('Tunix', 'epsilon_c'),
        ('OpenRLHF', 'actor.dual_clip')),
    ('gate', 'two_sided'): (('TRL', 'delta'),),
    ('gate', 'clipped_weight'): (
        ('TRL', 'loss_type=cispo', 'epsilon_high is the cap itself'),
        ('verl', 'loss_mode=cispo', 'clipped on both sides'),
        ('verl', 'rollout_correction.bypass_mode with loss_type=reinforce',
         'rollout_is_threshold is the cap itself')),
    ('gate', 'unweighted'): (('verl', 'loss_mode=gpg'),),
    ('gate', 'soft_sigmoid'): (
        ('TRL', 'sapo_temperature_pos, sapo_temperature_neg'),
        ('verl', 'tau_pos, tau_neg')),
    ('gate', 'geometric_mean'): (
        ('TRL', 'experimental GMPOConfig'),
        ('verl', 'loss_mode=geo_mean', 'clip_ratio bounds log w')),
    ('gate', 'off_policy_mask'): (
        ('TRL', 'off_policy_mask_threshold', 'on top of any loss_type; the '
         'drift is from vLLM\'s log-probs where there are any'),),
    ('gate', 'gamma_weight'): (
        ('TRL', 'loss_type=vespo', 'W holds the mismatch of sampler and '
         'learner too, and is clamped to [1e-8, 4.9e8]'),),
    ('gate', 'squared_log'): (
        ('verl', 'loss_mode=dro', 'dro_beta has no default'),),
    ('gate', 'masked_weight'): (
        ('verl', 'loss_mode=dppo_tv, dppo_kl', 'clip_ratio_c is the cap, 3 '
         'from the default config against the paper\'s 20 or more'),),
    ('gate', 'covariance_clip'): (
        ('verl', 'loss_mode=clip_cov', 'share and covariance are those of a '
         'micro-batch'),),
    ('gate', 'covariance_penalty'): (
        ('verl', 'loss_mode=kl_cov', 'ppo_kl_coef is 0.1 by default, the '
         'paper\'s coefficient 1; of a micro-batch'),),
    ('level', 'token'): (
        ('TRL', 'importance_sampling_level=token'),
        ('verl', 'all but loss_mode=gspo'),
        ('Tunix', 'loss_algo=grpo'), ('OpenRLHF', 'policy_loss_type=ppo')),
    ('level', 'sequence'): (
        ('TRL', 'importance_sampling_level=sequence'),
        ('OpenRLHF', 'policy_loss_type=gspo')),
    ('level', 'sequence_token'): (
        ('verl', 'loss_mode=gspo', 'log s is clamped to at most 10'),
        ('Tunix', 'loss_algo=gspo-token', 'log s is clamped to at most 10')),
    ('level', 'sequence_product_token'): (
        ('TRL', 'loss_type=vespo', 'importance_sampling_level must stay '
         'token'),),
    ('penalty', 'pathwise'): (
        ('TRL', 'beta with use_bias_correction_kl=true', 'the default; '
         'with the level sequence the sequence\'s ratio weighs each token\'s '
         'k3'),),
    ('penalty', 'score'): (
        ('OpenRLHF', 'kl.unbiased_gradient', 'the weight is capped at 10'),),
    ('penalty', 'unweighted_k1'): (
        ('verl', 'kl_loss_type=kl, k1', _K1),
        ('Tunix', 'kl_loss_mode=kl', f'the default; {_K1}'),
        ('OpenRLHF', 'kl.estimator=k1', f'the default, clamped to [-10, 10]; '
         f'without kl.use_loss it is subtracted from the reward, where its '
         f'gradient is right; with it, {_K1}')),
    ('penalty', 'unweighted_k2'): (
        ('verl', 'kl_loss_type=k2, mse, k1+, k3+, low_var_kl+', 'those with + '
         'log the value of the other estimator'),
        ('Tunix', 'kl_loss_mode=mse_kl'),
        ('OpenRLHF', 'kl.estimator=k2', 'clamped to 10, where there is no '
         'gradient')),
    ('penalty', 'unweighted_k3'): (
        ('TRL', 'beta with use_bias_correction_kl=false', _K3),
        ('verl', 'kl_loss_type=low_var_kl, k3', f'{_K3}; the log-ratio is '
         f'clamped to [-20, 20] and the value to [-10, 10], so there is no '
         f'gradient where log(reference / policy) is over 2.6'),
        ('Tunix', 'kl_loss_mode=low_var_kl', f'{_K3}; kl_clamp_value, if set, '
         f'stops the gradient beyond'),
        ('OpenRLHF', 'kl.estimator=k3', f'{_K3}; the value is clamped to 10, '
         f'where there is no gradient')),
    ('mismatch', 'truncated_importance'): (
        ('TRL', 'vllm_importance_sampling_mode=token_truncate', 'the cap is '
         'vllm_importance_sampling_clip_max, 3 by default; a lower one may be '
         'set; the KL is not weighted'),
        ('TRL', 'vllm_importance_sampling_mode=sequence_truncate',
         'mismatch_level sequence_product'),
        ('verl', 'rollout_is=token', 'the KL is not weighted'),
        ('verl', 'rollout_is=sequence', 'mismatch_level sequence_product'),
        ('Tunix', 'sampler_is=token', 'the KL is not weighted'),
        ('OpenRLHF', 'is_correction_level=token, is_correction_mode=clip',
         'clamped below too, at 0.5 by default; the KL is not weighted')),
    ('mismatch', 'icepop'): (
        ('TRL', 'vllm_importance_sampling_mode=token_mask', 'no lower bound '
         'by default, 3 above'),
        ('TRL', 'vllm_importance_sampling_mode=sequence_mask', 'the default '
         'with vLLM: mismatch_level sequence_product, 0 where it is over 3'),
        ('verl', 'rollout_is_threshold=0.5_5', 'without quotes YAML reads '
         '0.55, which truncates'),
        ('OpenRLHF', 'is_correction_level=token, is_correction_mode=mask',
         'vllm_is_correction_type=icepop up to 0.9.10'),
        ('OpenRLHF', 'is_correction_level=seq', 'the sequence\'s geometric '
         'mean decides and the token\'s own k weighs; here the mean does '
         'both. seq-mask-tis up to 0.9.10')),
    ('mismatch', 'sequence_mask'): (
        ('verl', 'rollout_rs=seq_mean_k3, seq_max_k3', 'what is dropped '
         'leaves the mean too; k1 has an interval of exp(k1), k2 is not here'),
        ),
    ('reduction', 'token_mean'): (
        ('TRL', 'loss_type=dapo, cispo, vespo', 'divided by the tokens of the '
         'rollout batch, scaled to one update'),
        ('TRL', 'loss_type=bnpo', 'the mean of each micro-batch, averaged: 8 '
         'tokens of loss 1 and 2 of loss 3 give 2.0, not 1.4'),
        ('verl', 'loss_agg_mode=token-mean', 'the default; of each '
         'micro-batch up to 0.6.1, of the mini-batch from 0.7.0'),
        ('Tunix', 'loss_agg_mode=token-mean', 'of each micro-batch'),
        ('OpenRLHF', 'loss_agg_mode=token-mean', 'of each micro-batch up to '
         '0.9.10, of the mini-batch in 0.11.2')),
    ('reduction', 'sequence_mean'): (
        ('TRL', 'loss_type=grpo, sapo', 'masked rows stay in the count of '
         'rows'),
        ('verl', 'loss_agg_mode=seq-mean-token-mean', 'rows without a token '
         'stay in the count of rows'),
        ('Tunix', 'loss_agg_mode=sequence-mean-token-mean'),
        ('OpenRLHF', 'loss_agg_mode=seq-mean-token-mean')),
    ('reduction', 'sequence_sum'): (
        ('TRL', 'loss_type=dr_grpo', 'the constant is max_completion_length'),
        ('TRL', 'loss_type=luspo', 'the constant is 1'),
        ('verl', 'loss_agg_mode=seq-mean-token-sum-norm', 'the constant is '
         'loss_scale_factor, or the padded width'),
        ('verl', 'loss_agg_mode=seq-mean-token-sum', 'the constant is 1'),
        ('Tunix', 'loss_agg_mode=sequence-mean-token-scale', 'the constant is '
         'the padded width')),
    ('advantage', 'group_zscore'): (
        ('TRL', 'scale_rewards=group', f'1e-4 is added to the std; {_STD}'),
        ('verl', 'adv_estimator=grpo', f'1e-6; {_STD}; a group of one keeps '
         f'its reward'),
        ('Tunix', 'advantage_estimator=grpo', f'1e-6; {_STD}'),
        ('OpenRLHF', 'advantage.estimator=group_norm', f'1e-9; {_STD}')),
    ('advantage', 'group_mean'): (
        ('TRL', 'scale_rewards=none'),
        ('verl', 'norm_adv_by_std_in_grpo=false'),
        ('Tunix', 'advantage_estimator=drgrpo'),
        ('OpenRLHF', 'advantage.estimator=dr_grpo')),
    ('advantage', 'leave_one_out'): (
        ('TRL', 'RLOOTrainer'),
        ('verl', 'adv_estimator=rloo'),
        ('Tunix', 'advantage_estimator=rloo'),
        ('OpenRLHF', 'advantage.estimator=rloo')),
    ('advantage', 'batch'): (
        ('TRL', 'scale_rewards=batch', 'the mean is the group\'s, only the '
         'std is the batch\'s'),
        ('verl', 'adv_estimator=reinforce_plus_plus', _WHITE),
        ('OpenRLHF', 'advantage.estimator=reinforce', _WHITE)),
    ('advantage', 'reinforce_pp_baseline'): (
        ('verl', 'adv_estimator=reinforce_plus_plus_baseline', _WHITE),
        ('OpenRLHF', 'advantage.estimator=reinforce_baseline', _WHITE)),
}

_TABLE = {key: tuple(PeerName(*row) for row in rows)
          for key, rows in _ROWS.items()}
