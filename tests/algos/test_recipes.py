"""Recipes: the published defaults, options, refusals."""

import pytest
import torch

from assay.algos.algorithm import Algorithm
from assay.algos.dpo import Preference
from assay.algos.kl_control import KLControl
from assay.algos.parts import Correction, Credit, KLPenalty, Overlong, Surrogate
from assay.algos.ppo import ActorCritic, Critic
from assay.algos.recipes import ALL, RECIPES, make_algorithm, option_names
from assay.errors import BadInput

CLIP = Surrogate(kind="clip", clip_low=0.2, clip_high=0.2)
PUBLISHED = {
    "reinforce": (
        Credit(baseline="group_standardised", ddof=0, epsilon=1e-8),
        Surrogate(kind="reinforce"),
        "sequence_mean_token_sum",
        KLPenalty(),
    ),
    "rloo": (
        Credit(baseline="leave_one_out"),
        Surrogate(kind="reinforce"),
        "sequence_mean_token_sum",
        KLPenalty(coef=0.05, estimator="k1", where="reward"),
    ),
    "grpo": (
        Credit(baseline="group_standardised", ddof=0, epsilon=1e-6),
        CLIP,
        "sequence_mean_token_mean",
        KLPenalty(coef=0.04, estimator="k3", where="loss"),
    ),
    "dr_grpo": (Credit(baseline="group_mean"), CLIP, "constant", KLPenalty()),
    "dapo": (
        Credit(baseline="group_standardised"),
        Surrogate(kind="clip", clip_low=0.2, clip_high=0.28),
        "token_mean",
        KLPenalty(),
    ),
    "gspo": (
        Credit(baseline="group_standardised"),
        Surrogate(kind="clip", level="sequence", clip_low=3e-4, clip_high=4e-4),
        "sequence_mean_token_mean",
        KLPenalty(),
    ),
    "cispo": (
        Credit(baseline="group_standardised"),
        Surrogate(kind="cispo", clip_low=None, clip_high=4.0),
        "token_mean",
        KLPenalty(),
    ),
    "reinforce_pp": (
        Credit(baseline="none", spread="whitened", whiten_ddof=1, whiten_epsilon=1e-8),
        CLIP,
        "token_mean",
        KLPenalty(coef=0.01, estimator="k1", where="token_reward"),
    ),
}


@pytest.mark.parametrize("name", RECIPES)
def test_the_default_is_the_published_method(name: str):
    algorithm = make_algorithm(name)
    credit, surrogate, aggregation, kl = PUBLISHED[name]
    assert algorithm.name == name
    assert (algorithm.credit, algorithm.surrogate, algorithm.kl) == (credit, surrogate, kl)
    assert algorithm.aggregation == aggregation
    assert algorithm.entropy_coef == 0.0
    assert algorithm.correction is None
    assert algorithm.minibatches == (4 if name == "gspo" else 1)
    assert algorithm.dynamic_sampling == (name == "dapo")
    assert algorithm.overlong == Overlong(how="punish" if name == "dapo" else "keep", cache=0.2)


def test_the_defaults_of_ppo_are_the_published_ones():
    algorithm = make_algorithm("ppo")
    assert isinstance(algorithm, ActorCritic)
    assert algorithm.surrogate == CLIP
    assert algorithm.aggregation == "token_mean"
    assert algorithm.kl == KLPenalty(coef=0.05, estimator="k1", where="token_reward")
    assert (algorithm.minibatches, algorithm.epochs) == (1, 4)
    assert algorithm.critic == Critic(
        gamma=1.0, lam=0.95, value_coef=0.1, value_clip=0.2, whiten="advantages"
    )
    assert algorithm.kl_control == KLControl(kind="fixed")
    assert algorithm.entropy_coef == 0.0
    assert algorithm.correction is None
    assert make_algorithm("ppo", match="trl") == algorithm


@pytest.mark.parametrize("name", ["dpo", "online_dpo"])
def test_the_defaults_of_dpo_are_the_published_ones(name: str):
    algorithm = make_algorithm(name)
    assert isinstance(algorithm, Preference)
    assert (algorithm.loss_name, algorithm.beta, algorithm.label_smoothing) == ("dpo", 0.1, 0.0)
    assert (algorithm.sft_coef, algorithm.online) == (0.0, name == "online_dpo")
    assert algorithm.needs_reference


@pytest.mark.parametrize("name", ALL)
def test_no_method_has_more_than_ten_options(name: str):
    assert 0 < len(option_names(name)) <= 10


# What each preset changes, beside the published default: the option or part, and its value there.
ELSEWHERE = {
    ("rloo", "trl"): {"surrogate.kind": "clip", "surrogate.level": "sequence_sum", "kl.coef": 0.05},
    ("rloo", "verl"): {"surrogate.dual_clip": 3.0, "aggregation": "token_mean", "kl.coef": 0.0},
    ("rloo", "openrlhf"): {"credit.spread": "returns", "credit.clip": 10.0, "kl.coef": 0.01},
    ("grpo", "trl"): {"credit.ddof": 1, "credit.epsilon": 1e-4, "aggregation": "token_mean", "kl.coef": 0.0},
    ("grpo", "verl"): {"credit.ddof": 1, "surrogate.dual_clip": 3.0, "kl.coef": 0.0, "kl.bound": 10.0},
    ("grpo", "openrlhf"): {"credit.epsilon": 1e-9, "kl.estimator": "k1", "kl.where": "token_reward"},
    ("dr_grpo", "trl"): {"aggregation": "constant", "surrogate.dual_clip": None},
    ("dr_grpo", "verl"): {"aggregation": "constant", "surrogate.dual_clip": 3.0},
    ("dr_grpo", "openrlhf"): {"aggregation": "token_mean", "kl.coef": 0.01},
    ("dapo", "trl"): {"dynamic_sampling": False, "overlong.how": "keep", "credit.epsilon": 1e-4},
    ("dapo", "verl"): {"dynamic_sampling": True, "overlong.how": "punish", "surrogate.dual_clip": 3.0},
    ("dapo", "openrlhf"): {"dynamic_sampling": True, "overlong.how": "keep", "credit.epsilon": 1e-9},
    ("gspo", "trl"): {"surrogate.level": "sequence", "surrogate.clip_high": 0.2, "aggregation": "token_mean"},
    ("gspo", "verl"): {"surrogate.level": "sequence_token", "surrogate.bound": 10.0},
    ("gspo", "openrlhf"): {"aggregation": "sequence_mean_token_mean", "kl.where": "token_reward"},
    ("cispo", "trl"): {"surrogate.clip_high": 4.0, "surrogate.clip_low": None, "credit.epsilon": 1e-4},
    ("cispo", "verl"): {"surrogate.clip_high": pytest.approx(0.2), "surrogate.clip_low": 0.2},
    ("reinforce_pp", "verl"): {"credit.whiten_ddof": 1, "credit.whiten_floor": False, "kl.coef": 0.0},
    ("reinforce_pp", "openrlhf"): {"credit.whiten_ddof": 0, "credit.whiten_floor": True, "kl.bound": 10.0},
}


@pytest.mark.parametrize(("name", "library"), ELSEWHERE)
def test_presets_are_pinned(name: str, library: str):
    algorithm = make_algorithm(name, match=library)
    for path, value in ELSEWHERE[name, library].items():
        found = algorithm
        for part in path.split("."):
            found = getattr(found, part)
        assert found == value, path


def test_every_preset_is_pinned():
    presets = {(name, library) for name, (_, known) in RECIPES.items() for library in known}
    assert presets == set(ELSEWHERE)


@pytest.mark.parametrize("name", RECIPES)
def test_at_most_ten_options_and_the_kl_is_always_one(name: str):
    options = option_names(name)
    assert len(options) <= 10
    assert {"kl_coef", "kl_estimator", "kl_where"} <= set(options)
    made = make_algorithm(name, kl_coef=0.3, kl_estimator="k2", kl_where="loss")
    assert made.kl == KLPenalty(coef=0.3, estimator="k2", where="loss")
    assert made.needs_reference


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("grpoo", {}, "did you mean 'grpo'"),
        ("grpo", {"epsilom": 1}, "no option 'epsilom'; did you mean 'epsilon'"),
        ("grpo", {"match": "veri"}, "did you mean 'verl'"),
        ("cispo", {"match": "openrlhf"}, "presets of cispo: trl, verl"),
        ("reinforce", {"match": "trl"}, "presets of reinforce: none"),
        ("grpo", {"ddof": 2}, "ddof 0 or 1"),
        ("grpo", {"clip": [0.2]}, "one number or"),
        ("grpo", {"clip": -0.1}, "one number or"),
        ("grpo", {"clip": "wide"}, "clip"),
        ("grpo", {"minibatches": 0}, "at least 1"),
        ("grpo", {"kl_coef": -1.0}, "kl_coef >= 0"),
        ("grpo", {"kl_estimator": "k4"}, "k1, k2, k3 or exact"),
        ("grpo", {"kl_where": "elsewhere"}, "loss, reward or token_reward"),
        ("grpo", {"kl_estimator": "k1"}, "expected gradient is 0"),
        ("grpo", {"kl_where": "reward"}, "gradient is wrong there"),
        ("grpo", {"importance_cap": 0.5}, "importance_cap of at least 1"),
        ("cispo", {"cap": 0.5}, "cap of at least 1"),
        ("dapo", {"overlong": "cut"}, "keep, punish or mask"),
        ("dapo", {"overlong_cache": 0.0}, r"overlong_cache in \(0, 1\]"),
        ("reinforce", {"baseline": "group_maen"}, "did you mean 'group_mean'"),
        ("reinforce", {"aggregation": "tokenmean"}, "did you mean 'token_mean'"),
        (
            "reinforce",
            {"kl_where": "token_reward", "kl_coef": 0.1, "kl_estimator": "k1"},
            "use kl_where=reward",
        ),
    ],
)
def test_refusals_say_what_to_do(name: str, options: dict, message: str):
    with pytest.raises(BadInput, match=message):
        make_algorithm(name, **options)


def test_refusals_can_be_overridden():
    assert make_algorithm("grpo", kl_estimator="k1", kl_where="loss!").kl.allow_biased
    assert make_algorithm("grpo", kl_estimator="k3", kl_where="reward!").kl.where == "reward"
    assert make_algorithm("grpo", kl_estimator="k1", kl_coef=0.0).kl.coef == 0.0  # nothing to refuse
    with pytest.raises(BadInput, match="no option"):
        option_names("grpo") and make_algorithm("grpo", allow=True)
    with pytest.raises(BadInput, match="did you mean"):
        option_names("grp")


def test_options_win_over_presets():
    assert make_algorithm("grpo", match="trl").credit.epsilon == 1e-4
    assert make_algorithm("grpo", match="trl", epsilon=0.5).credit.epsilon == 0.5
    assert make_algorithm("grpo", match="verl").surrogate.dual_clip == 3.0


def test_parts_refuse_what_they_cannot_be():
    for part in (
        lambda: Surrogate(kind="other"),  # pyright: ignore
        lambda: Surrogate(kind="clip", clip_low=None),
        lambda: Surrogate(kind="clip", clip_high=-1.0),
        lambda: KLControl(kind="other"),  # pyright: ignore
        lambda: KLControl(target=0.0),
        lambda: Credit(baseline="none", epsilon=-1.0),
    ):
        with pytest.raises(BadInput, match="expected"):
            part()


def test_properties_the_trainer_asks_for():
    assert make_algorithm("grpo").single_update
    assert not make_algorithm("gspo").single_update
    assert make_algorithm("grpo").needs_groups
    assert not make_algorithm("reinforce_pp").needs_groups
    assert make_algorithm("reinforce_pp", group_baseline=True).needs_groups
    assert not make_algorithm("reinforce", baseline="none").needs_reference
    assert make_algorithm("grpo").with_kl_coef(0.5).kl.coef == 0.5
    assert make_algorithm("grpo", importance_cap=2.0).correction == Correction(high=2.0)
    assert isinstance(make_algorithm("grpo"), Algorithm)


def test_kl_control():
    fixed, adaptive = KLControl(), KLControl(kind="adaptive", target=6.0, stop_at=0.1)
    assert fixed.next_coef(0.1, 60.0, 256) == 0.1
    assert adaptive.next_coef(0.1, 10.0, 256) == pytest.approx(0.100512)
    assert adaptive.next_coef(0.1, float("nan"), 256) == 0.1
    assert not fixed.stops(99.0)
    assert adaptive.stops(0.2)


def test_algorithms_are_values():
    assert make_algorithm("grpo") == make_algorithm("grpo")
    assert hash(make_algorithm("dapo")) == hash(make_algorithm("dapo"))
    assert torch.equal(
        make_algorithm("grpo").keep_groups(torch.tensor([1.0, 0, 1, 1]), torch.tensor([0, 0, 1, 1])),
        torch.tensor([True, True, False, False]),
    )
