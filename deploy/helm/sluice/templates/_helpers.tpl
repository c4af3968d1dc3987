{{- define "sluice.labels" -}}
app.kubernetes.io/name: {{ .name }}
app.kubernetes.io/component: {{ .component }}
app.kubernetes.io/part-of: sluice
{{- end }}

{{- /* image: a program's, by digest if there is one */ -}}
{{- define "sluice.image" -}}
{{- $image := .root.Values.image -}}
{{- with $image.registry }}{{ trimSuffix "/" . }}/{{ end }}{{ .program }}
{{- $digest := index $image.digests .key -}}
{{- if $digest }}@{{ $digest }}{{ else }}:{{ $image.tag | default .root.Chart.AppVersion }}{{ end }}
{{- end }}

{{- /* pod: what all pods of Sluice have in common */ -}}
{{- define "sluice.pod" -}}
hostNetwork: true
dnsPolicy: Default
{{- with .Values.image.pullSecrets }}
imagePullSecrets: {{ toJson . }}
{{- end }}
{{- end }}

{{- define "sluice.etcd" -}}
{{- if .Values.etcd.embedded -}}
etcd-server-name: sluice-store
{{- else -}}
etcd-endpoints: {{ toJson .Values.etcd.endpoints }}
{{- end }}
etcd-ca: /etc/sluice/etcd/ca.crt
etcd-cert: /etc/sluice/etcd/tls.crt
etcd-key: /etc/sluice/etcd/tls.key
{{- end }}

{{- define "sluice.embeddedEtcd" -}}
embedded-etcd: true
etcd-dir: /var/lib/sluice/etcd
etcd-listen-ca: /etc/sluice/etcd/ca.crt
etcd-listen-cert: /etc/sluice/etcd/tls.crt
etcd-listen-key: /etc/sluice/etcd/tls.key
{{- end }}

{{- /* served: probes, port and address of what a program serves */ -}}
{{- define "sluice.probes" -}}
startupProbe:
  httpGet: {path: /livez, port: metrics}
  periodSeconds: 2
  failureThreshold: 60
livenessProbe:
  httpGet: {path: /livez, port: metrics}
readinessProbe:
  httpGet: {path: /readyz, port: metrics}
{{- end }}

{{- define "sluice.hostIP" -}}
- name: HOST_IP
  valueFrom:
    fieldRef: {fieldPath: status.hostIP}
{{- end }}

{{- define "sluice.agent" -}}
{{ ternary "sluice-agent-xdp" "sluice-agent-vpp" (eq .Values.dataplane "kernel") }}
{{- end }}

{{- define "sluice.agentBase" -}}
{{- if eq .Values.dataplane "kernel" -}}
renderers: [xdp]
xdp-mode: auto
xdp-pins: /bpf/sluice
{{- if .Values.agent.installCNI }}
cni-bin-dir: /opt/cni/bin
cni-options: '{"pins": "/sys/fs/bpf/sluice"}'
{{- end }}
{{- else -}}
renderers: [acl]
vpp-socket: /run/vpp/api.sock
vpp-stats-socket: /run/vpp/stats.sock
{{- end }}
{{ include "sluice.etcd" . }}
established: {{ .Values.agent.established }}
log-format: json
{{- end }}

{{- /* what users say of a setting wins */ -}}
{{- define "sluice.agentConfig" -}}
{{ toYaml (mergeOverwrite (fromYaml (include "sluice.agentBase" .)) .Values.agent.config) }}
{{- end }}

{{- define "sluice.ksrConfig" -}}
{{- $base := fromYaml (include (ternary "sluice.embeddedEtcd" "sluice.etcd" .Values.etcd.embedded) .) -}}
{{ toYaml (mergeOverwrite $base (dict "log-format" "json") .Values.reflector.config) }}
{{- end }}

{{- define "sluice.neutronConfig" -}}
{{- $base := fromYaml (include "sluice.etcd" .) -}}
{{- $cloud := dict "os-clouds-file" "/etc/sluice/cloud/clouds.yaml" "os-cloud" .Values.neutron.cloud "neutron-network" .Values.neutron.networks -}}
{{ toYaml (mergeOverwrite $base $cloud (dict "log-format" "json") .Values.neutron.config) }}
{{- end }}
