package cli

import (
	"bytes"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/analysis/explain"
	"github.com/sluice-net/sluice/internal/cli/explained"
	"github.com/sluice-net/sluice/internal/lib/term"
	"github.com/sluice-net/sluice/internal/manifests"
	"github.com/sluice-net/sluice/internal/view"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/renderertest"
)

var update = flag.Bool("update", false, "write the golden files anew")

// explanations are what people read, one golden file each: every column counts. The
// manifests are those of testdata/explain/cluster.yaml, and what stands in stdin.
var explanations = map[string]struct {
	args  []string
	stdin string
}{
	"allowed":              {args: []string{"shop/web", "shop/cart:8081/tcp"}},
	"allowed-merged-rules": {args: []string{"10.0.1.1", "10.0.1.2:http"}},
	"allowed-open":         {args: []string{"shop/free", "198.51.100.7:443"}},
	"allowed-own-node":     {args: []string{"192.168.0.2", "data/db:22"}},
	"allowed-self":         {args: []string{"data/db", "data/db:22"}},
	"denied":               {args: []string{"shop/free", "data/db:5432"}},
	"denied-both":          {args: []string{"shop/web", "data/db:sql"}},
	"denied-port":          {args: []string{"shop/cart", "data/db:5433"}},
	"denied-except":        {args: []string{"203.0.113.9", "10.0.2.1:5432"}},
	"denied-icmp":          {args: []string{"shop/cart", "data/db/icmp"}},
	"denied-sctp":          {args: []string{"203.0.113.9", "10.0.2.1:7001/sctp"}},
	"denied-other-node":    {args: []string{"192.168.0.1", "10.0.2.1:22"}},
	"denied-default":       {args: []string{"shop/free", "data/quiet:80"}, stdin: quiet},
	"families-differ":      {args: []string{"shop/web", "shop/free:443"}},
	"families-ipv6":        {args: []string{"fd00:1::3", "[fd00:2::1]:5432"}},
	"selector-many":        {args: []string{"team!=x", "app in (db, cart):8081"}},
	"selector-none":        {args: []string{"app=job", "data/db:1"}},
	"pod-unknown":          {args: []string{"shop/wbe", "data/db:5432"}},
	"pod-unknown-space":    {args: []string{"ship/web", "data/db:5432"}},
	"pod-host-network":     {args: []string{"shop/web", "ops/agent:9100"}},
	"pod-from-host":        {args: []string{"ops/agent", "shop/cart:8081"}},
	"pod-finished":         {args: []string{"ops/job", "data/db:5432"}},
	"pod-pending":          {args: []string{"ops/new", "data/db:5432"}},
	"pod-shared-address":   {args: []string{"shop/free", "data/db:5432"}, stdin: sharing},
	"pod-shared-both":      {args: []string{"10.0.1.1", "10.0.2.1:5432"}, stdin: sharing},
	"port-name-unknown":    {args: []string{"shop/web", "data/db:http"}},
	"port-name-outside":    {args: []string{"shop/web", "198.51.100.7:https"}},
	"port-name-in-policy":  {args: []string{"shop/web", "shop/nameless:80"}, stdin: nameless},
	"problems":             {args: []string{"shop/free", "shop/wrong:80"}, stdin: wrong},
	"policy-refused":       {args: []string{"shop/free", "shop/cart:80"}, stdin: refused},
	"tiers-denied":         {args: []string{"shop/free", "data/db:5432"}, stdin: tiers},
	"tiers-allowed":        {args: []string{"shop/web", "data/db:5432"}, stdin: tiers},
	"tiers-passed":         {args: []string{"shop/cart", "data/db:5432"}, stdin: tiers},
	"tiers-baseline":       {args: []string{"shop/cart", "shop/free:8080"}, stdin: tiers},
	"tiers-nodes":          {args: []string{"shop/free", "192.168.0.1:10250"}, stdin: tiers},
	"tiers-as-json":        {args: []string{"shop/cart", "10.0.1.3:8080", "-o", "json"}, stdin: tiers},
	"as-json":              {args: []string{"shop/free", "data/db:5432", "-o", "json"}},
	"as-yaml":              {args: []string{"shop/web", "shop/cart:8081", "-o", "yaml"}},
}

// tiers are admin policies: the web may reach the database, the policies of the cart's namespace
// decide about the cart, all other pods are denied.
const tiers = `
{apiVersion: v1, kind: Node, metadata: {name: node-1, labels: {role: edge}}, status: {addresses: [{type: InternalIP, address: 192.168.0.1}]}}
---
apiVersion: policy.networking.k8s.io/v1alpha1
kind: AdminNetworkPolicy
metadata: {name: guard-data}
spec:
  priority: 10
  subject: {namespaces: {matchLabels: {team: data}}}
  ingress:
  - {name: web, action: Allow, from: [{pods: {namespaceSelector: {matchLabels: {team: shop}}, podSelector: {matchLabels: {app: web}}}}], ports: [{namedPort: sql}]}
  - {name: cart, action: Pass, from: [{pods: {namespaceSelector: {matchLabels: {team: shop}}, podSelector: {matchLabels: {app: cart}}}}]}
  - {name: others, action: Deny, from: [{namespaces: {}}]}
---
apiVersion: policy.networking.k8s.io/v1alpha2
kind: ClusterNetworkPolicy
metadata: {name: no-kubelets}
spec:
  tier: Admin
  priority: 20
  subject: {namespaces: {}}
  egress:
  - {action: Deny, to: [{nodes: {matchLabels: {role: edge}}}], protocols: [{tcp: {destinationPort: {number: 10250}}}]}
---
apiVersion: policy.networking.k8s.io/v1alpha1
kind: BaselineAdminNetworkPolicy
metadata: {name: default}
spec:
  subject: {namespaces: {}}
  ingress:
  - {name: default-deny, action: Deny, from: [{namespaces: {}}]}
`

const quiet = `
{apiVersion: v1, kind: Pod, metadata: {name: quiet, namespace: data, labels: {app: quiet}}, spec: {nodeName: node-1},
 status: {phase: Running, podIPs: [{ip: 10.0.2.9}]}}
---
{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: quiet, namespace: data},
 spec: {podSelector: {matchLabels: {app: quiet}}, policyTypes: [Ingress, Egress]}}
---
{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: both-by-default, namespace: data},
 spec: {podSelector: {matchExpressions: [{key: app, operator: Exists}]}, egress: [{}]}}
`

const sharing = `
{apiVersion: v1, kind: Pod, metadata: {name: heir, namespace: data, labels: {app: heir}}, spec: {nodeName: node-2},
 status: {phase: Running, podIPs: [{ip: 10.0.2.1}]}}
---
{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: heir, namespace: data},
 spec: {podSelector: {matchLabels: {app: heir}}, ingress: [{}]}}
`

const nameless = `
{apiVersion: v1, kind: Pod, metadata: {name: nameless, namespace: shop, labels: {app: cart}}, spec: {nodeName: node-2},
 status: {phase: Running, podIPs: [{ip: 10.0.1.9}]}}
`

const wrong = `
{apiVersion: v1, kind: Pod, metadata: {name: wrong, namespace: shop, labels: {app: wrong}}, spec: {nodeName: node-2},
 status: {phase: Running, podIPs: [{ip: 10.0.1.9}]}}
---
{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: wrong, namespace: shop},
 spec: {podSelector: {matchLabels: {app: wrong}}, ingress: [{from: [{ipBlock: {cidr: 10.0.0.0/33}}, {podSelector: {matchLabels: {app: free}}}], ports: [{port: 70000}]}]}}
---
kind: Pod
`

const refused = `
{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: typo, namespace: shop},
 spec: {podSelector: {matchExpressions: [{key: app, operator: Like}]}, policyTypes: [Ingress]}}
`

// TestExplainIsBrief: at most ten lines for a flow; nothing of them is lost to programs.
func TestExplainIsBrief(t *testing.T) {
	for name, tc := range explanations {
		if strings.Contains(name, "as-") {
			continue
		}
		t.Run(name, func(t *testing.T) {
			args := append([]string{"explain", "--manifests", filepath.Join("testdata", "explain", "cluster.yaml")}, tc.args...)
			if tc.stdin != "" {
				args = append(args, "--manifests", "-")
			}
			var out, errOut bytes.Buffer
			code := Run(args, strings.NewReader(tc.stdin), &out, &errOut)
			golden(t, filepath.Join("brief", name), fmt.Sprintf("$ sluicectl explain %q\n%s-- exit code %d --\n", tc.args, out.String(), code))
			if code == ExitError {
				return
			}
			for block := range strings.SplitSeq(out.String(), "\n\n") {
				if n := strings.Count(strings.TrimSpace(block), "\n") + 1; n > explained.MostBrief {
					t.Errorf("%d lines:\n%s", n, block)
				}
			}
		})
	}
}

func TestExplainOfManifestsIsGolden(t *testing.T) {
	for name, tc := range explanations {
		t.Run(name, func(t *testing.T) {
			args := append([]string{"explain", "-v", "--manifests", filepath.Join("testdata", "explain", "cluster.yaml")}, tc.args...)
			if tc.stdin != "" {
				args = append(args, "--manifests", "-")
			}
			var out, errOut bytes.Buffer
			code := Run(args, strings.NewReader(tc.stdin), &out, &errOut)
			golden(t, filepath.Join("explain", name), fmt.Sprintf("$ sluicectl explain -v %q\n%s-- standard error, exit code %d --\n%s", tc.args, out.String(), code, errOut.String()))
		})
	}
}

// open answers that no table restricts anything, whatever its state.
type open struct{ *renderertest.Recorder }

func (open) Explain(api.Flow) []renderer.Decision { return nil }

// TestExplainNamesEveryRenderer: on nodes with two renderers, the answer has the deciding rule and
// table of each, and whether they agree.
func TestExplainNamesEveryRenderer(t *testing.T) {
	load, err := manifests.LoadFiles([]string{filepath.Join("testdata", "explain", "cluster.yaml")}, nil)
	if err != nil {
		t.Fatal(err)
	}
	m, _ := explain.FromManifests(load, slog.New(slog.DiscardHandler))
	second := renderertest.NewRecorder
	for name, tc := range map[string]struct {
		beside func() renderer.Renderer
		dst    string
		port   string
	}{
		"agree-denied":  {func() renderer.Renderer { return second("second", t) }, "data/db", "443"},
		"agree-allowed": {func() renderer.Renderer { return second("second", t) }, "shop/cart", "8081"},
		"differ":        {func() renderer.Renderer { return open{second("second", t)} }, "data/db", "443"},
	} {
		t.Run(name, func(t *testing.T) {
			m.Beside = func() []renderer.Renderer { return []renderer.Renderer{tc.beside()} }
			answers, err := m.Explain(t.Context(), view.Question{Src: "10.0.1.1", Dst: tc.dst, Port: tc.port, Protocol: api.TCP})
			if err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			explained.Write(term.NewWriter(&out), answers, explained.Verbose)
			golden(t, filepath.Join("renderers", name), out.String())
		})
	}
}

// golden compares a text with a file of testdata, or writes it.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestExplainUsesEveryGoldenFile(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("testdata", "explain", "*.golden"))
	if err != nil || len(files) != len(explanations) {
		t.Errorf("%d files for %d explanations, %v", len(files), len(explanations), err)
	}
	brief, err := filepath.Glob(filepath.Join("testdata", "brief", "*.golden"))
	if err != nil || len(brief) != len(explanations)-3 { // without those that are JSON or YAML
		t.Errorf("%d brief files for %d explanations, %v", len(brief), len(explanations), err)
	}
	files = append(files, brief...)
	for _, f := range files {
		if _, ok := explanations[strings.TrimSuffix(filepath.Base(f), ".golden")]; !ok {
			t.Errorf("%s is of no explanation", f)
		}
	}
}
