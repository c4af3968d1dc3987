package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/internal/analysis/preview"
)

const shopDir = "../../docs/examples/shop"

// policyOf is a policy of the shop with a spec.
func policyOf(name, spec string) string {
	return fmt.Sprintf("{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: %s, namespace: shop}, spec: %s}", name, spec)
}

func TestDiffExitCodeFollowsFailOn(t *testing.T) {
	opens := policyOf("opens", "{podSelector: {matchLabels: {app: cart}}, ingress: [{from: [{ipBlock: {cidr: 192.0.2.0/24}}], ports: [{port: http}]}]}")
	for args, want := range map[string]int{
		"":                        ExitDenied,
		"--fail-on opened":        ExitDenied,
		"--fail-on closed":        ExitOK,
		"--fail-on closed,memory": ExitOK,
		"--fail-on memory --acl-memory 1 --renderers acl": ExitOK,
	} {
		code, out, errOut := sluicectl("/nowhere", opens, append([]string{"diff", "-f", "-", "--manifests", shopDir}, strings.Fields(args)...)...)
		if code != want || errOut != "" || !strings.Contains(out, "opened  192.0.2.0/24 -> shop/cart  8082/tcp\n") {
			t.Errorf("%q: exit code %d, want %d\n%s%s", args, code, want, out, errOut)
		}
	}
	same := policyOf("default-deny", "{podSelector: {}, policyTypes: [Ingress, Egress]}")
	if code, out, _ := sluicectl("/nowhere", same, "diff", "-f", "-", "--manifests", shopDir); code != ExitOK || !strings.HasPrefix(out, "no flow opens or closes: 13 pods") {
		t.Errorf("a policy as it is: exit code %d, %s", code, out)
	}
}

func TestDiffNamesInvalidInput(t *testing.T) {
	const kind = "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: shop}}"
	bad := policyOf("bad", "{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 10.0.0.0/33}}]}]}")
	for want, tc := range map[string]struct {
		stdin string
		args  []string
	}{
		`NetworkPolicy shop/bad: spec.ingress[0].from[0].ipBlock.cidr: "10.0.0.0/33" is not a CIDR`: {bad, []string{"-f", "-", "--manifests", shopDir}},
		"skipped deployment.apps/web: not used by policy\nsluicectl: -: nothing to do":              {kind, []string{"-f", "-", "--manifests", shopDir}},
		"--delete: NetworkPolicy shop/bad is not there":                                             {bad, []string{"--delete", "-", "--manifests", shopDir}},
		"-f or --delete is needed":                                                  {"", []string{"--manifests", shopDir}},
		`diff compares two directories: "a" is one`:                                 {"", []string{"a"}},
		"leave out -f, --delete, --manifests and --from":                            {"", []string{"a", "b", "-f", "c"}},
		`--fail-on "x": want opened, closed, memory`:                                {bad, []string{"-f", "-", "--fail-on", "x"}},
		`there is no renderer "vpp" that a change can be tried in: want acl or xdp`: {kind, []string{shopDir, shopDir, "--renderers", "vpp"}},
		"want table, markdown, json or yaml":                                        {"", []string{"a", "b", "-o", "xml"}},
		"the comparison took longer than --timeout 1ns":                             {"", []string{shopDir, "../../docs/examples/tiers", "--timeout", "1ns"}},
		"no agent listens on /nowhere":                                              {policyOf("x", "{podSelector: {}}"), []string{"-f", "-"}},
	} {
		code, out, errOut := sluicectl("/nowhere", tc.stdin, append([]string{"diff"}, tc.args...)...)
		if code != ExitError || out != "" || !strings.Contains(errOut, want) {
			t.Errorf("%v: exit code %d, %q, want %q", tc.args, code, out+errOut, want)
		}
	}
}

// TestDiffReportsNewProblems has a mistake in both directories, and another one in the
// second.
func TestDiffReportsNewProblems(t *testing.T) {
	write := func(texts ...string) string {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "a.yaml"), []byte(strings.Join(texts, "\n---\n")), 0o600); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	known := policyOf("known", "{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: x}}]}]}")
	before, after := write(known), write(known, policyOf("new", "{podSelector: {}, ingress: [{ports: [{port: 0}]}]}"))
	for flag, want := range map[string]int{"--allow-problems": ExitOK, "--allow-problems=false": ExitError} {
		if code, out, errOut := sluicectl("/nowhere", "", "diff", before, before, flag); code != want || !strings.Contains(errOut, "problem: ") {
			t.Errorf("a known mistake, %s: exit code %d, %s%s", flag, code, out, errOut)
		}
	}
	if code, _, errOut := sluicectl("/nowhere", "", "diff", before, after); code != ExitError || !strings.Contains(errOut, "NetworkPolicy shop/new: spec.ingress[0].ports[0]") {
		t.Errorf("a new mistake: exit code %d, %s", code, errOut)
	}
}

// TestDiffEscapesNames has names that would move the cursor, or be links in a comment.
func TestDiffEscapesNames(t *testing.T) {
	pods := `
{apiVersion: v1, kind: Pod, metadata: {name: a, namespace: shop, labels: {app: "x"}}, status: {podIP: 10.9.0.1}}
---
{apiVersion: v1, kind: Pod, metadata: {name: b, namespace: shop, labels: {app.kubernetes.io/name: "[x](http://y)|@z\e[2J\u202e"}}, status: {podIP: 10.9.0.2}}`
	path := filepath.Join(t.TempDir(), "pods.yaml")
	if err := os.WriteFile(path, []byte(pods), 0o600); err != nil {
		t.Fatal(err)
	}
	deny := policyOf("deny", "{podSelector: {matchLabels: {app: x}}, policyTypes: [Ingress]}")
	for format, link := range map[string]string{"table": "", "markdown": "[x](http"} {
		_, out, errOut := sluicectl("/nowhere", deny, "diff", "-f", "-", "--manifests", path, "-o", format)
		if strings.ContainsAny(out+errOut, "\x1b\u202e") || link != "" && (strings.Contains(out, " "+link) || strings.Contains(out, "@z")) || !strings.Contains(out, "closed") {
			t.Errorf("%s: %q", format, out+errOut)
		}
	}
}

// TestDiffJSONHasWholeReport reads the report back.
func TestDiffJSONHasWholeReport(t *testing.T) {
	code, out, errOut := sluicectl("/nowhere", "", "diff", "-f", "../../docs/examples/preview/cart.yaml", "--manifests", shopDir, "-o", "json")
	var r preview.Report
	if err := json.Unmarshal([]byte(out), &r); err != nil || code != ExitDenied || errOut != "" {
		t.Fatalf("exit code %d, %v, %s", code, err, errOut)
	}
	if !r.Opens() || !r.Closes() || !r.Fits() || len(r.Nodes) != 1 || len(r.Nodes[0].Dataplanes) != 2 || r.Checked < 100 || len(r.Disagreements) > 0 {
		t.Errorf("%+v", r)
	}
	for _, d := range r.Differences {
		if len(d.Was.Rules) == 0 || len(d.Is.Rules) == 0 || d.To.Workloads[0] != "shop/cart" || d.To.Pods != 1 {
			t.Errorf("%+v", d)
		}
	}
}
