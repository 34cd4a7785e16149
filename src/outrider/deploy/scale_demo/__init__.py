"""Scale-out, shown: a real Prometheus and the real front, replicas that are processes, the autoscaler's documented arithmetic."""
