"""Values that cannot work are refused, by both Helms, with a sentence that says what is wrong and what to do."""

from typing import Any

import pytest

from outrider.deploy.render import refusal
from outrider.stack.manifest import pair_id
from tests.deploy.charts import CASES, HELMS, Case, merged, template, values

KEYS = {"keys": {"list": []}}
# What is changed → what a person reads. Of `None` the value is taken out.
BAD: list[tuple[str, dict[str, Any], str]] = [
    (
        "minimal",
        {"pair": {"target": {"content": {"commit": "4" * 40}}}},
        "one half was changed without the other",
    ),
    (
        "minimal",
        {"pair": {"draft": {"content": {"commit": "4" * 40}}}},
        "one half was changed without the other",
    ),
    (
        "minimal",
        {"pair": {"hash": "0123456789abcdef"}},
        "names the pair 0123456789abcdef, but target and draft",
    ),
    ("minimal", {"pair": {"draft": {"revision": "4" * 40}}}, "but its content ids are of commit"),
    ("minimal", {"pair": {"target": {"model": ""}}}, "pair.target.model is missing"),
    # Nothing but the name of one half: of a side that no hub listed the name is all that its content ids say.
    (
        "minimal",
        {"pair": {"target": {"model": "other/model"}}},
        'pair.target.model is "other/model", but its content ids are of "example/llama-3.3-70b": one half',
    ),
    ("cpu", {"pair": {"target": {"sha256": "0" * 64}}}, "content ids are of another package"),
    ("minimal", {"pair": {"draft": {"model": "other/head"}}}, 'pair.draft.model is "other/head"'),
    ("minimal", {"pair": {"method": "ngram"}}, "the draft's content ids are another method's"),
    ("mig", {"pair": {"method": "suffix"}}, "the draft's content ids are another method's"),
    ("minimal", {"pair": {"method": "p-eagle"}}, 'rendered for draft "eagle3", and pair.method is "p-eagle"'),
    ("minimal", {"pair": {"draft": None}}, "not both of its halves"),
    ("minimal", {"pair": {"target": {"content": None}}}, "not both of its halves"),
    ("minimal", {"stack": {"target": None}}, "The stack has no target"),
    ("minimal", {"engines": {"engine": {"healthPath": None}}}, "healthPath"),
    ("minimal", {"images": {"engine": ""}}, "images.engine is empty: build it from the project's Dockerfile"),
    ("minimal", KEYS, "Make one with `outrider key new`"),
    ("minimal", {"engines": {"engine": {"min": 5}}}, "min (5) is above max (4)"),
    ("minimal", {"engines": {"engine": {"replicas": 0}}}, "nobody would ever be served"),
    ("minimal", {"engines": {"engine": {"lanes": ["batch"]}}}, 'no engine serves the lane "interactive"'),
    ("minimal", {"engines": {"engine": {"lanes": ["interactive", "batch"]}}}, "leave lanes empty"),
    ("minimal", {"engines": {"engine": {"plain": True}}}, "its own draft is eagle3"),
    (
        "minimal",
        {"engines": {"engine": {"plain": True, "draft": "none"}}},
        'no engine with the draft serves the lane "interactive"',
    ),
    ("minimal", {"weights": {"source": "claim"}}, "weights.claim does not name one"),
    ("minimal", {"weights": {"source": "image"}}, "weights.image does not name one"),
    (
        "minimal",
        {"pair": {"target": {"model": "/models/target"}}},
        "a folder of the machine where the stack was rendered",
    ),
    ("minimal", {"pair": {"draft": {"model": "/models/draft"}}}, "The draft is a folder of the machine"),
    (
        "minimal",
        {"argocd": {"enabled": True}, "engineKey": {"existingSecret": ""}},
        "would change at every sync",
    ),
    ("minimal", {"argocd": {"enabled": True, "gate": {"enabled": True}}}, "the Dockerfile's target `bench`"),
    ("minimal", {"kueue": {"enabled": True}}, "render with --split-lanes"),
    (
        "tenants",
        {"engines": {"third": values(CASES["tenants"])["engines"]["batch"]}},
        "engines.third has no queue in Kueue",
    ),
    (
        "minimal",
        {"engines": {"front": values(CASES["minimal"])["engines"]["engine"]}},
        "An engine cannot be called front",
    ),
    ("minimal", {"autoscaling": {"type": "keda"}}, "give the URL at which KEDA reaches Prometheus"),
    (
        "minimal",
        {"autoscaling": {"type": "hpa"}, "engines": {"engine": {"min": 0}}},
        "does not scale to or from zero",
    ),
    (
        "mig",
        {"engines": {"engine": {"resources": {"gpu": "nvidia.com/mig-9g.99gb"}}}},
        "nvidia.com/mig- and one of 1g.10gb",
    ),
    (
        "mig",
        {"engines": {"engine": {"resources": {"gpu": "nvidia.com/mig-1g.5gb", "neededGiB": 7.5}}}},
        "take a larger slice",
    ),
    ("mig", {"engines": {"engine": {"resources": {"count": 2}}}}, "slices have no links to one another"),
    (
        "trtllm",
        {"networkPolicy": {"enabled": False}},
        "asks for no key, and networkPolicy.enabled is false",
    ),
    (
        "sglang",
        {"argocd": {"gate": {"enabled": True, "image": "b:1", "referenceClaim": "r"}}},
        "`outrider bench` starts vLLM alone",
    ),
    ("sglang", {"watching": {"positionZeroRate": 0.6}}, "reads vLLM's own counters"),
    # What types can say, Helm says: the place and what was expected.
    ("minimal", {"front": {"replicas": 0}}, "front"),
    # Helm writes large numbers as 1e+06, which is no replica count; `outrider front` knows 1000 of its kind.
    ("minimal", {"front": {"replicas": 1_000_000}}, "replicas"),
    ("minimal", {"engineDefaults": {"max": 2**31}}, "max"),
    ("minimal", {"keys": {"list": [{"name": "a b", "sha256": "0" * 64}]}}, "name"),
    ("minimal", {"argocd": {"gate": {"tolerance": "0.05; reboot"}}}, "tolerance"),
    ("minimal", {"frnt": {}}, "frnt"),
    ("minimal", {"autoscaling": {"type": "vpa"}}, "autoscaling"),
    ("minimal", {"startSeconds": "soon"}, "startSeconds"),
    ("minimal", {"keys": {"list": [{"name": "a", "sha256": "secret"}]}}, "sha256"),
    ("minimal", {"engines": {"Main Engine": {}}}, "Main Engine"),
]


@pytest.mark.parametrize("helm", HELMS)
@pytest.mark.parametrize(
    ("name", "change", "words"), BAD, ids=[f"{i}-{bad[2][:28]}" for i, bad in enumerate(BAD)]
)
def test_a_bad_value_is_refused_in_words(helm: str, name: str, change: dict[str, Any], words: str) -> None:
    """Nothing is rendered, and the sentence stands without Helm's chain of places around it."""
    done = template(helm, merged(values(CASES[name]), change))
    assert done.returncode != 0
    assert done.stdout == ""
    said = refusal(done.stderr)
    assert words in said
    assert "nil pointer" not in said
    assert ".yaml:" not in said


@pytest.mark.parametrize("helm", HELMS)
def test_the_chart_alone_says_how_to_begin(helm: str) -> None:
    """`helm install` without values names the command that makes them."""
    assert "outrider render stack.yaml -o values.yaml" in refusal(template(helm, {}).stderr)


@pytest.mark.parametrize("helm", HELMS)
@pytest.mark.parametrize("release", ["a" * 41, "a.b", "1st"])
def test_a_release_gets_a_name_that_services_can_have(helm: str, release: str) -> None:
    """Cut to size two releases could be one, and their objects one another's."""
    done = template(helm, values(CASES["minimal"]), release=release)
    assert f'the release is called "{release}"' in refusal(done.stderr)
    assert template(helm, values(CASES["minimal"]), release="a" * 40).returncode == 0


def test_image_volumes_need_a_cluster_that_has_them() -> None:
    """The message names the version that the cluster has."""
    done = template("helm4", values(CASES["mig"]), "--kube-version", "1.30.2")
    assert "needs Kubernetes 1.33 or later (image volumes); this is v1.30.2" in refusal(done.stderr)


def test_a_whole_new_pair_is_taken() -> None:
    """Both halves and the hash together, as a rendering makes them: the check is not one that always refuses."""
    from outrider.stack.manifest import pair_id

    given = values(Case(more=CASES["minimal"].more))
    for side, commit in (("target", "4" * 40), ("draft", "1e5" + "5" * 37)):
        given["pair"][side] |= {
            "revision": commit,
            "content": {"commit": commit, "model.safetensors": "6" * 64},
        }
    given["pair"]["hash"] = pair_id(given["pair"]["target"]["content"], given["pair"]["draft"]["content"])
    for helm in HELMS:
        assert template(helm, given).returncode == 0


@pytest.mark.parametrize("helm", HELMS)
def test_an_unpinned_half_takes_no_commit_by_hand(helm: str) -> None:
    """Rendered while the hub did not answer it is taken as it is, unpinned; a commit is no part of it."""
    given = values(CASES["mig"])
    target = given["pair"]["target"]
    target["content"]["commit"] = "unpinned"
    del target["revision"]
    given["pair"]["hash"] = pair_id(target["content"], given["pair"]["draft"]["content"])
    assert template(helm, given).returncode == 0
    target["revision"] = "4" * 40
    done = template(helm, given)
    assert done.returncode != 0
    assert 'its content ids are of commit "unpinned": render the stack again' in refusal(done.stderr)
