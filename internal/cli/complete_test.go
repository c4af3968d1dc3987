package cli

import (
	"bytes"
	"io"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/internal/cli/program"
)

// completions are the words that a shell is offered, and what the last line says of them.
func completions(socket string, args ...string) (words []string, directive string) {
	var out bytes.Buffer
	Run(slices.Concat([]string{"__complete", "--socket", socket}, args), strings.NewReader(""), &out, io.Discard)
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	for _, l := range lines[:len(lines)-1] {
		word, _, _ := strings.Cut(l, "\t")
		words = append(words, word)
	}
	return words, lines[len(lines)-1]
}

// TestCompletionOffersNamesOfAgent on an agent that enforces the shop.
func TestCompletionOffersNamesOfAgent(t *testing.T) {
	socket := realShop(t)
	for line, want := range map[string]string{
		"get ":                                  "pods policies namespaces sets tables rules audit limits endpoints nodes status",
		"describe ":                             "pods policies endpoints nodes",
		"get pods -n shop ":                     "batch-0 cart-0 catalog-0 checkout-0 web-0 web-1",
		"get pods -n shop web-0 ":               "batch-0 cart-0 catalog-0 checkout-0 web-1",
		"get limits quota/":                     "quota/data quota/platform quota/shop acl/entries/list acl/entries/namespace acl/entries/total object/bytes object/rules object/named-ports object/addresses",
		"get rules -n data ":                    "postgres-0 redis-0 search-0",
		"describe policy -n data ":              "allow-monitoring default-deny postgres redis search",
		"get pods -n ":                          "data platform shop",
		"watch verdicts -n ":                    "data platform shop",
		"watch verdicts -n data ":               "postgres-0 redis-0 search-0",
		"watch verdicts --direction ":           "ingress egress",
		"watch verdicts --action ":              "deny permit all audit",
		"get pods -o ":                          "wide name json yaml jsonpath= go-template=",
		"explain shop/web-0 data/":              "data/postgres-0: data/redis-0: data/search-0: platform/dns-0: platform/gateway-0: platform/gateway-1: platform/prometheus-0: shop/batch-0: shop/cart-0: shop/catalog-0: shop/checkout-0: shop/web-0: shop/web-1:",
		"get nosuch ":                           "",
		"explain shop/web-0 data/redis-0:6379 ": "",
	} {
		args := strings.Split(line, " ")
		if words, _ := completions(socket, args...); strings.Join(words, " ") != want {
			t.Errorf("%s: offered %q, want %q", line, words, want)
		}
	}
	for line, want := range map[string]string{"matrix --to ": "data platform shop :4", "matrix --from ": "data platform shop :0", "explain --from ": ":0", "diff --from ": ":0"} {
		words, files := completions(socket, strings.Split(line, " ")...)
		if got := strings.Join(append(words, files), " "); got != want {
			t.Errorf("%s: offered %q, want %q", line, got, want)
		}
	}
	if words, _ := completions(socket, "get", "nodes", "--policy", ""); len(words) != 15 || words[0] != "data/allow-monitoring" {
		t.Errorf("policies are %q", words)
	}
}

// TestCompletionOffersNoControlCharacters when an agent names it.
func TestCompletionOffersNoControlCharacters(t *testing.T) {
	socket := hostileAgent(t)
	for _, args := range [][]string{{"get", "pods", ""}, {"get", "policies", ""}, {"get", "pods", "-n", ""}, {"get", "nodes", ""}} {
		words, directive := completions(socket, args...)
		if len(words) > 0 || directive != ":4" {
			t.Errorf("%q: offered %.200q, %s", args, words, directive)
		}
	}
}

// TestCompletionDoesNotWaitForAgent that does not answer, or is not there.
func TestCompletionDoesNotWaitForAgent(t *testing.T) {
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	for _, socket := range []string{l.Addr().String(), filepath.Join(t.TempDir(), "none")} {
		begin := time.Now()
		words, directive := completions(socket, "get", "pods", "")
		if took := time.Since(begin); len(words) > 0 || directive != ":1" || took > 5*completionTime {
			t.Errorf("%s: offered %q, %s, after %s", socket, words, directive, took)
		}
	}
}

// TestKubectlPluginIsCalledAsKubectlDoes in all texts.
func TestKubectlPluginIsCalledAsKubectlDoes(t *testing.T) {
	for path, want := range map[string]string{
		"/usr/bin/sluicectl": "sluicectl", "kubectl-sluice": "kubectl sluice", "/root/.krew/bin/kubectl-sluice": "kubectl sluice",
		"kubectl-sluice.exe": "kubectl sluice", "cli.test": "sluicectl",
	} {
		if got := program.CalledAs(path); got != want {
			t.Errorf("%s is called as %q", path, got)
		}
	}
	var each func(*cobra.Command)
	each = func(cmd *cobra.Command) {
		var help bytes.Buffer
		cmd.SetOut(&help)
		if err := cmd.Help(); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(help.String()) {
			if strings.Contains(line, "sluicectl ") && !strings.Contains(line, "env ") || strings.Contains(line, "kubectl-sluice") {
				t.Errorf("%s: %s", cmd.CommandPath(), line)
			}
		}
		if cmd.Runnable() && !strings.Contains(help.String(), "\n  kubectl sluice") {
			t.Errorf("%s has no usage: %s", cmd.CommandPath(), help.String())
		}
		for _, c := range cmd.Commands() {
			each(c)
		}
	}
	each((&options{output: formatTable, in: strings.NewReader(""), out: io.Discard}).command(program.Plugin, io.Discard))
}

func TestIsPlainRefusesShellCharacters(t *testing.T) {
	for word, want := range map[string]bool{
		"shop/web-0": true, "local:06e4372484e13490": true, "AdminNetworkPolicy x": true,
		"$(reboot)": false, "a;b": false, "a`b`": false, "a\x1b[2J": false, "ä": false, strings.Repeat("x", 1<<20): false, "a'b": false, "--socket=/tmp/s": false,
	} {
		if got := isPlain(word); got != want {
			t.Errorf("%.40q is plain: %t", word, got)
		}
	}
}
