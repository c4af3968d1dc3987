package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/cli/traffic"
	"github.com/sluice-net/sluice/internal/view"
	"github.com/sluice-net/sluice/tests/lab/programs"
)

// fields returns the cells of each line, with one space between them.
func fields(text string) (out []string) {
	for line := range strings.Lines(text) {
		out = append(out, strings.Join(strings.Fields(line), " "))
	}
	return out
}

// TestTopOfShop sends packets through the embedded dataplane, and finds them in every list.
func TestTopOfShop(t *testing.T) {
	socket := realShop(t)
	for range 3 {
		sluicectl(socket, "", "inject", "shop/batch-0", "shop/catalog-0:http")
	}
	drops := func() (out []view.Drop, errOut string) {
		_, text, errOut := sluicectl(socket, "", "top", "drops", "--from-pod", "shop/batch-0", "--to-label", "app=catalog", "-o", "json")
		if err := json.Unmarshal([]byte(text), &out); err != nil {
			t.Fatal(err, errOut)
		}
		return out, errOut
	}
	programs.Eventually(t, func() error {
		if found, errOut := drops(); len(found) != 1 || found[0].Packets < 3 || found[0].Src != "shop/batch-0" || len(found[0].Origins) == 0 {
			return fmt.Errorf("%s: the drops are %+v", errOut, found)
		}
		return nil
	})
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"top", "drops", "-n", "shop", "--from-pod", "batch-0"}, "shop/batch-0 -> shop/catalog-0:8081 tcp"},
		{[]string{"top", "pods", "-A", "--sort-by", "denied"}, "shop/batch-0"},
		{[]string{"watch", "verdicts", "--follow=false", "--since", "1h", "batch", "--to-pod", "shop/catalog-0"}, "shop/batch-0:"},
	} {
		code, out, errOut := sluicectl(socket, "", c.args...)
		if code != ExitOK || !strings.Contains(out, c.want) {
			t.Errorf("%v: exit code %d, %s; printed\n%s", c.args, code, errOut, out)
		}
	}
	if _, out, _ := sluicectl(socket, "", "top", "drops", "-n", "nowhere"); out != "nothing so far\n" {
		t.Errorf("without drops: %q", out)
	}
}

func decisions() []view.Decided {
	origin := func(ns, name string, rule int) api.Origin {
		return api.Origin{Policy: api.PolicyID{Namespace: ns, Name: name}, Direction: api.Ingress, Rule: rule}
	}
	return []view.Decided{
		{Renderer: "acl", Origin: origin("shop", "web", 0), Action: api.Permit, Packets: 7},
		{Renderer: "acl", Origin: origin("shop", "web", api.IsolationRule), Action: api.Deny, Packets: 2},
		{Renderer: "acl", Origin: origin("data", "db", 1), Action: api.Permit, Packets: 8},
		{Renderer: "acl", Action: api.Permit, Packets: 1},
	}
}

func TestTopSortsWhatRulesDecided(t *testing.T) {
	socket := agent(t, map[string]http.HandlerFunc{"GET /v1/decisions": func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(decisions()) // a client that is gone fails the test itself
	}})
	for want, args := range map[string][]string{
		"POLICY PACKETS DENIED PERMITTED|shop/web 9 2 7|data/db 8 0 8|(no policy) 1 0 1": {"policies"},
		"POLICY PACKETS DENIED PERMITTED|data/db 8 0 8|and 2 more: --limit 0 shows all":  {"policies", "--sort-by", "permitted", "--limit", "1"},
		"RULE VERDICT PACKETS RENDERER|ingress rule 1 of data/db permit 8 acl|ingress rule 0 of shop/web permit 7 acl|" +
			"ingress isolation by shop/web deny 2 acl|(no policy) permit 1 acl": {"rules"},
		`--sort-by "hits": want packets, name`:                       {"rules", "--sort-by", "hits"},
		"--limit -1: want a number of rows, or 0":                    {"rules", "--limit", "-1"},
		"--namespace and --all-namespaces exclude each other: leave": {"rules", "-A", "-n", "x"},
	} {
		code, out, errOut := sluicectl(socket, "", append([]string{"top"}, args...)...)
		got := strings.Join(fields(out), "|")
		if code == ExitOK && got != want || code != ExitOK && !strings.Contains(errOut, want) {
			t.Errorf("top %v: exit code %d, %s; printed\n%s", args, code, errOut, got)
		}
	}
}

// TestTopGoesOnOverARestart watches an agent whose counters grow, that is gone once, and whose
// counters begin anew then.
func TestTopGoesOnOverARestart(t *testing.T) {
	var mu sync.Mutex
	asked := 0
	socket := agent(t, map[string]http.HandlerFunc{"GET /v1/decisions": func(w http.ResponseWriter, _ *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		asked++
		all := decisions()[:1]
		switch asked {
		case 2:
			all[0].Packets = 1007
		case 3, 4: // a client asks once more by itself
			panic(http.ErrAbortHandler)
		case 5:
			all[0].Packets = 1
		}
		_ = json.NewEncoder(w).Encode(all) // a client that is gone fails the test itself
	}})
	out, errOut := &programs.Buffer{}, &programs.Buffer{}
	ended := make(chan int)
	go func() {
		ended <- Run([]string{"--socket", socket, "top", "policies", "-w"}, strings.NewReader(""), &until{out, "shop/web 1 0 1 -"}, errOut)
	}()
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Fatal(out.String(), errOut.String())
	}
	lines := strings.Join(fields(out.String()), "|")
	if !strings.Contains(lines, "shop/web 7 0 7 -") || !strings.Contains(lines, "shop/web 1007 0 1007 ") || strings.Contains(lines, "shop/web 1007 0 1007 -") {
		t.Errorf("printed\n%s", out)
	}
	if !strings.Contains(errOut.String(), "asking again for 1m0s") || !strings.Contains(errOut.String(), "the agent answers again") {
		t.Errorf("the standard error is %s", errOut)
	}
}

// until is an output that is closed once a line was written.
type until struct {
	*programs.Buffer
	line string
}

func (u *until) Write(p []byte) (int, error) {
	if strings.Contains(strings.Join(fields(u.String()), "|"), u.line) {
		return 0, http.ErrHandlerTimeout // any error
	}
	return u.Buffer.Write(p)
}

func TestFollowGivesUp(t *testing.T) {
	errOut := &programs.Buffer{}
	s := traffic.Shell{ErrOut: errOut, Patience: time.Millisecond}
	asked := 0
	err := s.Follow(t.Context(), newClient("none", 0), func(worked func()) error {
		if asked++; asked == 1 {
			worked()
		}
		return errAgentEnded
	})
	if !errors.Is(err, errAgentEnded) || asked != 2 || strings.Count(errOut.String(), "\n") != 1 {
		t.Errorf("after %d questions %v: %s", asked, err, errOut)
	}
}

// TestFiltersOfAGeneratedClusterAreThoseOfTheirWords sends packets between pods of a cluster of a
// thousand, and compares what the agent selects with what the verdicts say.
func TestFiltersOfAGeneratedClusterAreThoseOfTheirWords(t *testing.T) {
	socket := realCluster(t)
	var pods []view.Pod
	_, text, _ := sluicectl(socket, "", "get", "pods", "-o", "json")
	if err := json.Unmarshal([]byte(text), &pods); err != nil {
		t.Fatal(err)
	}
	pods = slices.DeleteFunc(pods, func(p view.Pod) bool {
		return p.State != "enforced" || !slices.Contains(p.Isolated, api.Ingress) || !slices.ContainsFunc(p.Addresses, netip.Addr.Is4)
	})
	labels := map[string]map[string]string{}
	for _, p := range pods {
		labels[p.Pod.String()] = p.Labels
	}
	denied := 0
	for i := 0; i < 300 && denied < 20; i++ {
		src, dst := pods[i*i%len(pods)].Pod, pods[(i*31+5)%len(pods)].Pod
		code, _, errOut := sluicectl(socket, "", "inject", src.String(), dst.String()+":4444/udp")
		if code == ExitError {
			t.Fatalf("inject: %s", errOut)
		}
		if code == ExitDenied {
			denied++
		}
	}
	ask := func(args ...string) (out []view.PacketVerdict) {
		code, text, errOut := sluicectl(socket, "", append([]string{"watch", "verdicts", "--follow=false", "-o", "json"}, args...)...)
		if code != ExitOK {
			t.Fatalf("%v: exit code %d: %s", args, code, errOut)
		}
		for line := range strings.Lines(text) {
			var v view.PacketVerdict
			if err := json.Unmarshal([]byte(line), &v); err != nil {
				t.Fatal(err)
			}
			out = append(out, v)
		}
		return out
	}
	all := ask()
	if len(all) < denied || denied == 0 {
		t.Fatalf("%d packets of %d that were denied are known", len(all), denied)
	}
	first := all[0]
	key, value := "", ""
	for key, value = range labels[first.Src.Name] {
		break
	}
	for _, c := range []struct {
		args []string
		want func(v view.PacketVerdict) bool
	}{
		{[]string{"--from-namespace", first.Src.Pod.Namespace}, func(v view.PacketVerdict) bool { return v.Src.Pod.Namespace == first.Src.Pod.Namespace }},
		{[]string{"-n", first.Dst.Pod.Namespace}, func(v view.PacketVerdict) bool {
			return v.Src.Pod.Namespace == first.Dst.Pod.Namespace || v.Dst.Pod.Namespace == first.Dst.Pod.Namespace
		}},
		{[]string{"--from-label", key + "=" + value}, func(v view.PacketVerdict) bool { return labels[v.Src.Name][key] == value }},
		{[]string{"--to-peer", first.Dst.Address.String()}, func(v view.PacketVerdict) bool { return v.Dst.Address == first.Dst.Address }},
		{[]string{"--to-pod", first.Dst.Name, "--direction", "ingress"}, func(v view.PacketVerdict) bool {
			return v.Dst.Pod.Namespace == first.Dst.Pod.Namespace && strings.Contains(v.Dst.Pod.Name, first.Dst.Pod.Name) && v.Direction == api.Ingress
		}},
		{[]string{"--policy", first.Origins[0].Policy.Short()}, func(v view.PacketVerdict) bool {
			return slices.ContainsFunc(v.Origins, func(o api.Origin) bool { return o.Policy == first.Origins[0].Policy })
		}},
		{[]string{"--protocol", "udp"}, func(v view.PacketVerdict) bool { return v.Flow.Protocol == api.UDP }},
	} {
		want := slices.DeleteFunc(slices.Clone(all), func(v view.PacketVerdict) bool { return !c.want(v) })
		if got := ask(c.args...); len(got) != len(want) || c.args[0] != "--protocol" && c.args[0] != "--to-pod" && len(got) == 0 {
			t.Errorf("%v: %d of %d verdicts, want %d", c.args, len(got), len(all), len(want))
		}
	}
}
