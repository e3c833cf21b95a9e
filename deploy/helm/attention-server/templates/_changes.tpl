{{/* The image's name, with its digest or its tag. */}}
{{- define "attention-server.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{/* Changes a Deployment, .manifest, by .root's values. */}}
{{- define "attention-server.deployment" -}}
{{- $values := .root.Values -}}
{{- $spec := .manifest.spec.template.spec -}}
{{- $container := index $spec.containers 0 -}}
{{- $_ := set $container "image" (include "attention-server.image" .root) -}}
{{- $_ := set $container "args" (concat $container.args $values.extraArgs) -}}
{{- with $values.resources }}{{ $_ := set $container "resources" . }}{{ end -}}
{{- range $spec.volumes -}}
{{- if .secret }}{{ $_ := set .secret "secretName" $values.tls.secretName }}{{ end -}}
{{- end -}}
{{- if not $values.autoscaler.enabled }}{{ $_ := set .manifest.spec "replicas" $values.replicas }}{{ end -}}
{{- with $values.image.pullSecrets -}}
{{- $secrets := list -}}
{{- range . }}{{ $secrets = append $secrets (dict "name" .) }}{{ end -}}
{{- $_ := set $spec "imagePullSecrets" $secrets -}}
{{- end -}}
{{- with $values.nodeSelector }}{{ $_ := set $spec "nodeSelector" . }}{{ end -}}
{{- with $values.tolerations }}{{ $_ := set $spec "tolerations" . }}{{ end -}}
{{- end -}}

{{/* Changes an autoscaler likewise. */}}
{{- define "attention-server.autoscaler" -}}
{{- $_ := set .manifest.spec "minReplicas" .root.Values.autoscaler.minReplicas -}}
{{- $_ := set .manifest.spec "maxReplicas" .root.Values.autoscaler.maxReplicas -}}
{{- end -}}
