package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/internal/analysis/preview"
	"github.com/sluice-net/sluice/tests/lab/programs"
)

// compared runs sluicectl diff without an agent, and reads its report.
func compared(t *testing.T, args ...string) preview.Report {
	t.Helper()
	var problems strings.Builder
	cmd := exec.CommandContext(t.Context(), program("sluicectl"), append([]string{"diff", "-o", "json", "--socket", "/nowhere"}, args...)...)
	cmd.Stderr = &problems
	out, err := cmd.Output()
	var r preview.Report
	if json.Unmarshal(out, &r) != nil || cmd.ProcessState.ExitCode() == 2 {
		t.Fatalf("%v: %v, %s", args, err, problems.String())
	}
	return r
}

// TestDiffOfGeneratedCluster previews one policy more in a cluster of 1 000 pods, 300 policies and
// 10 nodes.
func TestDiffOfGeneratedCluster(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	generate := exec.CommandContext(t.Context(), "go", "run", "../../bench/npgen", "-w", "nslabel", "-size", "S", "-n", "200", "-nostats", "-out", dir)
	if out, err := generate.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	state := filepath.Join(dir, "cluster.json")
	if err := os.Rename(filepath.Join(dir, "init.jsonl"), state); err != nil {
		t.Fatal(err)
	}
	change := programs.Manifest(t, `
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: new, namespace: ns-00003}
spec:
  podSelector: {matchLabels: {app: app-1}}
  policyTypes: [Ingress, Egress]
  ingress: [{from: [{namespaceSelector: {matchLabels: {env: prod}}}], ports: [{port: 7777}]}]
  egress: [{to: [{ipBlock: {cidr: 203.0.113.0/24}}]}]
`)
	r := compared(t, "-f", change, "--manifests", state)
	if r.Pods != 1000 || len(r.Nodes) != 10 || r.Flows > 10_000 || r.Checked == 0 || len(r.Disagreements) > 0 || !r.Opens() || !r.Fits() {
		t.Errorf("%d pods, %d nodes, %d flows, %d checked, opens %t, fits %t, %q", r.Pods, len(r.Nodes), r.Flows, r.Checked, r.Opens(), r.Fits(), r.Disagreements)
	}
	for _, d := range r.Differences {
		if text := d.From.String() + d.To.String(); !strings.Contains(text, "ns-00003/app-1") {
			t.Errorf("%s: %s -> %s is not about the pods of the policy", d.Change, d.From, d.To)
		}
	}
}

// TestDiffOfWorstManifests previews a megabyte of what is worst.
func TestDiffOfWorstManifests(t *testing.T) {
	t.Parallel()
	var pods, blocks, ports strings.Builder
	for i := range 300 {
		fmt.Fprintf(&pods, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p%d","namespace":"x","labels":{"a":"%d"}},"spec":{"nodeName":"n"},"status":{"podIP":"10.0.%d.%d"}}`+"\n", i, i, i/250, i%250+1)
	}
	for i := range 16_000 {
		fmt.Fprintf(&blocks, `,{"ipBlock":{"cidr":"%d.%d.%d.0/24","except":["%d.%d.%d.7/32"]}}`, 1+i%200, i/200, i%256, 1+i%200, i/200, i%256)
		fmt.Fprintf(&ports, `,{"port":%d,"protocol":"%s"}`, 1+2*i, [...]string{"TCP", "UDP", "SCTP"}[i%3])
	}
	policy := func(rule string) string {
		return programs.Manifest(t, `{"apiVersion":"networking.k8s.io/v1","kind":"NetworkPolicy","metadata":{"name":"q","namespace":"x"},"spec":{"podSelector":{},"ingress":[`+rule+`]}}`)
	}
	state := programs.Manifest(t, pods.String())
	for rule, flows := range map[string]int{`{"from":[` + blocks.String()[1:] + `]}`: 50, `{"ports":[` + ports.String()[1:] + `]}`: 50} {
		r := compared(t, "-f", policy(rule), "--manifests", state, "--renderers", "xdp")
		if !r.Closes() || r.Flows > flows || len(r.Disagreements) > 0 {
			t.Errorf("%.40s: closes %t, %d flows, %q", rule, r.Closes(), r.Flows, r.Disagreements)
		}
	}
}
