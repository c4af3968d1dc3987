package cli

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"
)

// TestConnectivityIsDrawnFromEverySource: in every format, from an agent, manifests and a bundle.
func TestConnectivityIsDrawnFromEverySource(t *testing.T) {
	const shop = "../../docs/examples/shop"
	socket, file := realShop(t), filepath.Join(t.TempDir(), "b.tgz")
	if code, _, errOut := sluicectl(socket, "", "bundle", file); code == ExitError {
		t.Fatal(errOut)
	}
	for format, begin := range map[string]string{"svg": "<?xml", "html": "<!DOCTYPE html>", "dot": "digraph", "mermaid": "flowchart", "json": "{", "table": "", "yaml": ""} {
		for _, command := range []string{"graph", "matrix"} {
			var first string
			for _, source := range [][]string{nil, {"--manifests", shop}, {"--from", file}} {
				code, out, errOut := sluicectl(socket, "", append([]string{command, "-o", format}, source...)...)
				if code != ExitOK || !strings.HasPrefix(out, begin) || len(out) < 500 {
					t.Errorf("%s -o %s %v: exit code %d, %.80q, %s", command, format, source, code, out, errOut)
				}
				if first == "" {
					first = out
				}
				if out != first && format != "table" { // a matrix says how many packets were sent
					t.Errorf("%s -o %s %v differs from what the agent's state gives", command, format, source)
				}
			}
		}
	}
}

// TestConnectivityShowsAChange that a manifest makes, and one that deletes.
func TestConnectivityShowsAChange(t *testing.T) {
	args := []string{"--manifests", "../../docs/examples/shop"}
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"graph", "--diff", "../../docs/examples/preview/cart.yaml"}, "closed   8082/tcp "},
		{[]string{"graph", "--delete", "../../docs/examples/shop/60-data-policies.yaml", "-o", "mermaid"}, "opened: every port"},
		{[]string{"matrix", "--diff", "../../docs/examples/preview/cart.yaml"}, "+ something opens"},
		{[]string{"matrix", "--diff", "../../docs/examples/preview/cart.yaml", "-o", "html"}, "(changed: closed)"},
		{[]string{"matrix", "--diff", "../../docs/examples/preview/cart.yaml", "-o", "json"}, `"change": "opened"`},
	} {
		var out, errOut bytes.Buffer
		if code := Run(append(tc.args, args...), strings.NewReader(""), &out, &errOut); code != ExitOK || !strings.Contains(out.String(), tc.want) {
			t.Errorf("%v: exit code %d, %s\n%s", tc.args, code, errOut.String(), out.String())
		}
	}
}

// TestConnectivityRefusesWhatMakesNoSense with one clear error.
func TestConnectivityRefusesWhatMakesNoSense(t *testing.T) {
	for want, args := range map[string][]string{
		`invalid argument "png"`:          {"graph", "-o", "png"},
		"want svg, dot, mermaid, html":    {"matrix", "-o", "pdf"},
		"is not there":                    {"graph", "--manifests", "../../docs/examples/shop", "--delete", "../../docs/examples/tiers"},
		"no such file":                    {"graph", "--manifests", "../../docs/examples/shop", "--diff", "nowhere.yaml"},
		`--from "nobody": no pod`:         {"graph", "--manifests", "../../docs/examples/shop", "--from", "nobody"},
		"no agent listens on /nowhere/s:": {"graph"},
	} {
		if code, out, errOut := sluicectl("/nowhere/s", "", args...); code != ExitError || out != "" || !strings.Contains(errOut, want) {
			t.Errorf("%v: exit code %d, %q, %q", args, code, out, errOut)
		}
	}
}
