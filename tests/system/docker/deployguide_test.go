package docker

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/sluice-net/sluice/tests/lab/deployed"
	"github.com/sluice-net/sluice/tests/system/guides"
)

// cluster is what the manifests bring to a cluster, and what they ask for.
type cluster struct {
	workloads map[string]bool                // "deployment/sluice-ksr"
	secrets   map[string]map[string]struct{} // keys that are used, by secret
	images    []string
}

// readCluster reads the manifests.
func readCluster(t *testing.T) cluster {
	t.Helper()
	c := cluster{workloads: map[string]bool{}, secrets: map[string]map[string]struct{}{}}
	for name := range manifests {
		f, err := deployed.Parse(read(t, deployed.Path(name)))
		if err != nil {
			t.Fatal(err)
		}
		c.workloads[strings.ToLower(f.Workload.Kind)+"/"+f.Workload.Meta.Name] = true
		c.images = append(c.images, f.Workload.Pod.Spec.Containers[0].Image)
		c.needs(t, f)
	}
	return c
}

// needs notes the keys of secrets that settings name as files.
func (c cluster) needs(t *testing.T, f deployed.File) {
	t.Helper()
	for _, v := range f.Workload.Pod.Spec.Volumes {
		if v.Secret == nil {
			continue
		}
		keys := map[string]struct{}{}
		c.secrets[v.Secret.SecretName] = keys
		for _, m := range f.Workload.Pod.Spec.Containers[0].VolumeMounts {
			for _, text := range f.Configs[f.Workload.Meta.Name].Data {
				var set map[string]any
				if err := yaml.Unmarshal([]byte(text), &set); err != nil {
					t.Fatal(err)
				}
				for _, value := range set {
					if file, ok := value.(string); ok && m.Name == v.Name && path.Dir(file) == m.MountPath {
						keys[path.Base(file)] = struct{}{}
					}
				}
			}
		}
	}
}

// steps are those of the guides together.
func steps(t *testing.T) string {
	t.Helper()
	return read(t, "docs/guide/ksr.md") + read(t, "docs/guide/neutron.md")
}

func TestGuideStepsCreateWhatManifestsNeed(t *testing.T) {
	for _, p := range checkSteps(steps(t), readCluster(t)) {
		t.Error(p)
	}
}

// checkSteps returns what is wrong with the commands of a guide that brings up a cluster.
func checkSteps(text string, c cluster) (problems []string) {
	missing := maps.Clone(c.secrets)
	applied := 0
	for _, block := range guides.Blocks(text) {
		for _, line := range logicalLines(block.Text) {
			words := strings.Fields(line)
			if len(words) < 2 || words[0] != "kubectl" {
				continue
			}
			if words[1] == "-n" && len(words) > 3 {
				words = slices.Delete(words, 1, 3)
			}
			switch {
			case words[1] == "apply":
				if words[2] == "-f" { // an overlay is compared with the chart elsewhere
					applied++
				}
				problems = append(problems, checkExists(root, words[3])...)
			case words[1] == "rollout" && !c.workloads[words[3]]:
				problems = append(problems, "there is no "+words[3])
			case words[1] == "create":
				problems = append(problems, checkSecret(words[4], words[5:], missing)...)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(missing)) {
		problems = append(problems, "nobody creates the secret "+name)
	}
	if applied != len(c.workloads) {
		problems = append(problems, fmt.Sprintf("%d files are applied, and there are %d", applied, len(c.workloads)))
	}
	for _, image := range c.images { // which the guide gives a registry, by how they begin
		if !strings.HasPrefix(image, "sluice-") || !strings.Contains(text, `"s#image: sluice-#image: $REGISTRY/sluice-#"`) {
			problems = append(problems, "nobody says where image "+image+" comes from")
		}
	}
	return problems
}

// checkSecret checks a secret that a guide makes, and takes it off what is missing.
func checkSecret(name string, options []string, missing map[string]map[string]struct{}) (problems []string) {
	keys, ok := missing[name]
	if !ok {
		return []string{"nobody uses the secret " + name}
	}
	delete(missing, name)
	has := map[string]struct{}{}
	for _, o := range options {
		key, _, _ := strings.Cut(strings.TrimPrefix(o, "--from-file="), "=")
		has[key] = struct{}{}
	}
	if len(keys) == 0 || !maps.Equal(keys, has) {
		problems = append(problems, fmt.Sprintf("secret %s has %v, and %v are used", name, slices.Sorted(maps.Keys(has)), slices.Sorted(maps.Keys(keys))))
	}
	return problems
}

func TestGuideStepErrorsAreFound(t *testing.T) {
	for name, tc := range map[string]struct{ was, is, want string }{
		"a file that is not":        {"apply -f deploy/ksr/ksr.yaml", "apply -f deploy/reflector.yaml", "does not exist"},
		"a file that is left out":   {"kubectl apply -f deploy/agent-xdp/agent-xdp.yaml\n", "", "3 files are applied"},
		"a workload that is not":    {"status daemonset/sluice-agent-vpp", "status daemonset/sluice-agent", "there is no daemonset/sluice-agent"},
		"a secret that is not used": {"generic sluice-agent-etcd", "generic sluice-etcd", "nobody uses the secret sluice-etcd"},
		"a secret that is not made": {"generic sluice-agent-etcd", "generic sluice-etcd", "nobody creates the secret sluice-agent-etcd"},
		"a key that is not":         {"--from-file=tls.key=sluice-ksr.key", "--from-file=key=sluice-ksr.key", "secret sluice-ksr-etcd has"},
		"an image of nowhere":       {"s#image: sluice-#", "s#image: sluice-ksr#", "nobody says where image"},
	} {
		t.Run(name, func(t *testing.T) {
			wantProblem(t, checkSteps(edit(t, steps(t), tc.was, tc.is), readCluster(t)), tc.want)
		})
	}
}
