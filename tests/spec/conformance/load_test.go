package conformance

import (
	"bytes"
	"compress/gzip"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/api"
)

const small = `{"schema":"netpol-conformance/1","source":"hand","notes":["n"],
 "probeColumns":["from","to","protocol","port","portName","ingress","egress","allow","origin"],
 "clusters":{"c0":{"namespaces":[{"metadata":{"name":"x"}}],
  "pods":[{"metadata":{"namespace":"x","name":"a"},"status":{"podIP":"10.0.0.1"}}],
  "externals":[{"name":"out","ip":"203.0.113.9"}]}},
 "cases":[{"id":"1","name":"one","tags":["t"],"steps":[{"actions":["create"],"cluster":"c0",
  "policies":[{"kind":"NetworkPolicy","metadata":{"namespace":"x","name":"p"}},{"kind":"AdminNetworkPolicy","metadata":{"name":"a"}},
   {"kind":"BaselineAdminNetworkPolicy","metadata":{"name":"default"}},{"kind":"ClusterNetworkPolicy","metadata":{"name":"c"}}],
  "probes":[["out","x/a","UDP",53,"dns",0,null,1,"up"]]}]}]}`

func write(t *testing.T, text string) string {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "cases.json.gz")
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestLoadReadsEveryColumn(t *testing.T) {
	s, err := Load(write(t, small))
	if err != nil {
		t.Fatal(err)
	}
	step := s.Cases[0].Steps[0]
	p := step.Probes[0]
	if got, want := p.String(), "out -> x/a 53/udp"; got != want {
		t.Errorf("probe is %q, want %q", got, want)
	}
	if p.Flow.Src.String() != "203.0.113.9" || p.Flow.Dst.String() != "10.0.0.1" || p.Flow.Protocol != api.UDP {
		t.Errorf("flow is %v", p.Flow)
	}
	if !p.Allow || p.Ingress == nil || *p.Ingress || p.Egress != nil || p.PortName != "dns" || p.Origin != "up" || p.Loopback() {
		t.Errorf("probe is %+v", p)
	}
	if len(step.NetworkPolicies) != 1 || step.NetworkPolicies[0].Name != "p" ||
		step.AdminPolicies[0].Name != "a" || step.BaselinePolicies[0].Name != "default" || step.ClusterPolicies[0].Name != "c" {
		t.Errorf("policies are %+v", step)
	}
	if s.Probes() != 1 {
		t.Errorf("suite has %d probes, want 1", s.Probes())
	}
}

func TestLoadRefusesUnknownFields(t *testing.T) {
	for name, edit := range map[string][2]string{
		"another schema":        {"conformance/1", "conformance/2"},
		"other columns":         {`"from","to"`, `"to","from"`},
		"a short row":           {`,"up"]`, `]`},
		"an unknown cluster":    {`"cluster":"c0"`, `"cluster":"c1"`},
		"an unknown kind":       {"AdminNetworkPolicy", "Surprise"},
		"an odd priority":       {`"name":"a"}`, `"name":"a"},"spec":{"priority":"1"}`},
		"an unknown endpoint":   {`"x/a","UDP"`, `"x/b","UDP"`},
		"an unknown source":     {`["out"`, `["in"`},
		"an unknown protocol":   {"UDP", "QUIC"},
		"a port out of range":   {",53,", ",70000,"},
		"a pod without address": {"10.0.0.1", ""},
	} {
		t.Run(name, func(t *testing.T) {
			text := strings.Replace(small, edit[0], edit[1], 1)
			if text == small {
				t.Fatal("the edit changed nothing")
			}
			if _, err := Load(write(t, text)); err == nil {
				t.Error("was accepted")
			}
		})
	}
	if _, err := Load(write(t, `{}`)); !errors.Is(err, ErrFormat) {
		t.Errorf("an empty suite: %v, want ErrFormat", err)
	}
	if _, err := Load(filepath.Join(t.TempDir(), "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file: %v, want ErrNotExist", err)
	}
}

func TestLoadReadsEveryRecordedFile(t *testing.T) {
	for file, want := range map[string]struct{ cases, probes int }{
		Cyclonus:   {230, 233157},
		Kubernetes: {48, 5265},
		Admin:      {24, 289},
	} {
		t.Run(file, func(t *testing.T) {
			s := Need(t, file)
			if len(s.Cases) != want.cases || s.Probes() != want.probes {
				t.Errorf("%d cases and %d probes, want %d and %d", len(s.Cases), s.Probes(), want.cases, want.probes)
			}
		})
	}
}
