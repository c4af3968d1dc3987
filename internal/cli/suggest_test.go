package cli

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/tests/lab/programs"
)

const shopFlows = "../../docs/examples/suggest/flows.jsonl"

// TestSuggestFromRealAgent sends packets through an agent that keeps permitted flows, and applies
// what is suggested: the packets pass again, and others do not.
func TestSuggestFromRealAgent(t *testing.T) {
	l, err := start(mustAbs(manifestsOf), "--verdict-history", "all")
	if err != nil {
		t.Fatal(err)
	}
	for _, flow := range []string{"shop/web-0 shop/cart-0:8082", "platform/gateway-0 shop/web-1:8080", "shop/checkout-0 203.0.113.7:443"} {
		if code, out, errOut := sluicectl(l.socket, "", append([]string{"inject"}, strings.Fields(flow)...)...); code != ExitOK {
			t.Fatalf("%s: exit code %d, %s%s", flow, code, out, errOut)
		}
	}
	var out, errOut string
	var code int
	err = programs.Poll(time.Minute, func() error { // verdicts are kept a moment after the packets
		code, out, errOut = sluicectl(l.socket, "", "suggest", "-n", "shop", "--replace")
		if !strings.Contains(out, "203.0.113.7/32") {
			return errors.New("the last packet is not there")
		}
		return nil
	})
	if err != nil || code != ExitOK || errOut != "" {
		t.Fatalf("exit code %d, %s%s", code, out, errOut)
	}
	for _, want := range []string{
		"# They close ", "  name: observed-web\n", "podSelector: {matchLabels: {app: cart}}\n", "{protocol: TCP, port: 8082}", "# delete: kubectl delete networkpolicy -n shop cart\n",
		"# note: no policy for workloads of which nothing was observed: batch, catalog\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("want %q in\n%s", want, out)
		}
	}
	path := filepath.Join(t.TempDir(), "suggested.yaml")
	if err := os.WriteFile(path, []byte(out), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, out, errOut := sluicectl(l.socket, "", "diff", "-f", path, "--fail-on", "opened,memory"); code != ExitOK {
		t.Errorf("what is suggested opens something: exit code %d, %s%s", code, out, errOut)
	}
}

// TestSuggestExitCodes are those of the documentation, with one clear error for each mistake.
func TestSuggestExitCodes(t *testing.T) {
	base := []string{"suggest", "-n", "shop", "--manifests", shopDir}
	ping := `{"action":"permit","direction":"egress","flow":{"src":"10.10.1.10","dst":"10.10.1.30","protocol":"icmp"}}` + "\n"
	web := `{"action":"permit","direction":"egress","flow":{"src":"10.10.1.10","dst":"10.10.1.30","protocol":"tcp","dstPort":8082}}` + "\n"
	toData := `{"action":"permit","direction":"egress","flow":{"src":"10.10.1.10","dst":"10.10.2.20","protocol":"tcp","dstPort":6379}}` + "\n"
	for _, tc := range []struct {
		stdin string
		args  []string
		code  int
		want  string
	}{
		{"", append(base, "-f", shopFlows), ExitOK, "# Policies for namespace shop, from 15 flows"},
		{"", append(base, "-f", shopFlows, "--audit"), ExitOK, "  annotations: {sluice.io/mode: audit}\n"},
		{"", append(base, "-f", shopFlows, "--replace", "--matrix"), ExitOK, "\n# + something opens   - something closes   ± both\n"},
		{"", append(base, "-f", shopFlows, "--timeout", "1ns"), ExitOK, "# note: not compared with today, as that takes longer than --timeout 1ns"},
		{web, append(base, "-f", "-"), ExitOK, "observed-web"},
		{web + ping, append(base, "-f", "-"), ExitDenied, "# WARNING: not permitted, because a NetworkPolicy can permit them only with every port"},
		{toData, append(base, "-f", "-"), ExitDenied, "# WARNING: shop/web-0 -> data/redis-0:6379/tcp stays denied: ingress isolation by data/"},
		{"", append(base, "-f", "-"), ExitError, "namespace shop, 0 verdicts: nothing was observed"},
		{"x", append(base, "-f", "-"), ExitError, "standard input, line 1: want a verdict"},
		{"", base, ExitError, "--manifests have no verdicts: name a file of them with -f"},
		{"", []string{"suggest"}, ExitError, "--namespace is needed"},
		{"", append(base, "-f", shopFlows, "--since", "1m"), ExitError, "--since is about the verdicts of the agent"},
		{"", append(base, "-f", shopFlows, "-o", "table"), ExitError, "want yaml or json"},
		{"", []string{"suggest", "-n", "nowhere", "--manifests", shopDir, "-f", shopFlows}, ExitError, `namespace "nowhere" has no pods`},
		{"", []string{"suggest", "-n", "shop", "--from", shopFlows}, ExitError, "want agent, or the file of a bundle"},
	} {
		code, out, errOut := sluicectl("/nowhere", tc.stdin, tc.args...)
		if code != tc.code || !strings.Contains(out+errOut, tc.want) || code == ExitError && out != "" {
			t.Errorf("%v: exit code %d, want %d\n%s%s\nwant %s", tc.args, code, tc.code, out, errOut, tc.want)
		}
	}
	code, out, errOut := sluicectl(realShop(t), "", "suggest", "-n", "shop")
	if code != ExitError || out != "" || !strings.Contains(errOut, "keeps the verdicts of denied packets only: it runs with --verdict-history deny") {
		t.Errorf("an agent without permitted flows: exit code %d, %s%s", code, out, errOut)
	}
}

// TestSuggestJSONHasPoliciesAndChange reads it back.
func TestSuggestJSONHasPoliciesAndChange(t *testing.T) {
	code, out, errOut := sluicectl("/nowhere", "", "suggest", "-n", "shop", "--manifests", shopDir, "-f", shopFlows, "--replace", "--matrix", "-o", "json")
	var got struct {
		Policies []struct {
			Kind     string
			Metadata struct{ Name string }
		}
		Change struct {
			Pairs   int
			Changes []struct{ From, To, Change string }
		}
		Matrix struct{ Groups []any }
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil || code != ExitOK || errOut != "" {
		t.Fatalf("exit code %d, %v, %s", code, err, errOut)
	}
	if len(got.Policies) != 4 || got.Policies[0].Kind != "NetworkPolicy" || got.Change.Pairs < 10 || len(got.Change.Changes) == 0 || len(got.Matrix.Groups) < 10 {
		t.Errorf("%+v", got)
	}
}
