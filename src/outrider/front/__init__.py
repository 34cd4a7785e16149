"""The OpenAI-compatible door.

A request's life: `app.ClientConnection` reads it → `auth` and `routes` know who asks what → `body` edits it →
`admission` queues it → `dispatch.Dispatcher` gives it an upstream and the draft in force → `proxy.Exchange` passes the
stream on as it comes → `stream.UsageFilter` takes the usage chunk out → `journal` writes its lines and metrics.
"""
