package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	"github.com/sluice-net/sluice/tests/lab/samples"
)

// TestExitCodesTellManifestsWithProblems: an answer that goes without an object is printed, and
// ends in an error that a script sees.
func TestExitCodesTellManifestsWithProblems(t *testing.T) {
	dir := t.TempDir()
	state, flows := filepath.Join(dir, "state"), filepath.Join(dir, "flows.jsonl")
	if err := os.Mkdir(state, 0o700); err != nil {
		t.Fatal(err)
	}
	write := func(path, content string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pods := samples.Namespace("shop")
	for _, name := range []string{"a", "b"} {
		pods += "---\n{apiVersion: v1, kind: Pod, metadata: {name: " + name + ", namespace: shop, labels: {app: " + name + "}}, spec: {nodeName: node-1}, status: {podIP: 10.1.0." + map[string]string{"a": "1", "b": "2"}[name] + "}}\n"
	}
	write(filepath.Join(state, "pods.yaml"), pods)
	write(flows, `{"renderer":"acl","pod":"shop/a","direction":"egress","action":"permit","flow":{"src":"10.1.0.1","dst":"10.1.0.2","protocol":"tcp","srcPort":4000,"dstPort":80},`+
		`"src":{"name":"shop/a","pod":"shop/a","address":"10.1.0.1"},"dst":{"name":"shop/b","pod":"shop/b","address":"10.1.0.2"}}`+"\n")
	wrong := filepath.Join(state, "wrong.yaml")
	change := filepath.Join(dir, "change.yaml")
	write(change, policyOf("other", "{podSelector: {}, ingress: [{}]}"))
	for problem, c := range map[string]struct {
		make  func()
		names string
	}{
		"an unknown version": {func() {
			write(wrong, strings.Replace(policyOf("deny", "{podSelector: {}}"), "networking.k8s.io/v1", "networking.k8s.io/v2", 1))
		}, "NetworkPolicy shop/deny"},
		"an invalid object": {func() {
			write(wrong, policyOf("deny", "{podSelector: {matchExpressions: [{key: a, operator: Like}]}}"))
		}, "NetworkPolicy shop/deny"},
		"an invalid part": {func() { write(wrong, policyOf("deny", "{podSelector: {}, ingress: [{}, {ports: [{port: 0}]}]}")) }, "NetworkPolicy shop/deny: spec.ingress[1].ports[0].port"},
		"no YAML":         {func() { write(wrong, "{") }, "wrong.yaml"},
		"an unreadable file": {func() {
			if err := os.Remove(wrong); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink("nowhere", wrong); err != nil {
				t.Fatal(err)
			}
		}, "wrong.yaml: cannot be read"},
	} {
		_ = os.Remove(wrong) // there is none at first
		write(wrong, "")
		c.make()
		for _, args := range [][]string{
			{"explain", "shop/a", "shop/b:80"}, {"matrix"}, {"matrix", "-o", "json"}, {"graph"}, {"graph", "-o", "dot"}, {"graph", "--diff", change},
			{"diff", "-f", change, "--renderers", "", "--fail-on", ""}, {"suggest", "-n", "shop", "-f", flows},
		} {
			args := append(args, "--manifests", state)
			code, out, errOut := sluicectl("/nowhere", "", args...)
			if code != ExitError || out == "" || !strings.Contains(errOut, c.names) {
				t.Errorf("%s, %v: exit code %d, %q, %s", problem, args, code, errOut, out)
			}
			code, again, errOut := sluicectl("/nowhere", "", append(args, "--allow-problems")...)
			if code != ExitOK || again != out || !strings.Contains(errOut, c.names) {
				t.Errorf("%s, %v --allow-problems: exit code %d, %q, %s", problem, args, code, errOut, again)
			}
		}
	}
}

func TestExitCodesTellDeviceFromManifest(t *testing.T) {
	for _, args := range [][]string{{"matrix", "--manifests"}, {"graph", "--manifests"}, {"convert", "-f"}, {"apply", "-f"}, {"explain", "a/a", "a/b:1", "--manifests"}, {"test"}} {
		if code, out, errOut := sluicectl("/nowhere", "", append(args, "/dev/zero")...); code != ExitError || strings.Contains(out, "verdict") || !strings.Contains(errOut, "/dev/zero") {
			t.Errorf("%v /dev/zero: exit code %d, %q, %q", args, code, out, errOut)
		}
	}
}

func TestConvertEscapesWhatTerminalsObey(t *testing.T) {
	in := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"text":"\u202eb\u2066c\u009bd\u001b[2Je"}}`
	code, out, errOut := sluicectl("/nowhere", in, "convert", "-f", "-")
	if i := strings.IndexFunc(out+errOut, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }); code != ExitOK || i >= 0 {
		t.Errorf("exit code %d, %q, %q", code, out, errOut)
	}
	if _, again, errOut := sluicectl("/nowhere", out, "convert", "-f", "-", "-o", "json"); !strings.Contains(again, `"\u202eb\u2066c\u009bd\u001b[2Je"`) {
		t.Errorf("read again it is %s, %s", again, errOut)
	}
}
