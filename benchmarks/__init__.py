"""Measurements that judge: each exits non-zero when its limit is broken."""
