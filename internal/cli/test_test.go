package cli

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/internal/analysis/policytest"
)

// refusedTest needs more session rules than there may be; the others do what their names say.
const (
	podsOfTests = `
objects:
  - {apiVersion: v1, kind: Pod, metadata: {name: client, namespace: shop, labels: {app: client}}, spec: {containers: [{name: c}]}, status: {phase: Running, podIP: "fd00::1"}}
  - {apiVersion: v1, kind: Pod, metadata: {name: peer, namespace: shop, labels: {app: peer}}, spec: {containers: [{name: c}]}, status: {phase: Running, podIP: "fd00::2"}}
`
	refusedTest = `apiVersion: sluice/v1
kind: PolicyTest
name: refused` + podsOfTests + `
  - {apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: peer, namespace: shop}, spec: {podSelector: {matchLabels: {app: peer}}, policyTypes: [Ingress]}}
  - apiVersion: networking.k8s.io/v1
    kind: NetworkPolicy
    metadata: {name: client, namespace: shop}
    spec: {podSelector: {matchLabels: {app: client}}, policyTypes: [Egress], egress: [{ports: [{protocol: UDP, port: 53}, {protocol: UDP, port: 1000, endPort: 1200}]}]}
probes: [{from: shop/client, to: shop/peer, port: 53, protocol: UDP, expect: deny}]
`
	passingTest = `apiVersion: sluice/v1
kind: PolicyTest
name: passes` + podsOfTests + `
probes: [{from: shop/client, to: shop/peer, port: 80, expect: allow}]
`
	failingTest = `apiVersion: sluice/v1
kind: PolicyTest
name: fails` + podsOfTests + `
probes: [{from: shop/client, to: shop/peer, port: 80, expect: deny}]
`
)

func testFile(t *testing.T, documents ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "t.yaml")
	if err := os.WriteFile(path, []byte(strings.Join(documents, "---\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestTestCommandContinuesAfterRefusal(t *testing.T) {
	path := testFile(t, refusedTest, passingTest, failingTest)
	var out, errOut bytes.Buffer
	code := Run([]string{"test", "--through", "session", path, "absent.yaml"}, nil, &out, &errOut)
	if code != ExitError || !strings.Contains(errOut.String(), "absent.yaml") || !strings.Contains(errOut.String(), "2 tests could not be run as written") {
		t.Errorf("exit code %d, error %q", code, &errOut)
	}
	for _, want := range []string{
		"error refused: " + path, " needs more than 16384 rules: ", "\nERROR  refused  session  ",
		"\nok  passes  session  ", "\nFAIL  fails  session  ",
		"\n4 tests  1 passed, 1 failed, 2 could not be run  2 probes  ",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in\n%s", want, &out)
		}
	}
	var list bytes.Buffer
	if code := Run([]string{"test", "--through", "session", "-o", "json", path}, nil, &list, &errOut); code != ExitError {
		t.Errorf("with -o json: exit code %d", code)
	}
	var reports []policytest.Report
	if err := json.Unmarshal(list.Bytes(), &reports); err != nil || len(reports) != 3 || len(reports[0].Errors) != 1 || !reports[1].OK() {
		t.Errorf("%v: %+v", err, reports)
	}
}

func TestTestCommandReportsEachTestAtItsEnd(t *testing.T) {
	var out, errOut bytes.Buffer
	var seen []string // when a test begins
	old := maps.Clone(subjects)
	t.Cleanup(func() { subjects = old })
	subjects["oracle"] = func() policytest.Subject {
		seen = append(seen, out.String())
		return policytest.NewOracle()
	}
	if code := Run([]string{"test", "--through", "oracle", testFile(t, passingTest, failingTest)}, nil, &out, &errOut); code != ExitDenied {
		t.Fatalf("exit code %d, %s", code, &errOut)
	}
	if len(seen) != 2 || seen[0] != "" || !strings.HasPrefix(seen[1], "ok  passes  oracle") || errOut.Len() > 0 {
		t.Errorf("before each test there was %q, and beside it %q", seen, &errOut)
	}
}

func TestTestCommandEndsTestAfterTimeout(t *testing.T) {
	var out, errOut bytes.Buffer
	if code := Run([]string{"test", "--through", "acl", "--timeout", "1ns", testFile(t, passingTest)}, nil, &out, &errOut); code != ExitError || !strings.Contains(out.String(), "error passes: the test took longer than 1ns: ") {
		t.Errorf("exit code %d, %s%s", code, &out, &errOut)
	}
}
