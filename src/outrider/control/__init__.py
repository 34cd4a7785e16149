"""The loop beside the front: upstreams, readiness, scraping, restarts."""
