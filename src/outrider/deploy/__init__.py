"""From a stack to a cluster: the values of a Helm chart that is part of this package, and how many engines a load takes."""
