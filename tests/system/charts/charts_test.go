package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	"sigs.k8s.io/yaml"
)

// plain takes away what only one of the two has, on purpose: the checksum of the settings, at which
// pods start again when they change, what a default of Kubernetes is, and how YAML in a text is
// written.
func plain(o object) {
	if data, ok := o["data"].(object); ok {
		for key, text := range data {
			var settings object
			if yaml.Unmarshal([]byte(text.(string)), &settings) == nil {
				data[key] = settings
			}
		}
	}
	spec, _ := o["spec"].(object)
	template, ok := spec["template"].(object)
	if !ok {
		return
	}
	delete(template["metadata"].(object), "annotations")
	pod := template["spec"].(object)
	containers, _ := pod["containers"].([]any)
	for _, c := range containers {
		delete(c.(object), "imagePullPolicy")
	}
	for _, list := range []string{"containers", "initContainers"} {
		containers, _ := pod[list].([]any)
		for _, c := range containers {
			byName(c.(object), "volumeMounts", "mountPath")
			byName(c.(object), "ports", "name")
			environmentFirst(c.(object))
		}
	}
	byName(pod, "volumes", "name")
}

// environmentFirst checks that a variable is defined before the variables that use it, and makes
// the list a map.
func environmentFirst(c object) {
	entries, _ := c["env"].([]any)
	for i, e := range entries {
		if strings.Contains(fmt.Sprint(e.(object)["value"]), "$(HOST_IP)") && !slices.ContainsFunc(entries[:i], func(o any) bool { return o.(object)["name"] == "HOST_IP" }) {
			e.(object)["value"] = "HOST_IP is not known here"
		}
	}
	if entries != nil {
		byName(c, "env", "name")
	}
}

// byName makes a list whose order means nothing a map.
func byName(o object, list, key string) {
	entries, _ := o[list].([]any)
	sorted := object{}
	for _, e := range entries {
		sorted[fmt.Sprint(e.(object)[key])] = e
	}
	o[list] = sorted
}

func TestChartAndKustomizeHaveSameObjects(t *testing.T) {
	for overlay, v := range overlays {
		t.Run(overlay, func(t *testing.T) {
			chart, err := render(v)
			if err != nil {
				t.Fatal(err)
			}
			kustomize, err := build(overlay)
			if err != nil {
				t.Fatal(err)
			}
			if a, b := slices.Sorted(maps.Keys(chart)), slices.Sorted(maps.Keys(kustomize)); !slices.Equal(a, b) {
				t.Errorf("the chart has %v, the overlay %v", a, b)
			}
			for name, o := range chart {
				plain(o)
				plain(kustomize[name])
				if !reflect.DeepEqual(o, kustomize[name]) {
					a, _ := yaml.Marshal(o)
					b, _ := yaml.Marshal(kustomize[name])
					t.Errorf("%s of the chart is not that of the overlay:\n%s", name, differ(string(a), string(b)))
				}
			}
		})
	}
}

// differ shows the lines that only one of two texts has.
func differ(a, b string) string {
	var out strings.Builder
	show := func(sign, text, other string) {
		has := map[string]bool{}
		for line := range strings.Lines(other) {
			has[line] = true
		}
		for line := range strings.Lines(text) {
			if !has[line] {
				out.WriteString(sign + " " + line)
			}
		}
	}
	show("chart  ", a, b)
	show("overlay", b, a)
	return out.String()
}

func TestChartHasNoFindings(t *testing.T) {
	for _, v := range []values{{}, {"dataplane": "vpp"}, {"dataplane": "neutron"}} {
		for _, m := range lint.AllWithKubeVersion(deploy+"helm/sluice", v, "kube-system", nil).Messages {
			// A chart needs no icon.
			if m.Severity >= support.WarningSev || m.Severity == support.InfoSev && !strings.Contains(m.Error(), "icon") {
				t.Error(m)
			}
		}
	}
}

func TestValuesAreChecked(t *testing.T) {
	for name, c := range map[string]struct {
		v    values
		want string
	}{
		"a dataplane that is none": {values{"dataplane": "iptables"}, "dataplane"},
		"a value that is none":     {values{"etcdd": values{}}, "etcdd"},
		"no etcd":                  {values{"etcd": values{"endpoints": []any{}}}, "endpoints"},
		"no replicas":              {values{"reflector": values{"replicas": 0}}, "replicas"},
		"half a digest":            {values{"image": values{"digests": values{"agent": "sha256:12"}}}, "digests"},
		"established maybe":        {values{"agent": values{"established": "maybe"}}, "established"},
	} {
		if _, err := render(c.v); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want an error that names %s", name, err, c.want)
		}
	}
}

func TestValuesChangeTheirObjects(t *testing.T) {
	digest := "sha256:" + strings.Repeat("ab", 32)
	all, err := render(values{
		"image":      values{"registry": "registry.example/net/", "digests": values{"agent": digest}, "tag": "v1"},
		"etcd":       values{"endpoints": []any{"etcd-0:2379"}, "agentSecret": "mine"},
		"reflector":  values{"replicas": 1, "config": values{"sweep-interval": "1m"}},
		"agent":      values{"installCNI": false, "config": values{"log-level": "debug", "log-format": "text"}, "nodeSelector": values{"pool": "a"}},
		"monitoring": values{"podMonitor": true, "prometheusRule": true},
		"guard":      true,
	})
	if err != nil {
		t.Fatal(err)
	}
	text := func(name string) string {
		b, err := yaml.Marshal(all[name])
		if err != nil || all[name] == nil {
			t.Fatalf("%s: %v", name, err)
		}
		return string(b)
	}
	for name, want := range map[string][]string{
		"DaemonSet/sluice-agent-xdp": {"image: registry.example/net/sluice-agent@" + digest, "pool: a", "secretName: mine"},
		"Deployment/sluice-ksr":      {"image: registry.example/net/sluice-ksr:v1", "replicas: 1", "checksum/config"},
		"ConfigMap/sluice-agent-xdp": {"log-level: debug", "log-format: text", "etcd-0:2379"},
		"ConfigMap/sluice-ksr":       {"sweep-interval: 1m"},
		"PodMonitor/sluice":          {"port: metrics"},
		"PrometheusRule/sluice":      {"SluiceAgentDown"},
		// Those of the chart and of the reflector's embedded etcd.
		"ClusterNetworkPolicy/sluice": {"action: Deny", "number: 9416", "number: 9417", "number: 9418", "number: 23790"},
	} {
		for _, w := range want {
			if !strings.Contains(text(name), w) {
				t.Errorf("%s has no %q:\n%s", name, w, text(name))
			}
		}
	}
	for _, never := range []string{"cni-bin", "{{"} {
		if strings.Contains(text("DaemonSet/sluice-agent-xdp")+text("ConfigMap/sluice-agent-xdp"), never) {
			t.Errorf("there is %q, although the agent installs no plugin", never)
		}
	}
}

// TestChartOfNeutron: an embedded etcd is that of the chart, and no agent runs on nodes.
func TestChartOfNeutron(t *testing.T) {
	all, err := render(values{
		"dataplane": "neutron", "etcd": values{"embedded": true},
		"neutron": values{"replicas": 1, "cloud": "prod", "networks": []any{"net-1"}, "config": values{"neutron-mark": "blue"}, "cloudSecret": "mine"},
	})
	if err != nil {
		t.Fatal(err)
	}
	text, err := yaml.Marshal([]object{all["Deployment/sluice-neutron"], all["ConfigMap/sluice-neutron"]})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"$(SLUICE_STORE_SERVICE_HOST):2379", "secretName: sluice-agent-etcd", "secretName: mine", "os-cloud: prod", "- net-1", "neutron-mark: blue",
		"replicas: 1", "etcd-server-name: sluice-store",
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("there is no %q in\n%s", want, text)
		}
	}
	if strings.Contains(string(text), "etcd-endpoints") {
		t.Errorf("it asks another etcd:\n%s", text)
	}
	for name := range all {
		if strings.Contains(name, "sluice-agent-") && !strings.HasPrefix(name, "Secret/") {
			t.Errorf("there is %s", name)
		}
	}
}

// TestChartSettingsRestartPods: other settings make another pod template, and equal ones do not.
func TestChartSettingsRestartPods(t *testing.T) {
	sum := func(v values) any {
		all, err := render(v)
		if err != nil {
			t.Fatal(err)
		}
		return all["DaemonSet/sluice-agent-xdp"]["spec"].(object)["template"].(object)["metadata"].(object)["annotations"]
	}
	a, b, c := sum(values{}), sum(values{}), sum(values{"agent": values{"config": values{"log-level": "debug"}}})
	if !reflect.DeepEqual(a, b) || reflect.DeepEqual(a, c) {
		t.Errorf("annotations are %v, %v, and with another setting %v", a, b, c)
	}
}

// TestChartCertificates are signed by the authority in the same secret.
func TestChartCertificates(t *testing.T) {
	all, err := render(values{"etcd": values{"embedded": true}})
	if err != nil {
		t.Fatal(err)
	}
	var authorities []string
	for name, want := range map[string]x509.VerifyOptions{
		"Secret/sluice-ksr-etcd":   {DNSName: "sluice-store", KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}},
		"Secret/sluice-agent-etcd": {KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}},
	} {
		if all[name] == nil {
			t.Fatalf("there is no %s", name)
		}
		decode := func(key string) []byte {
			b, err := base64.StdEncoding.DecodeString(all[name]["data"].(object)[key].(string))
			if err != nil {
				t.Fatal(err)
			}
			return b
		}
		pair, err := tls.X509KeyPair(decode("tls.crt"), decode("tls.key"))
		if err != nil {
			t.Fatal(err)
		}
		want.Roots = x509.NewCertPool()
		want.Roots.AppendCertsFromPEM(decode("ca.crt"))
		cert, err := x509.ParseCertificate(pair.Certificate[0])
		if err != nil {
			t.Fatal(err)
		}
		if _, err := cert.Verify(want); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		authorities = append(authorities, string(decode("ca.crt")))
	}
	if authorities[0] != authorities[1] {
		t.Error("two authorities do not trust each other")
	}
}

// TestValuesAreAllInSchema, and none is there that the chart does not have.
func TestValuesAreAllInSchema(t *testing.T) {
	var have, schema object
	for name, into := range map[string]*object{"values.yaml": &have, "values.schema.json": &schema} {
		b, err := os.ReadFile(deploy + "helm/sluice/" + name)
		if err != nil {
			t.Fatal(err)
		}
		if err := yaml.Unmarshal(b, into); err != nil {
			t.Fatal(err)
		}
	}
	delete(schema["properties"].(object), "global") // Helm's own
	wantProperties(t, "values", have, schema)
}

func wantProperties(t *testing.T, where string, have, schema object) {
	t.Helper()
	properties, _ := schema["properties"].(object)
	if properties == nil {
		return
	}
	if a, b := slices.Sorted(maps.Keys(have)), slices.Sorted(maps.Keys(properties)); !slices.Equal(a, b) {
		t.Errorf("%s are %v, and the schema has %v", where, a, b)
	}
	for name, p := range properties {
		if own, ok := have[name].(object); ok {
			wantProperties(t, where+"."+name, own, p.(object))
		}
	}
}
