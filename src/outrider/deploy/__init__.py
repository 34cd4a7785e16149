"""The pair on Kubernetes: a stack and its launch plan become the values of a Helm chart that is part of this package."""
