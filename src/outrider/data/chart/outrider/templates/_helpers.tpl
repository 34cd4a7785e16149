{{- define "outrider.name" -}}
{{- .Release.Name -}}
{{- end -}}

{{/* Labels that a selector may have: nothing of them changes with an upgrade. (list root component [engine]) */}}
{{- define "outrider.selector" -}}
app.kubernetes.io/name: outrider
app.kubernetes.io/instance: {{ (index . 0).Release.Name | quote }}
app.kubernetes.io/component: {{ index . 1 }}
{{- if gt (len .) 2 }}
outrider/engine: {{ index . 2 | quote }}
{{- end }}
{{- end -}}

{{- define "outrider.labels" -}}
{{ include "outrider.selector" . }}
app.kubernetes.io/version: {{ (index . 0).Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ (index . 0).Release.Service }}
outrider/pair: {{ (index . 0).Values.pair.hash | quote }}
{{- end -}}

{{/* One mapping over another, key by key: `merge` takes 0 and false for "not given". (list below above) */}}
{{- define "outrider.over" -}}
{{- $result := deepCopy (index . 0) -}}
{{- range $name, $value := index . 1 }}{{ $_ := set $result $name $value }}{{ end -}}
{{- toYaml $result -}}
{{- end -}}

{{/* The pair's name: 16 hex digits of SHA-256 over both sides' content ids. Source: outrider.stack.manifest.pair_id */}}
{{- define "outrider.pairHash" -}}
{{- $sides := list -}}
{{- range $side := list .target.content .draft.content -}}
{{- $rows := list -}}
{{- range $name := keys $side | sortAlpha -}}
{{- $rows = append $rows (list $name (get $side $name | toString)) -}}
{{- end -}}
{{- $sides = append $sides $rows -}}
{{- end -}}
{{- $sides | toRawJson | sha256sum | trunc 16 -}}
{{- end -}}

{{/* The stack as `outrider serve` takes it: the block `stack`, with the pair's models. */}}
{{- define "outrider.stack" -}}
{{- $stack := deepCopy .Values.stack -}}
{{- $target := include "outrider.over" (list $stack.target (omit .Values.pair.target "content")) | fromYaml -}}
{{- $draft := include "outrider.over" (list ($stack.draft | default dict) (omit .Values.pair.draft "content" "sha256")) | fromYaml -}}
{{- $_ := set $draft "method" .Values.pair.method -}}
{{- set (set $stack "target" $target) "draft" $draft | toYaml -}}
{{- end -}}

{{- define "outrider.keysSecret" -}}
{{- .Values.keys.existingSecret | default (printf "%s-keys" (include "outrider.name" .)) -}}
{{- end -}}

{{- define "outrider.engineKeySecret" -}}
{{- .Values.engineKey.existingSecret | default (printf "%s-engine-key" (include "outrider.name" .)) -}}
{{- end -}}

{{- define "outrider.podSecurity" -}}
automountServiceAccountToken: false
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
{{- with .Values.images.pullSecrets }}
imagePullSecrets:
{{- range . }}
  - name: {{ . | quote }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "outrider.containerSecurity" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end -}}

{{/* Where a pod with an engine may run. (the engine, laid over engineDefaults) */}}
{{- define "outrider.placement" -}}
{{- with .runtimeClassName }}
runtimeClassName: {{ . | quote }}
{{- end }}
{{- with .nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- if and (get .resources "gpu") .tolerations }}
tolerations: {{- toYaml .tolerations | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Until the pod may be killed: preStop, then the streams, then a margin. */}}
{{- define "outrider.graceSeconds" -}}
{{- add .Values.drain.preStopSeconds .Values.drain.streamSeconds .Values.drain.marginSeconds -}}
{{- end -}}

{{/* The engine as the stack names it. */}}
{{- define "outrider.engineName" -}}
{{- get (get .Values.stack "engine" | default dict) "name" | default "vllm" -}}
{{- end -}}

{{/* Outrider is in vLLM's image, which is built from this project's Dockerfile; beside another engine the front's fetches. */}}
{{- define "outrider.weightsImage" -}}
{{- ternary .Values.images.engine .Values.images.front (eq (include "outrider.engineName" .) "vllm") -}}
{{- end -}}

{{/* An engine's variables, each once: what it writes goes to the volume, and the stack's own wins. (list root engine) */}}
{{- define "outrider.engineEnv" -}}
{{- $env := dict "HOME" "/cache" "XDG_CACHE_HOME" "/cache" "TRITON_CACHE_DIR" "/cache/triton" "TORCHINDUCTOR_CACHE_DIR" "/cache/inductor" -}}
{{- if eq (include "outrider.engineName" (index . 0)) "vllm" }}{{ $_ := set $env "VLLM_CACHE_ROOT" "/cache/vllm" }}{{ end -}}
{{- include "outrider.over" (list $env ((index . 1).env | default dict)) -}}
{{- end -}}

{{/* The volume `models` of a pod that loads the pair. */}}
{{- define "outrider.modelsVolume" -}}
- name: models
{{- with .Values.weights }}
{{- if eq .source "image" }}
  image: {reference: {{ .image | quote }}, pullPolicy: {{ $.Values.images.pullPolicy }}}
{{- else if .claim }}
  persistentVolumeClaim: {claimName: {{ .claim | quote }}{{ if eq .source "claim" }}, readOnly: true{{ end }}}
{{- else }}
  ephemeral:
    volumeClaimTemplate:
      spec:
        accessModes: [ReadWriteOnce]
        {{- with .storageClass }}
        storageClassName: {{ . | quote }}
        {{- end }}
        resources: {requests: {storage: {{ .size }}}}
{{- end }}
{{- end }}
{{- end -}}

{{/* Where the pair lies on the volume: a shared claim keeps several pairs apart, so that a roll-back finds its own. */}}
{{- define "outrider.modelsSubPath" -}}
{{- if and (eq .Values.weights.source "download") .Values.weights.claim }}pairs/{{ .Values.pair.hash }}{{ end -}}
{{- end -}}

{{/* Labels by which every query finds this release's series. */}}
{{- define "outrider.matchers" -}}
namespace="{{ .Release.Namespace }}",outrider="{{ include "outrider.name" . }}"
{{- end -}}

{{/* The query behind the autoscaler: exactly one series. (list root lanes) */}}
{{- define "outrider.queueWaitQuery" -}}
{{- $root := index . 0 -}}{{- $lanes := index . 1 -}}
{{- if $lanes -}}
1000 * max(outrider_lane_queue_wait_seconds{ {{- include "outrider.matchers" $root }},lane=~"{{ join "|" $lanes }}"})
{{- else -}}
max(queue_wait_ms{ {{- include "outrider.matchers" $root -}} })
{{- end -}}
{{- end -}}

{{- define "outrider.runningQuery" -}}
{{- $root := index . 0 -}}{{- $lanes := index . 1 -}}
{{- if $lanes -}}
sum(outrider_lane_requests_running{ {{- include "outrider.matchers" $root }},lane=~"{{ join "|" $lanes }}"})
{{- else -}}
sum(outrider_requests_running{ {{- include "outrider.matchers" $root -}} })
{{- end -}}
{{- end -}}

{{/* Name of an external metric: letters, digits, underscores; the adapter has one list of them for the cluster. (list root engine) */}}
{{- define "outrider.externalName" -}}
outrider_{{ printf "%s_%s_%s" (index . 0).Release.Namespace (include "outrider.name" (index . 0)) (index . 1) | replace "-" "_" }}
{{- end -}}

{{- define "outrider.behavior" -}}
scaleUp:
  stabilizationWindowSeconds: {{ .Values.autoscaling.up.windowSeconds }}
  selectPolicy: Max
  policies: [{type: Pods, value: {{ .Values.autoscaling.up.pods }}, periodSeconds: {{ .Values.autoscaling.up.periodSeconds }}}]
scaleDown:
  stabilizationWindowSeconds: {{ .Values.autoscaling.down.windowSeconds }}
  selectPolicy: Max
  policies: [{type: Pods, value: {{ .Values.autoscaling.down.pods }}, periodSeconds: {{ .Values.autoscaling.down.periodSeconds }}}]
{{- end -}}

{{/* The stack with its models where the weights container puts them. */}}
{{- define "outrider.placedStack" -}}
{{- $stack := include "outrider.stack" . | fromYaml -}}
{{- $target := set (omit $stack.target "revision" "sha256") "model" "/models/target" -}}
{{- $draft := omit $stack.draft "revision" -}}
{{- if has $stack.draft.method (list "eagle3" "p-eagle" "draft-model") }}{{ $_ := set $draft "model" "/models/draft" }}{{ end -}}
{{- set (set $stack "target" $target) "draft" $draft | toYaml -}}
{{- end -}}
