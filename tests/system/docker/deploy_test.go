package docker

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"

	"github.com/sluice-net/sluice/internal/lib/settings"
	"github.com/sluice-net/sluice/tests/lab/deployed"
)

// manifest describes what a file of deploy/ runs.
type manifest struct {
	program string
	command []string // of the program; empty where it has none
	caps    []corev1.Capability
	root    bool
	beside  []string // further containers that run the same program, as root without capabilities
}

var manifests = map[string]manifest{
	"ksr.yaml":       {program: "sluice-ksr"},
	"neutron.yaml":   {program: "sluice-neutron"},
	"agent-vpp.yaml": {program: "sluice-agent", command: []string{"run"}, beside: []string{"cni"}},
	"agent-xdp.yaml": {program: "sluice-agent", command: []string{"run"}, caps: []corev1.Capability{"BPF", "NET_ADMIN", "PERFMON"}, root: true},
}

func TestManifestsNameExistingThings(t *testing.T) {
	for name, m := range manifests {
		for _, p := range checkManifest(read(t, deployed.Path(name)), m) {
			t.Errorf("%s: %s", name, p)
		}
	}
}

// checkManifest returns what is wrong with a file of deploy/.
func checkManifest(text string, m manifest) (problems []string) {
	f, err := deployed.Parse(text)
	if err != nil {
		return []string{err.Error()}
	}
	w := f.Workload
	if s, err := metav1.LabelSelectorAsSelector(w.Selector); err != nil || !s.Matches(labels.Set(w.Pod.Labels)) {
		problems = append(problems, "the selector is not that of its pods")
	}
	for _, c := range slices.Concat(w.Pod.Spec.InitContainers, w.Pod.Spec.Containers) {
		problems = append(problems, checkImage(c.Image)...)
		problems = append(problems, checkVolumes(w.Pod.Spec, c)...)
	}
	c := w.Pod.Spec.Containers[0]
	var beside []string
	for _, o := range w.Pod.Spec.Containers[1:] {
		beside = append(beside, o.Name)
		problems = append(problems, checkCommand(m.program, o.Args)...)
		problems = append(problems, checkRights(corev1.PodSpec{SecurityContext: w.Pod.Spec.SecurityContext}, o, manifest{root: true})...)
		if o.Image != c.Image {
			problems = append(problems, "container "+o.Name+" has another image")
		}
	}
	if !slices.Equal(beside, m.beside) {
		problems = append(problems, fmt.Sprintf("further containers are %v, want %v", beside, m.beside))
	}
	if image, _, _ := strings.Cut(c.Image, ":"); image != m.program {
		problems = append(problems, fmt.Sprintf("runs the image %s, not %s", c.Image, m.program))
	}
	problems = append(problems, checkCommand(m.program, c.Args)...)
	for _, e := range c.Env {
		problems = append(problems, checkSetting(m.program, m.command, e.Name)...)
	}
	return slices.Concat(problems, checkConfig(f, c, m), checkAddress(w.Pod.Spec, c), checkRights(w.Pod.Spec, c, m), checkPlace(f), checkRollout(w))
}

// checkConfig checks that the file of --config is mounted, and that its keys are settings.
func checkConfig(f deployed.File, c corev1.Container, m manifest) (problems []string) {
	at := slices.Index(c.Args, "--config")
	if at < 0 || at+1 == len(c.Args) {
		return []string{"--config is missing"}
	}
	i := slices.IndexFunc(c.VolumeMounts, func(v corev1.VolumeMount) bool { return v.MountPath == c.Args[at+1] })
	if i < 0 {
		return []string{"nothing is mounted at " + c.Args[at+1]}
	}
	v := f.Workload.Pod.Spec.Volumes
	j := slices.IndexFunc(v, func(v corev1.Volume) bool { return v.Name == c.VolumeMounts[i].Name && v.ConfigMap != nil })
	if j < 0 {
		return []string{c.Args[at+1] + " is of no ConfigMap"}
	}
	text, ok := f.Configs[v[j].ConfigMap.Name].Data[c.VolumeMounts[i].SubPath]
	if !ok {
		return []string{fmt.Sprintf("ConfigMap %s has no %s", v[j].ConfigMap.Name, c.VolumeMounts[i].SubPath)}
	}
	var set map[string]any
	if err := yaml.UnmarshalStrict([]byte(text), &set); err != nil {
		return []string{err.Error()}
	}
	for _, key := range slices.Sorted(maps.Keys(set)) {
		problems = append(problems, checkSetting(m.program, m.command, settings.EnvPrefix+strings.ToUpper(strings.ReplaceAll(key, "-", "_")))...)
		if p, ok := set[key].(string); ok && path.IsAbs(p) && !isMounted(c, p) {
			problems = append(problems, fmt.Sprintf("%s: %s is on nothing that is mounted", key, p))
		}
	}
	return problems
}

func isMounted(c corev1.Container, file string) bool {
	return slices.ContainsFunc(c.VolumeMounts, func(v corev1.VolumeMount) bool { return strings.HasPrefix(file+"/", v.MountPath+"/") })
}

// checkVolumes checks that what is mounted is a volume, and that the kubelet creates no folder on
// the node that another program should have created.
func checkVolumes(pod corev1.PodSpec, c corev1.Container) (problems []string) {
	for _, m := range c.VolumeMounts {
		i := slices.IndexFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name })
		if i < 0 {
			problems = append(problems, "there is no volume "+m.Name)
			continue
		}
		host := pod.Volumes[i].HostPath
		if host != nil && strings.HasPrefix(host.Path+"/", "/sys/fs/bpf/") && path.Join(host.Path, m.SubPath) == "/sys/fs/bpf" {
			problems = append(problems, "the bpf file system is mounted as a whole, with the pins of others")
		}
		if host != nil && (host.Type == nil || *host.Type == corev1.HostPathUnset) {
			problems = append(problems, "the hostPath "+host.Path+" has no type")
		}
	}
	return problems
}

// checkAddress checks that the probes ask where the program listens.
func checkAddress(pod corev1.PodSpec, c corev1.Container) (problems []string) {
	i := slices.IndexFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == "SLUICE_METRICS_ADDRESS" })
	if i < 0 || len(c.Ports) != 1 {
		return []string{"want SLUICE_METRICS_ADDRESS and one port"}
	}
	if want := fmt.Sprintf("[$(HOST_IP)]:%d", c.Ports[0].ContainerPort); !pod.HostNetwork || c.Env[i].Value != want {
		problems = append(problems, fmt.Sprintf("metrics are served at %s, want %s in the network of the node", c.Env[i].Value, want))
	}
	before := slices.ContainsFunc(c.Env[:i], func(e corev1.EnvVar) bool {
		return e.Name == "HOST_IP" && e.ValueFrom != nil && e.ValueFrom.FieldRef != nil && e.ValueFrom.FieldRef.FieldPath == "status.hostIP"
	})
	if !before {
		problems = append(problems, "HOST_IP must be set ahead of what uses it, to the node's address")
	}
	for probe, p := range map[string]*corev1.Probe{"/livez": c.LivenessProbe, "/readyz": c.ReadinessProbe} {
		if p == nil || p.HTTPGet == nil || p.HTTPGet.Path != probe || p.HTTPGet.Port.StrVal != c.Ports[0].Name || p.HTTPGet.Host != "" {
			problems = append(problems, "no probe asks for "+probe+" at the port")
		}
	}
	return problems
}

// checkRights checks that a container has the rights that it needs, and no more.
func checkRights(pod corev1.PodSpec, c corev1.Container, m manifest) (problems []string) {
	if pod.SecurityContext == nil || pod.SecurityContext.SeccompProfile == nil || pod.SecurityContext.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
		problems = append(problems, "want seccompProfile RuntimeDefault")
	}
	for _, c := range append(slices.Clone(pod.InitContainers), c) {
		s := c.SecurityContext
		if s == nil || s.Capabilities == nil || !slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) ||
			s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation || s.ReadOnlyRootFilesystem == nil || !*s.ReadOnlyRootFilesystem || s.Privileged != nil {
			problems = append(problems, "container "+c.Name+" has rights that it does not need")
			return problems
		}
	}
	if s := c.SecurityContext; !slices.Equal(s.Capabilities.Add, m.caps) || m.root != (s.RunAsUser != nil && *s.RunAsUser == 0) || m.root == (s.RunAsNonRoot != nil && *s.RunAsNonRoot) {
		problems = append(problems, fmt.Sprintf("capabilities are %v, want %v, and root: %t", s.Capabilities.Add, m.caps, m.root))
	}
	for _, c := range append(slices.Clone(pod.InitContainers), c) {
		if c.Resources.Requests.Cpu().IsZero() || c.Resources.Requests.Memory().IsZero() {
			problems = append(problems, "requests of processor and memory are missing")
		}
		if c.Resources.Limits.Memory().IsZero() {
			problems = append(problems, "container "+c.Name+" has no limit of memory")
		}
	}
	return problems
}

// checkPlace checks where pods run, and how they are replaced.
func checkPlace(f deployed.File) (problems []string) {
	w := f.Workload
	tolerates := func(key string) bool {
		return slices.ContainsFunc(w.Pod.Spec.Tolerations, func(t corev1.Toleration) bool { return t.Operator == corev1.TolerationOpExists && t.Key == key })
	}
	keys := []string{"node.kubernetes.io/not-ready", "node.kubernetes.io/network-unavailable", "node-role.kubernetes.io/control-plane"}
	priority := "system-cluster-critical"
	if w.Kind == "DaemonSet" {
		keys, priority = []string{""}, "system-node-critical" // everything is tolerated
		if w.Update == nil || w.Update.MaxUnavailable == nil {
			problems = append(problems, "pods are not replaced step by step")
		}
	} else if len(f.Budgets) != 1 || f.Budgets[0].Spec.MaxUnavailable.IntValue() != 1 || !maps.Equal(f.Budgets[0].Spec.Selector.MatchLabels, w.Selector.MatchLabels) {
		problems = append(problems, "want a budget of one pod that may be missing")
	}
	for _, key := range keys {
		if !tolerates(key) {
			problems = append(problems, fmt.Sprintf("the taint %q is not tolerated", key))
		}
	}
	if w.Pod.Spec.PriorityClassName != priority {
		problems = append(problems, "want priorityClassName "+priority)
	}
	return problems
}

// checkRollout checks that a rollout can finish on as few nodes as there are pods: where two
// pods cannot be on one node, a new one gets a place only after an old one has left it.
func checkRollout(w deployed.Workload) (problems []string) {
	required := w.Pod.Spec.Affinity != nil && w.Pod.Spec.Affinity.PodAntiAffinity != nil &&
		len(w.Pod.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution) > 0
	alone := required || slices.ContainsFunc(w.Pod.Spec.Containers, func(c corev1.Container) bool {
		return slices.ContainsFunc(c.Ports, func(p corev1.ContainerPort) bool { return p.HostPort != 0 || w.Pod.Spec.HostNetwork })
	})
	if w.Kind != "Deployment" || !alone {
		return nil
	}
	if required {
		problems = append(problems, "anti-affinity is required: a pod without a node of its own stays pending")
	}
	if u := w.Strategy.RollingUpdate; u == nil || u.MaxSurge == nil || u.MaxSurge.String() != "0" || u.MaxUnavailable == nil || u.MaxUnavailable.IntValue() < 1 {
		problems = append(problems, "a rollout cannot finish: want maxSurge 0 and maxUnavailable 1, since no two pods fit on a node")
	}
	return problems
}
