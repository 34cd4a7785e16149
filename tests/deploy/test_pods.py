"""What runs in the pods: the plan's own command, the stack as it was, and no more rights than it needs."""

import json
import shlex
from pathlib import Path

import pytest
import yaml

from outrider.cli.bench import bench_command
from outrider.cli.compare import compare_command
from outrider.cli.front import front_command
from outrider.deploy.slices import slices, slices_file
from outrider.deploy.values import FILES, TEMPLATE, Wish, installed, pod_plan, values_of
from outrider.engines.base import ResolvedModels
from outrider.engines.choose import engine_of
from outrider.engines.trtllm import CONFIG
from outrider.front.settings import settings_from
from outrider.launch.placed import read_expected
from outrider.stack.find_facts import Source
from outrider.stack.load import load_keys, load_stack, load_stack_text
from outrider.stack.manifest import pair_id
from tests.deploy.charts import (
    CASES,
    HERE,
    KEY,
    NAMESPACE,
    RELEASE,
    SHAPES,
    Case,
    Json,
    merged,
    one,
    pods,
    rendered,
    template,
    values,
)


def container(name: str, deployment: str) -> Json:
    """The one container of a Deployment."""
    (found,) = one(name, "Deployment", deployment)["spec"]["template"]["spec"]["containers"]
    return dict(found)


HOSTS = ("127.0.0.1", "0.0.0.0")  # noqa: S104


@pytest.mark.parametrize(
    ("name", "deployment", "changed"),
    [
        ("minimal", "llama-engine", [HOSTS, ("8", "58")]),
        ("sglang", "llama-engine", [HOSTS]),
        (
            "trtllm",
            "llama-interactive",
            [HOSTS, (f"{HERE}/stacks/chat.jinja", f"{FILES}/{TEMPLATE}"), (CONFIG, f"{FILES}/{CONFIG}")],
        ),
    ],
)
def test_the_engine_runs_what_plan_says(name: str, deployment: str, changed: list[tuple[str, str]]) -> None:
    """Word for word, but for the pod's address, the weights' and files' places and the time to end in."""
    stack = load_stack(HERE / "stacks" / f"{CASES[name].stack}.yaml")
    engine = engine_of(stack)
    models = ResolvedModels("/models/target", None, "/models/draft")
    here = engine.plan(stack, installed(stack, engine, ""), models, 8000)
    there = container(name, deployment)
    assert [(a, b) for a, b in zip(here.argv, there["command"], strict=True) if a != b] == changed
    given = {entry["name"]: entry.get("value") for entry in there["env"]}
    assert dict(here.env).items() <= given.items()
    secrets = {entry["name"] for entry in there["env"] if "valueFrom" in entry}
    assert secrets == ({here.key_variable} if here.key_variable else set())
    assert there["startupProbe"]["httpGet"]["path"] == here.health_path
    if here.files:
        data = one(name, "ConfigMap", f"{deployment}-files")["data"]
        assert {file: yaml.safe_load(text) for file, text in here.files.items()} == {
            file: yaml.safe_load(data[file]) for file in here.files
        }


def test_a_changed_file_starts_the_engines_anew() -> None:
    """What an engine reads from a file is part of its pods: a ConfigMap alone rolls nothing."""
    given = values(CASES["trtllm"])
    sums = set()
    for length in ("3", "4"):
        files = {"trtllm.yaml": f"speculative_config: {{max_draft_len: {length}}}"}
        done = template("helm4", merged(given, {"engines": {"interactive": {"files": files}}}))
        (pod,) = (
            each["spec"]["template"]["metadata"]
            for each in yaml.safe_load_all(done.stdout)
            if each and each["kind"] == "Deployment" and each["metadata"]["name"] == "llama-interactive"
        )
        sums.add(pod["annotations"]["checksum/files"])
    assert len(sums) == 2


@pytest.mark.parametrize(
    ("name", "fetches", "runs"),
    [
        ("minimal", "registry.example/outrider-engine:1", "registry.example/outrider-engine:1"),
        ("sglang", "registry.example/outrider-front:1", "lmsysorg/sglang:v0.5.23"),
        ("trtllm", "registry.example/outrider-front:1", "nvcr.io/nvidia/tensorrt-llm/release:1.4.0rc4"),
    ],
)
def test_weights_are_fetched_by_an_image_that_has_outrider(name: str, fetches: str, runs: str) -> None:
    """Other engines' own images have not."""
    (pod,) = (spec for called, spec in pods(name) if called in ("llama-engine", "llama-interactive"))
    assert pod["initContainers"][0]["image"] == fetches
    assert pod["containers"][0]["image"] == runs


@pytest.mark.parametrize("name", CASES)
def test_probes_wait_for_an_answer_that_takes_a_second(name: str) -> None:
    """SGLang's health route takes that long when all is well; Kubernetes' own limit is 1 s, and such a pod never starts."""
    for called, pod in pods(name):
        if called.endswith(("-engine", "-interactive", "-batch")):
            (engine,) = pod["containers"]
            for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
                assert engine[probe]["timeoutSeconds"] >= 5


def test_every_page_of_metrics_is_scraped_where_it_is() -> None:
    """TensorRT-LLM's is elsewhere than the front's: a monitor of its own. By annotation the path is the engine's too."""
    for name, paths in (("keda", {"/metrics"}), ("trtllm", {"/metrics", "/prometheus/metrics"})):
        monitors = [each for each in rendered("helm4", name) if each["kind"] == "PodMonitor"]
        found = {}
        for each in monitors:
            (expression,) = each["spec"]["selector"]["matchExpressions"]
            found[each["spec"]["podMetricsEndpoints"][0]["path"]] = set(expression["values"])
        assert found.keys() == paths
        assert sorted(part for parts in found.values() for part in parts) == ["engine", "front"]
    plain = values(Case(stack="trtllm", wish={"engine_image": ""}, more=KEY))
    annotated = template("helm4", plain).stdout
    assert "prometheus.io/path: /prometheus/metrics" in annotated


def test_the_batch_lane_has_no_draft() -> None:
    """Its engines start without speculation, and the front is told so."""
    assert "--speculative-config" in container("keda", "llama-interactive")["command"]
    assert "--speculative-config" not in container("keda", "llama-batch")["command"]
    assert "--no-draft=batch" in container("keda", "llama-front")["command"]


def test_a_plain_pool_stands_beside_the_interactive_lanes_own() -> None:
    """The same command without the draft, with a whole accelerator each; the front is told which is which, and governs."""
    own, plain = (container("pools", f"{RELEASE}-{name}") for name in ("interactive", "plain"))
    start = own["command"].index("--speculative-config")
    assert "--gpu-memory-utilization" not in own["command"]
    assert plain["command"] == [*own["command"][:start], *own["command"][start + 2 :]]
    assert plain["resources"] == own["resources"]
    places = [word for word in container("pools", f"{RELEASE}-front")["command"] if "engine=" in word]
    assert places == [
        f"--engine=batch={RELEASE}-batch.{NAMESPACE}.svc:8000",
        f"--engine=interactive={RELEASE}-interactive.{NAMESPACE}.svc:8000",
        f"--plain-engine=interactive={RELEASE}-plain.{NAMESPACE}.svc:8000",
    ]
    labels = one("pools", "Deployment", f"{RELEASE}-plain")["metadata"]["labels"]
    assert labels["kueue.x-k8s.io/queue-name"] == f"{RELEASE}-interactive", "the quota is the lane's"
    assert "plain_engine" not in one("pools", "ConfigMap", f"{RELEASE}-stack")["data"]["stack.yaml"]


def test_the_fronts_command_is_one_that_it_takes() -> None:
    """The rendered arguments are parsed by the command itself."""
    for name in CASES:
        command = container(name, f"{RELEASE}-front")["command"]
        assert command[:2] == ["outrider", "front"]
        arguments = [word for word in command[2:] if not word.startswith("--keys=")]
        context = front_command.make_context("front", arguments)
        assert context.params["places"]
        assert context.params["fronts"] == one(name, "Deployment", f"{RELEASE}-front")["spec"]["replicas"]
        assert context.params["from_zero"] == (name == "keda")


@pytest.mark.parametrize("name", ["minimal", "cpu", "mig", "sglang", "trtllm"])
def test_the_front_reads_the_same_stack_as_serve(name: str, tmp_path: Path) -> None:
    """Large numbers included: what Helm wrote is loaded, and gives the settings that `serve` would have."""
    original = load_stack(HERE / "stacks" / f"{CASES[name].stack}.yaml")
    given = load_stack_text(one(name, "ConfigMap", "llama-stack")["data"]["stack.yaml"], "rendered")
    (tmp_path / "keys.yaml").write_text(one(name, "Secret", "llama-keys")["stringData"]["keys.yaml"])
    keyed = given.model_copy(
        update={"serve": given.serve.model_copy(update={"keys": load_keys(tmp_path / "keys.yaml")})}
    )
    assert settings_from(keyed) == settings_from(original)
    assert keyed.draft == original.draft
    assert keyed.slo == original.slo


def test_keys_of_clients_are_in_a_secret_alone() -> None:
    """And there only as hashes."""
    for name in CASES:
        for manifest in rendered("helm4", name):
            if manifest["kind"] != "Secret":
                assert "9ca8c111c6e1eed0" not in json.dumps(manifest)


def test_a_chat_template_travels_with_the_stack() -> None:
    """Its text is in a ConfigMap, and the engine's command names the mounted file."""
    command = container("mig", "llama-engine")["command"]
    assert command[command.index("--chat-template") + 1] == f"{FILES}/chat_template.jinja"
    text = one("mig", "ConfigMap", "llama-engine-files")["data"]["chat_template.jinja"]
    assert text == (HERE / "stacks" / "chat.jinja").read_text()


@pytest.mark.parametrize("name", CASES)
def test_pods_have_few_rights(name: str) -> None:
    """Not root, no capabilities, nothing written to the root file system, no token of the cluster, limits on memory."""
    seen = 0
    for _, pod in pods(name):
        seen += 1
        assert pod["automountServiceAccountToken"] is False
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for each in (*pod.get("initContainers", ()), *pod["containers"]):
            context = each["securityContext"]
            assert context["readOnlyRootFilesystem"] is True
            assert context["allowPrivilegeEscalation"] is False
            assert context["capabilities"] == {"drop": ["ALL"]}
            mounted = {volume["name"] for volume in pod["volumes"]}
            assert {mount["name"] for mount in each["volumeMounts"]} <= mounted
    assert seen >= 2


@pytest.mark.parametrize("name", CASES)
def test_engines_are_reached_by_front_and_prometheus_alone(name: str) -> None:
    """The policy selects the engines' pods, and its peers are the front's and a namespace."""
    policy = one(name, "NetworkPolicy", "llama-engines")["spec"]
    engine = one(
        name,
        "Deployment",
        "llama-batch" if name in ("keda", "pools", "tenants", "trtllm") else "llama-engine",
    )
    labels = engine["spec"]["template"]["metadata"]["labels"]
    assert policy["podSelector"]["matchLabels"].items() <= labels.items()
    (rule,) = policy["ingress"]
    front, prometheus = rule["from"]
    front_pod = one(name, "Deployment", "llama-front")["spec"]["template"]["metadata"]["labels"]
    assert front["podSelector"]["matchLabels"].items() <= front_pod.items()
    assert not front["podSelector"]["matchLabels"].items() <= labels.items()
    assert set(prometheus) == {"namespaceSelector"}


@pytest.mark.parametrize("name", CASES)
def test_time_to_end_is_long_enough(name: str) -> None:
    """preStop, then all the time that streams may take, and still a margin; the engine's own drain fits in."""
    for deployment, pod in pods(name):
        main = pod["containers"][0]
        if "lifecycle" not in main:
            continue
        stop = int(main["lifecycle"]["preStop"]["exec"]["command"][1])
        streams = values(CASES[name])["drain"]["streamSeconds"]
        assert pod["terminationGracePeriodSeconds"] > stop + streams, deployment
        if "--shutdown-timeout" in main["command"]:
            drain = int(main["command"][main["command"].index("--shutdown-timeout") + 1])
            assert stop + drain < pod["terminationGracePeriodSeconds"]


def test_replicas_are_left_to_the_autoscaler() -> None:
    """Omitted where one owns them, there where none does."""
    assert "replicas" not in one("keda", "Deployment", "llama-batch")["spec"]
    assert "replicas" not in one("hpa", "Deployment", "llama-engine")["spec"]
    assert one("minimal", "Deployment", "llama-engine")["spec"]["replicas"] == 1


@pytest.mark.parametrize("name", CASES)
def test_one_hash_is_on_everything(name: str) -> None:
    """The label `outrider/pair` is on every object and pod, in no selector, and is `outrider check`'s name of the pair."""
    given = values(CASES[name])["pair"]
    assert given["hash"] == pair_id(given["target"]["content"], given["draft"]["content"])
    for manifest in rendered("helm4", name):
        assert manifest["metadata"]["labels"]["outrider/pair"] == given["hash"]
        if manifest["kind"] == "Deployment":
            assert manifest["spec"]["template"]["metadata"]["labels"]["outrider/pair"] == given["hash"]
            assert "outrider/pair" not in manifest["spec"]["selector"]["matchLabels"]


def test_the_weights_container_can_read_what_it_compares_with(tmp_path: Path) -> None:
    """`pair.json` in the ConfigMap has the content ids that the block has."""
    path = tmp_path / "pair.json"
    path.write_text(one("minimal", "ConfigMap", "llama-stack")["data"]["pair.json"])
    given = values(CASES["minimal"])["pair"]
    expected = read_expected(path)
    assert expected.target == given["target"]["content"]
    assert expected.draft == given["draft"]["content"]


def test_gpus_are_asked_for_as_the_stack_says() -> None:
    """A whole card, a slice, none."""
    limits = {
        name: container(name, "llama-engine")["resources"]["limits"] for name in ("minimal", "mig", "cpu")
    }
    assert limits["minimal"]["nvidia.com/gpu"] == 1
    assert limits["mig"]["nvidia.com/mig-2g.35gb"] == 1
    assert not any("nvidia" in key for key in limits["cpu"])


def test_the_interactive_floor_is_never_lent() -> None:
    """Kueue: interactive keeps its floor and takes back what it lent: both are within its own quota, or Kueue would not."""
    queues = {
        m["metadata"]["name"]: m["spec"] for m in rendered("helm4", "tenants") if m["kind"] == "ClusterQueue"
    }
    assert set(queues) == {"serving-llama-batch", "serving-llama-interactive"}

    def gpu(queue: str) -> Json:
        return next(
            r for r in queues[queue]["resourceGroups"][0]["flavors"][0]["resources"] if "nvidia" in r["name"]
        )

    given = merged(values(CASES["tenants"]), {})["kueue"]
    assert given["sharedGpus"] == 1
    shared = {"nominalQuota": 2, "lendingLimit": 1}
    assert gpu("serving-llama-interactive") == {"name": "nvidia.com/gpu", **shared}
    assert gpu("serving-llama-batch") == {"name": "nvidia.com/gpu", "nominalQuota": 0, "lendingLimit": 0}
    assert queues["serving-llama-interactive"]["preemption"]["reclaimWithinCohort"] == "Any"
    assert queues["serving-llama-batch"]["preemption"]["reclaimWithinCohort"] == "Never"
    template = one("tenants", "Deployment", "llama-batch")["spec"]
    assert template["template"]["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "llama-batch"
    assert template["strategy"]["rollingUpdate"] == {"maxSurge": 0, "maxUnavailable": 1}


def test_hooks_check_before_and_compare_after() -> None:
    """Argo CD: both jobs, with commands that exist; the stack travels with the hook."""
    check = one("tenants", "Job", "llama-check")
    assert check["metadata"]["annotations"]["argocd.argoproj.io/hook"] == "PreSync"
    assert check["spec"]["template"]["spec"]["containers"][0]["command"][:2] == ["outrider", "check"]
    assert (
        one("tenants", "ConfigMap", "llama-check")["metadata"]["annotations"]["argocd.argoproj.io/hook"]
        == "PreSync"
    )
    gate = one("tenants", "Job", "llama-gate")
    assert gate["metadata"]["annotations"]["argocd.argoproj.io/hook"] == "PostSync"
    assert gate["spec"]["backoffLimit"] == 0
    script = gate["spec"]["template"]["spec"]["containers"][0]["command"][2]
    bench, compare = (shlex.split(line) for line in script.strip().splitlines())
    extra = gate["spec"]["template"]["spec"]["containers"][0]["command"][4:]
    assert bench_command.make_context("bench", [*bench[2:-1], *extra]).params["out"]
    words = [
        word.replace("/reference/reference", "/").replace("/scratch/candidate", "/") for word in compare[3:]
    ]
    tolerances = compare_command.make_context("compare", words).params["given"]
    assert {chosen[0]: share for chosen, share in tolerances} == {
        **dict.fromkeys(("tok_s", "ttft", "ttft_tail", "e2e_tail", "step_gap")),
        "acceptance": 0.05,
        "tpot": 0.05,
    }
    placed = load_stack_text(one("tenants", "ConfigMap", "llama-gate")["data"]["stack.yaml"], "gate")
    assert (placed.target.model, placed.draft.model) == ("/models/target", "/models/draft")


def test_the_slices_in_the_chart_are_the_budgets() -> None:
    """One table; where two cards have a slice of the same name, the smaller counts."""
    assert yaml.safe_load(slices_file())["slices"] == slices()
    assert slices()["1g.10gb"] == 9.5


def objects(given: Json, namespace: str = NAMESPACE) -> dict[tuple[str, str], Json]:
    """(kind, name) → manifest."""
    done = template("helm4", given, namespace=namespace)
    assert done.returncode == 0, done.stderr
    found = (each for each in yaml.safe_load_all(done.stdout) if each)
    return {(each["kind"], each["metadata"]["name"]): each for each in found}


CLUSTER_WIDE = {"ClusterQueue", "ResourceFlavor"}


def test_releases_of_one_name_share_nothing_that_is_the_clusters() -> None:
    """Canary and prod: what has no namespace has names of its own. A flavor that is there is used, not made."""
    given = values(CASES["tenants"])
    canary, prod = (
        {key for key in objects(given, namespace) if key[0] in CLUSTER_WIDE}
        for namespace in ("serving-canary", "serving-prod")
    )
    assert len(canary) == len(prod) == 3
    assert not canary & prod
    found = objects(merged(given, {"kueue": {"flavor": {"existing": "h200"}}}))
    assert not [key for key in found if key[0] == "ResourceFlavor"]
    for key, each in found.items():
        if key[0] == "ClusterQueue":
            assert each["spec"]["resourceGroups"][0]["flavors"][0]["name"] == "h200"


def test_releases_of_one_name_are_scaled_by_their_own_metrics() -> None:
    """prometheus-adapter's rules are the cluster's too; each HorizontalPodAutoscaler asks for what its own rules give."""
    asked = {}
    for namespace in ("serving-canary", "serving-prod"):
        found = objects(values(CASES["hpa"]), namespace)
        metrics = found["HorizontalPodAutoscaler", "llama-engine"]["spec"]["metrics"]
        asked[namespace] = {metric["external"]["metric"]["name"] for metric in metrics}
        rules = yaml.safe_load(found["ConfigMap", "llama-adapter-rules"]["data"]["externalRules.yaml"])
        assert {rule["name"]["as"] for rule in rules} == asked[namespace]
        assert all(f'namespace="{namespace}"' in rule["metricsQuery"] for rule in rules)
    assert not asked["serving-canary"] & asked["serving-prod"]


def test_without_an_autoscaler_a_front_waits_for_an_engine() -> None:
    """`min` is the autoscaler's: a front that is ready at once would let an upgrade go on without engines."""
    given = merged(values(CASES["minimal"]), {"engines": {"engine": {"min": 0}}})
    pod = objects(given)["Deployment", "llama-front"]["spec"]["template"]["spec"]
    assert "--from-zero" not in pod["containers"][0]["command"]


@pytest.mark.parametrize(
    "text",
    ["  lead\nx\n", "\n\n a\n", "end\n\n\n", "no end", "a\u2028b\n", "\x85a\n", "{{ x }}: # 'y' \"z\"\n"],
)
def test_a_file_arrives_as_it_is(text: str) -> None:
    """A chat template's every character stands in the prompt."""
    given = merged(values(CASES["mig"]), {"engines": {"engine": {"files": {TEMPLATE: text}}}})
    assert objects(given)["ConfigMap", "llama-engine-files"]["data"][TEMPLATE] == text


@pytest.mark.parametrize("name", ["1234", "true", "null"])
def test_names_that_look_like_something_else_are_names(name: str) -> None:
    """Of Secrets, claims and the like."""
    given = merged(
        values(CASES["tenants"]),
        {
            "images": {"pullSecrets": [name]},
            "keys": {"existingSecret": name},
            "engineKey": {"existingSecret": name},
            "weights": {"claim": name, "hubTokenSecret": name},
            "compileCache": {"claim": name},
            "engineDefaults": {"runtimeClassName": name, "nodeSelector": {"gpu": name}},
            "networkPolicy": {"prometheusNamespace": name},
            "argocd": {"gate": {"referenceClaim": name}},
        },
    )
    kubernetes_validate = pytest.importorskip("kubernetes_validate", reason="`make deploy-test` brings it")
    for (kind, _), each in objects(given).items():
        if kind in ("Deployment", "Job", "Service", "NetworkPolicy", "PodDisruptionBudget"):
            kubernetes_validate.validate(each, "1.37", strict=True)


def test_every_variable_is_there_once_and_the_stacks_own_wins() -> None:
    """Server-side apply, Helm 4's own way, refuses a variable that stands twice."""
    own = {"HOME": "/mine", "N": "no", "VLLM_CACHE_ROOT": "/mine/vllm"}
    given = merged(values(CASES["minimal"]), {"engines": {"engine": {"env": own}}})
    pod = objects(given)["Deployment", "llama-engine"]["spec"]["template"]["spec"]
    names = [entry["name"] for entry in pod["containers"][0]["env"]]
    assert len(names) == len(set(names))
    assert own.items() <= {entry["name"]: entry.get("value") for entry in pod["containers"][0]["env"]}.items()


def test_kubernetes_puts_no_variable_into_what_the_stack_says() -> None:
    """It would write the engine's key for `$(VLLM_API_KEY)`, and `$` for `$$`. The one that is meant stays."""
    text = (HERE / "stacks" / "sglang.yaml").read_text()
    text = text.replace("served_name: llama-3.3-70b", "served_name: $(SGLANG_API_KEY)-$$")
    text = text.replace(
        "max_running_requests: 64", "max_running_requests: 64, extra_env: {A: $(SGLANG_API_KEY)}"
    )
    stack = load_stack_text(text, "s")
    plan, _ = pod_plan(stack, engine_of(stack), installed(stack, engine_of(stack), ""))
    assert plan.argv[plan.argv.index("--served-model-name") + 1] == "$$(SGLANG_API_KEY)-$$$$"
    assert plan.argv[plan.argv.index("--api-key") + 1] == "$(SGLANG_API_KEY)"
    assert plan.env["A"] == "$$(SGLANG_API_KEY)"


def test_a_long_time_to_end_is_the_pods_too() -> None:
    """The engine's own time counts where it is the longer one."""
    text = (HERE / "stacks" / "llama.yaml").read_text()
    text = text.replace("max_running_requests: 64", "max_running_requests: 64, shutdown_grace_s: 300.5")
    stack = load_stack_text(text, "s")
    made: Json = values_of(stack, engine_of(stack), Wish(), Source(SHAPES, offline=True), lambda line: None)
    assert made["drain"] == {"streamSeconds": 301}
    command = made["engines"]["engine"]["command"]
    assert int(command[command.index("--shutdown-timeout") + 1]) <= 301


def test_the_gate_runs_where_engines_run() -> None:
    """On nodes that engines are sent to, by the runtime that gives them GPUs."""
    place = {"runtimeClassName": "nvidia", "nodeSelector": {"gpu": "h200"}}
    found = objects(merged(values(CASES["tenants"]), {"engineDefaults": place}))
    gate, engine = (
        found[key]["spec"]["template"]["spec"]
        for key in (("Job", "llama-gate"), ("Deployment", "llama-interactive"))
    )
    for part in ("runtimeClassName", "nodeSelector", "tolerations"):
        assert gate[part] == engine[part]
    assert gate["nodeSelector"] == {"gpu": "h200"}


def test_one_dashboard_shows_all_releases() -> None:
    """A second release leaves it out: Grafana takes one of that name."""
    given = values(CASES["hpa"])
    assert ("ConfigMap", "llama-dashboard") in objects(given)
    assert ("ConfigMap", "llama-dashboard") not in objects(
        merged(given, {"watching": {"dashboardLabel": ""}})
    )
