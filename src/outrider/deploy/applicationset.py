"""An Argo CD ApplicationSet: one Application an environment, canary first, prod when canary is healthy.

A sync whose hooks fail leaves its Application unhealthy, so a pair that `outrider check` refuses never reaches the pods, and one
that `outrider compare` finds worse never leaves canary.

Source: Argo CD's documentation of ApplicationSets: Git files generator, Go templates, progressive syncs (RollingSync).
"""

from __future__ import annotations

ENVIRONMENTS = ("canary", "prod")


def applicationset(release: str, repository: str, namespace: str) -> dict[str, object]:
    """The manifest. `repository` has the chart as ``chart/`` and each environment's values as ``envs/ENV/values.yaml``."""
    steps = [
        {"matchExpressions": [{"key": "outrider/environment", "operator": "In", "values": [environment]}]}
        for environment in ENVIRONMENTS
    ]
    source = {
        "repoURL": repository,
        "targetRevision": "HEAD",
        "path": "chart",
        # above the chart's folder; a path from the repository's root
        "helm": {"releaseName": release, "valueFiles": ["/{{.path.path}}/values.yaml"]},
    }
    application = {
        "metadata": {
            "name": f"{release}-{{{{.path.basename}}}}",
            "labels": {"outrider/environment": "{{.path.basename}}"},
        },
        "spec": {
            "project": "default",
            "source": source,
            "destination": {
                "server": "https://kubernetes.default.svc",
                "namespace": f"{namespace}-{{{{.path.basename}}}}",
            },
            "syncPolicy": {
                "syncOptions": ["CreateNamespace=true", "RespectIgnoreDifferences=true"],
                "retry": {"limit": 1},
            },
            # the autoscaler's, not Git's
            "ignoreDifferences": [
                {"group": "apps", "kind": "Deployment", "jsonPointers": ["/spec/replicas"]}
            ],
        },
    }
    return {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "ApplicationSet",
        "metadata": {"name": release, "namespace": "argocd"},
        "spec": {
            "goTemplate": True,
            "goTemplateOptions": ["missingkey=error"],
            "generators": [
                {
                    "git": {
                        "repoURL": repository,
                        "revision": "HEAD",
                        "files": [
                            {"path": f"envs/{environment}/values.yaml"} for environment in ENVIRONMENTS
                        ],
                    }
                }
            ],
            "strategy": {"type": "RollingSync", "rollingSync": {"steps": steps}},
            "template": application,
        },
    }
