{{/*
Recording rules and alerts. Every series has the labels `namespace`, `outrider` (the release) and `pair`, which the PodMonitor gives.
Acceptance is read from the engines' own counters as each front re-exports them: with several fronts each engine is counted as
often, which no ratio notices. Every ratio has a guard: without drafts or tokens there is no series, and no alert.
*/}}
{{- define "outrider.rules" -}}
{{- $m := include "outrider.matchers" . -}}
{{- $watching := .Values.watching -}}
{{- $baseline := .Values.pair.baseline | default dict -}}
{{- $drafts := ne .Values.pair.method "none" -}}
{{- $interactive := ternary "lane=\"interactive\"" "lane=~\".+\"" (hasKey .Values.engines "interactive") -}}
- name: outrider-{{ include "outrider.name" . }}-records
  interval: 30s
  rules:
    - record: outrider:output_tokens:rate10m
      expr: sum by (namespace, outrider, pair) (rate(outrider_output_tokens_total{ {{- $m -}} }[10m]))
    - record: outrider:requests_ok:rate10m
      expr: sum by (namespace, outrider, pair) (rate(outrider_requests_total{ {{- $m }},outcome="ok",{{ $interactive }}}[10m]))
    - record: outrider:drafts:rate10m
      expr: sum by (namespace, outrider, pair) (rate(outrider_engine_drafts_total{ {{- $m }},draft!="none"}[10m]))
    - record: outrider:acceptance_length:rate10m
      expr: >-
        1 + sum by (namespace, outrider, pair) (rate(outrider_engine_draft_tokens_accepted_total{ {{- $m -}} }[10m]))
        / (sum by (namespace, outrider, pair) (rate(outrider_engine_drafts_total{ {{- $m -}} }[10m])) > 0)
    - record: outrider:acceptance_rate:rate10m
      expr: >-
        sum by (namespace, outrider, pair) (rate(outrider_engine_draft_tokens_accepted_total{ {{- $m -}} }[10m]))
        / (sum by (namespace, outrider, pair) (rate(outrider_engine_draft_tokens_proposed_total{ {{- $m -}} }[10m])) > 0)
    - record: outrider:queue_wait_ms:max
      expr: max by (namespace, outrider) (queue_wait_ms{ {{- $m -}} })
    {{- with $baseline.breakEvenAcceptanceLength }}
    # Modelled: tokens per step over what a step with a draft costs, as `outrider bench` measured it.
    - record: outrider:net_speedup:ratio
      expr: outrider:acceptance_length:rate10m{ {{- $m -}} } / {{ . }}
    {{- end }}
    {{- with .Values.price.usdPerEngineHour }}
    - record: outrider:cost_usd_per_million_output_tokens:rate10m
      expr: >-
        {{ . }} * scalar({{ ternary "sum" "max" (hasKey $.Values.engines "interactive") }}(max by (lane) (outrider_engines_ready{ {{- $m -}} }))) / 3600 * 1e6
        / (outrider:output_tokens:rate10m{ {{- $m -}} } > 0)
    {{- end }}
- name: outrider-{{ include "outrider.name" . }}-alerts
  rules:
    - alert: OutriderQueueWaitHigh
      expr: {{ if hasKey .Values.engines "interactive" }}{{ include "outrider.queueWaitQuery" (list . (list "interactive")) }}{{ else }}{{ include "outrider.queueWaitQuery" (list . list) }}{{ end }} > {{ .Values.autoscaling.queueWaitMs }}
      for: 10m
      labels: {severity: warning, namespace: {{ .Release.Namespace | quote }}, outrider: {{ include "outrider.name" . | quote }}, pair: {{ .Values.pair.hash | quote }}}
      annotations:
        summary: 'Requests wait {{`{{ $value | printf "%.0f" }}`}} ms for an engine, p90'
        description: The target is {{ .Values.autoscaling.queueWaitMs }} ms. Scaling should have answered by now.
        runbook_url: {{ printf "%s#outriderqueuewaithigh" $watching.runbook | quote }}
    - alert: OutriderNoEngine
      expr: max by (namespace, outrider, lane) (outrider_engines_ready{ {{- $m }},{{ $interactive }}}) == 0
      for: 10m
      labels: {severity: critical, pair: {{ .Values.pair.hash | quote }}}
      annotations:
        summary: 'No engine serves the lane {{`{{ $labels.lane }}`}}'
        description: Requests of this lane wait in the front until their queue timeout.
        runbook_url: {{ printf "%s#outridernoengine" $watching.runbook | quote }}
    - alert: OutriderEngineErrors
      expr: >-
        sum by (namespace, outrider, pair) (rate(outrider_requests_total{ {{- $m }},outcome=~"engine_error|deadline"}[10m]))
        / (sum by (namespace, outrider, pair) (rate(outrider_requests_total{ {{- $m -}} }[10m])) > 0) > 0.02
      for: 10m
      labels: {severity: critical}
      annotations:
        summary: '{{`{{ $value | humanizePercentage }}`}} of requests fail in an engine or at the deadline'
        description: Streams broke off or never began.
        runbook_url: {{ printf "%s#outriderengineerrors" $watching.runbook | quote }}
    {{- with .Values.slo.ttftP99Ms }}
    - alert: OutriderFirstTokenSlow
      expr: >-
        1000 * histogram_quantile(0.99, sum by (namespace, outrider, pair, le) (rate(outrider_time_to_first_token_seconds_bucket{ {{- $m }},{{ $interactive }}}[10m]))) > {{ . }}
      for: 10m
      labels: {severity: warning}
      annotations:
        summary: 'p99 time to first token is {{`{{ $value | printf "%.0f" }}`}} ms'
        description: The stack promises {{ . }} ms.
        runbook_url: {{ printf "%s#outriderfirsttokenslow" $watching.runbook | quote }}
    {{- end }}
    {{- with .Values.slo.tpotP99Ms }}
    - alert: OutriderTokensSlow
      expr: >-
        1000 * histogram_quantile(0.99, sum by (namespace, outrider, pair, le) (rate(outrider_time_per_output_token_seconds_bucket{ {{- $m }},{{ $interactive }}}[10m]))) > {{ . }}
      for: 10m
      labels: {severity: warning}
      annotations:
        summary: 'p99 time per output token is {{`{{ $value | printf "%.1f" }}`}} ms'
        description: The stack promises {{ . }} ms.
        runbook_url: {{ printf "%s#outridertokensslow" $watching.runbook | quote }}
    {{- end }}
    {{- if $drafts }}
    - alert: OutriderSpecSilent
      expr: >-
        outrider:requests_ok:rate10m{ {{- $m -}} } > 0
        unless on (namespace, outrider, pair) outrider:drafts:rate10m{ {{- $m -}} } > 0
      for: 15m
      labels: {severity: warning}
      annotations:
        summary: Tokens flow and nothing is drafted
        description: The pair has a draft ({{ .Values.pair.method }}), and no engine step of the last 10 minutes had one.
        runbook_url: {{ printf "%s#outriderspecsilent" $watching.runbook | quote }}
    - alert: OutriderDraftBroken
      expr: max by (namespace, outrider, pair) (outrider_draft_broken{ {{- $m -}} }) == 1
      for: 1m
      labels: {severity: warning}
      annotations:
        summary: The draft proposes and nothing is accepted
        description: An engine's start-up probe saw drafts and no accepted token. Target and draft may be of different pairs.
        runbook_url: {{ printf "%s#outriderdraftbroken" $watching.runbook | quote }}
    - alert: OutriderAcceptanceDrift
      # The last hour against the day before it: a change of traffic or of the target that no single sample shows.
      expr: >-
        (avg_over_time(outrider:acceptance_length:rate10m{ {{- $m -}} }[1h]) - 1)
        < 0.9 * (avg_over_time(outrider:acceptance_length:rate10m{ {{- $m -}} }[24h] offset 1h) - 1)
      for: 2h
      labels: {severity: info}
      annotations:
        summary: The draft gives 10 % less than the day before
        description: Mean AL - 1 of the last hour against that of the 24 hours before it.
        runbook_url: {{ printf "%s#outrideracceptancedrift" $watching.runbook | quote }}
    - alert: OutriderFallbackActive
      expr: max by (namespace, outrider, pair, draft) (outrider_draft_in_force{ {{- $m }},draft!="{{ .Values.pair.method }}"}) == 1
      for: 10m
      labels: {severity: info}
      annotations:
        summary: 'New requests run with {{`{{ $labels.draft }}`}} instead of {{ .Values.pair.method }}'
        description: The pair's own draft did not pay, so it is not in force.
        runbook_url: {{ printf "%s#outriderfallbackactive" $watching.runbook | quote }}
    {{- with $baseline.acceptanceLength }}
    - alert: OutriderAcceptanceLow
      expr: >-
        (outrider:acceptance_length:rate10m{ {{- $m -}} } - 1) < {{ mulf (subf . 1) $watching.acceptanceShare }}
        and on (namespace, outrider, pair) outrider:drafts:rate10m > 0.1
      for: 15m
      labels: {severity: warning}
      annotations:
        summary: 'AL - 1 is {{`{{ $value | printf "%.2f" }}`}}'
        description: {{ printf "Under %v of the pair's baseline, AL %v (%s)." $watching.acceptanceShare . ($baseline.source | default "as given" | replace "{{" "{ {") | quote }}
        runbook_url: {{ printf "%s#outrideracceptancelow" $watching.runbook | quote }}
    {{- end }}
    {{- if $baseline.breakEvenAcceptanceLength }}
    - alert: OutriderSpecSlower
      expr: outrider:net_speedup:ratio{ {{- $m -}} } < 1
      for: 15m
      labels: {severity: warning}
      annotations:
        summary: 'Speculation makes it slower, {{`{{ $value | printf "%.2f" }}`}} times the speed without (modelled)'
        description: AL is under {{ $baseline.breakEvenAcceptanceLength }}, where a draft just pays by the step times of `outrider bench`.
        runbook_url: {{ printf "%s#outriderspecslower" $watching.runbook | quote }}
    {{- end }}
    {{- if gt ($watching.positionZeroRate | float64) 0.0 }}
    - alert: OutriderPositionZeroLow
      expr: >-
        sum by (namespace, outrider, pair) (rate(vllm:spec_decode_num_accepted_tokens_per_pos_total{ {{- $m }},position="0"}[10m]))
        / (sum by (namespace, outrider, pair) (rate(vllm:spec_decode_num_drafts_total{ {{- $m -}} }[10m])) > 0.1) < {{ $watching.positionZeroRate }}
      for: 15m
      labels: {severity: warning}
      annotations:
        summary: 'Position 0 is accepted in {{`{{ $value | humanizePercentage }}`}} of drafts'
        description: The first drafted token depends least on K.
        runbook_url: {{ printf "%s#outriderpositionzerolow" $watching.runbook | quote }}
    {{- end }}
    {{- end }}
{{- end -}}
