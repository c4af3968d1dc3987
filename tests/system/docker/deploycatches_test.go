package docker

import (
	"testing"

	"github.com/sluice-net/sluice/tests/lab/deployed"
)

// TestManifestErrorsAreFound breaks the manifests as changes elsewhere would.
func TestManifestErrorsAreFound(t *testing.T) {
	for name, tc := range map[string]struct{ file, was, is, want string }{
		"a field that is not":                 {"agent-vpp.yaml", "hostNetwork:", "hostNetworking:", "hostNetworking"},
		"a field at another place":            {"ksr.yaml", "spec:\n  replicas: 2", "replicas: 2\nspec:", `unknown field "replicas"`},
		"a version that is not":               {"ksr.yaml", "policy/v1\n", "policy/v1beta1\n", "is not known here"},
		"a command that is not":               {"agent-vpp.yaml", "[run, ", "[start, ", `unknown command "start"`},
		"a flag that is not":                  {"ksr.yaml", "[--config,", "[--conf,", "unknown flag: --conf"},
		"a variable that is not":              {"agent-xdp.yaml", "SLUICE_NODE", "SLUICE_NODE_NAME", "no setting SLUICE_NODE_NAME"},
		"a key that is not":                   {"agent-xdp.yaml", "xdp-pins:", "xdp-pin:", "no setting SLUICE_XDP_PIN"},
		"a path that is not mounted":          {"agent-xdp.yaml", "xdp-pins: /bpf/sluice", "xdp-pins: /sys/fs/bpf/sluice", "is on nothing that is mounted"},
		"a socket that is not mounted":        {"agent-vpp.yaml", "mountPath: /run/vpp", "mountPath: /run/vpps", "vpp-socket: /run/vpp/api.sock"},
		"a file of settings that is not":      {"ksr.yaml", "subPath: ksr.yaml", "subPath: config.yaml", "has no config.yaml"},
		"settings at another path":            {"ksr.yaml", "mountPath: /etc/sluice/ksr.yaml", "mountPath: /etc/ksr.yaml", "nothing is mounted at"},
		"a volume that is not":                {"agent-vpp.yaml", "        - name: state\n          hostPath", "        - name: states\n          hostPath", "no volume state"},
		"a folder that the kubelet may make":  {"agent-vpp.yaml", "path: /run/vpp\n            type: Directory\n", "path: /run/vpp\n", "/run/vpp has no type"},
		"a registry":                          {"agent-vpp.yaml", "image: sluice-agent:", "image: registry.example/sluice-agent:", "names a registry"},
		"no version of an image":              {"agent-vpp.yaml", "busybox:1.37", "busybox", "has no version"},
		"another program":                     {"ksr.yaml", "image: sluice-ksr:", "image: sluice-agent:", "runs the image"},
		"a probe of what is not served":       {"agent-vpp.yaml", "path: /readyz", "path: /healthz", "no probe asks for /readyz"},
		"a probe of another port":             {"ksr.yaml", "port: metrics", "port: http", "no probe asks for /livez"},
		"another port than is served":         {"ksr.yaml", "containerPort: 9416", "containerPort: 9417", "metrics are served at"},
		"an address that the kubelet is not":  {"ksr.yaml", `"[$(HOST_IP)]:9416"`, `"127.0.0.1:9416"`, "metrics are served at"},
		"an address that is not known":        {"ksr.yaml", "status.hostIP", "status.podIP", "HOST_IP must be set"},
		"a selector of other pods":            {"agent-xdp.yaml", "      labels:\n        app.kubernetes.io/name: sluice-agent-xdp", "      labels:\n        app.kubernetes.io/name: sluice-agent", "the selector is not"},
		"a right too much":                    {"agent-xdp.yaml", "[BPF, NET_ADMIN, PERFMON]", "[BPF, NET_ADMIN, PERFMON, SYS_ADMIN]", "capabilities are"},
		"a right too few":                     {"agent-xdp.yaml", "[BPF, NET_ADMIN, PERFMON]", "[BPF, NET_ADMIN]", "capabilities are"},
		"root where it is not needed":         {"agent-vpp.yaml", "runAsNonRoot: true", "runAsUser: 0", "and root: false"},
		"a writable file system":              {"agent-vpp.yaml", "readOnlyRootFilesystem: true", "readOnlyRootFilesystem: false", "rights that it does not need"},
		"no filter of calls":                  {"ksr.yaml", "type: RuntimeDefault", "type: Unconfined", "RuntimeDefault"},
		"no limit of memory":                  {"agent-xdp.yaml", "            limits:\n              memory: 2Gi\n", "", "container agent has no limit of memory"},
		"no limit beside it":                  {"agent-vpp.yaml", "            limits:\n              memory: 128Mi\n", "", "container cni has no limit of memory"},
		"no limit before it":                  {"agent-vpp.yaml", "            limits:\n              memory: 32Mi\n", "", "container folders has no limit of memory"},
		"the pins of others":                  {"agent-xdp.yaml", "              subPath: sluice\n", "", "the bpf file system is mounted as a whole"},
		"no requests":                         {"agent-vpp.yaml", "              memory: 128Mi\n", "", "requests of processor and memory"},
		"a taint that keeps it away":          {"agent-vpp.yaml", "        - operator: Exists", "        - key: a\n          operator: Exists", `the taint ""`},
		"a control plane that keeps it away":  {"ksr.yaml", "node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master", "control-plane"},
		"pods that are replaced by hand":      {"agent-vpp.yaml", "type: RollingUpdate", "type: OnDelete", "step by step"},
		"a budget of other pods":              {"ksr.yaml", "  maxUnavailable: 1\n  selector:\n    matchLabels:\n      app.kubernetes.io/name: sluice-ksr", "  maxUnavailable: 1\n  selector:\n    matchLabels:\n      app.kubernetes.io/name: ksr", "want a budget"},
		"a rollout that needs another node":   {"ksr.yaml", "maxSurge: 0", "maxSurge: 1", "a rollout cannot finish"},
		"a rollout that may stop no pod":      {"ksr.yaml", "      maxUnavailable: 1\n", "      maxUnavailable: 0\n", "a rollout cannot finish"},
		"a rollout as Kubernetes does it":     {"ksr.yaml", "    rollingUpdate:\n      maxSurge: 0\n      maxUnavailable: 1\n", "", "a rollout cannot finish"},
		"a place that may not be there":       {"ksr.yaml", "preferredDuringSchedulingIgnoredDuringExecution:\n            - weight: 100\n              podAffinityTerm:\n                topologyKey: kubernetes.io/hostname\n                labelSelector:\n                  matchLabels:\n                    app", "requiredDuringSchedulingIgnoredDuringExecution:\n            - topologyKey: kubernetes.io/hostname\n              labelSelector:\n                matchLabels:\n                  app", "anti-affinity is required"},
		"pods that are evicted before others": {"agent-xdp.yaml", "system-node-critical", "system-cluster-critical", "want priorityClassName"},
	} {
		t.Run(name, func(t *testing.T) {
			text := edit(t, read(t, deployed.Path(tc.file)), tc.was, tc.is)
			wantProblem(t, checkManifest(text, manifests[tc.file]), tc.want)
		})
	}
}
