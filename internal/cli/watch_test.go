package cli

import (
	"encoding/json"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/view"
)

// Verdicts as an agent reports them.
func reported() []view.PacketVerdict {
	rule := 1
	web, db := api.PodID{Namespace: "shop", Name: "web-0"}, api.PodID{Namespace: "data", Name: "postgres-0"}
	at := time.Date(2026, 5, 4, 12, 30, 15, 250e6, time.Local)
	flow := api.Flow{Src: netip.MustParseAddr("10.0.0.1"), Dst: netip.MustParseAddr("10.0.0.2"), Protocol: api.TCP, SrcPort: 4000, DstPort: 5432}
	six := api.Flow{Src: netip.MustParseAddr("2001:db8::1"), Dst: netip.MustParseAddr("fd00::2"), Protocol: api.ICMPv6, SrcPort: 7, DstPort: 7}
	return []view.PacketVerdict{
		{
			Time: at, Renderer: "xdp", Pod: db, Interface: 7, Direction: api.Ingress, Action: api.Deny, Reason: "policy", Flow: flow, Bytes: 66,
			Src: view.Party{Name: web.String(), Pod: web, Address: flow.Src}, Dst: view.Party{Name: db.String(), Pod: db, Address: flow.Dst},
			MatchedRule: view.MatchedRule{
				Table: "egress of data/postgres-0", Rule: &rule, Match: "deny any",
				Origins: []api.Origin{{Policy: api.PolicyID{Namespace: "data", Name: "default-deny"}, Rule: api.IsolationRule}},
			},
		},
		{
			Time: at, Renderer: "xdp", Pod: db, Interface: 7, Direction: api.Ingress, Action: api.Deny, Reason: "malformed", Flow: six, Missed: 41,
			Src: view.Party{Name: "2001:db8::1", Address: six.Src}, Dst: view.Party{Name: db.String(), Pod: db, Address: six.Dst},
		},
	}
}

func TestWatchFollowsVerdicts(t *testing.T) {
	var asked []view.Watch
	socket := agent(t, map[string]http.HandlerFunc{"POST /v1/verdicts": func(w http.ResponseWriter, r *http.Request) {
		var q view.Watch
		if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
			t.Error(err)
		}
		asked = append(asked, q)
		for _, v := range reported() {
			_ = json.NewEncoder(w).Encode(v) // a client that is gone fails the test itself
		}
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}})
	code, out, errOut := sluicectl(socket, "", "watch", "verdicts", "web", "-n", "shop", "--policy", "data/default-deny", "--action", "all",
		"--direction", "ingress", "--peer", "10.0.0.0/24", "--protocol", "TCP", "--port", "5432", "--count", "2", "-l", "app in (web)",
		"--from-pod", "a/b", "--from-label", "c", "--from-peer", "10.0.0.1", "--from-port", "1", "--since", "10m",
		"--to-namespace", "d", "--to-pod", "e", "--to-label", "!f", "--to-peer", "fd00::/8", "--to-port", "65535")
	want := "12:30:15.250  deny     ingress  shop/web-0:4000 -> data/postgres-0:5432 tcp" + strings.Repeat(" ", 19) + "NetworkPolicy data/default-deny isolates ingress\n" +
		"... 41 packets not reported\n" +
		"12:30:15.250  deny     ingress  2001:db8::1 -> data/postgres-0 icmpv6" + strings.Repeat(" ", 25) + "malformed\n"
	if _, rows, _ := strings.Cut(out, "\n"); code != ExitOK || rows != want {
		t.Errorf("exit code %d, %s; printed\n%swant\n%s", code, errOut, out, want)
	}
	in := api.Ingress
	wantQ := view.Watch{
		Action: "all", Policy: "data/default-deny", Direction: &in, Protocol: api.TCP, Since: 10 * time.Minute,
		WatchSide: view.WatchSide{Namespace: "shop", Pod: "web", Labels: "app in (web)", Peer: netip.MustParsePrefix("10.0.0.0/24"), Port: 5432},
		From:      view.WatchSide{Namespace: "a", Pod: "b", Labels: "c", Peer: netip.MustParsePrefix("10.0.0.1/32"), Port: 1},
		To:        view.WatchSide{Namespace: "d", Pod: "e", Labels: "!f", Peer: netip.MustParsePrefix("fd00::/8"), Port: 65535},
	}
	if got, _ := json.Marshal(asked[0]); string(got) != string(mustJSON(t, wantQ)) {
		t.Errorf("the agent was asked %s, want %s", got, mustJSON(t, wantQ))
	}

	for _, args := range [][]string{{"-o", "json", "--count", "1"}, {"-o", "yaml", "--count", "1"}, {"-o", "wide", "--for", "300ms"}} {
		code, out, errOut := sluicectl(socket, "", slices.Concat([]string{"watch", "verdicts"}, args)...)
		if code != ExitOK || !strings.Contains(out, "egress of data/postgres-0") || !strings.Contains(out, "default-deny") {
			t.Errorf("%v: exit code %d, %s; printed\n%s", args, code, errOut, out)
		}
	}
	if q := asked[len(asked)-1]; q.Action != view.WatchDenied || q.Direction != nil || q.Peer.IsValid() {
		t.Errorf("without filters the agent is asked %+v", q)
	}
}

func mustJSON(t *testing.T, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestWatchRefusesWithReason(t *testing.T) {
	refusing := agent(t, map[string]http.HandlerFunc{"POST /v1/verdicts": fails(http.StatusUnprocessableEntity, "nobody tells")})
	ending := agent(t, map[string]http.HandlerFunc{"POST /v1/verdicts": func(http.ResponseWriter, *http.Request) {}})
	breaking := agent(t, map[string]http.HandlerFunc{"POST /v1/verdicts": func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(reported()[0]) // a client that is gone fails the test itself
		_ = json.NewEncoder(w).Encode(view.WatchEnd{Error: "nobody tells any more"})
	}})
	for _, c := range []struct {
		socket, want string
		args         []string
	}{
		{refusing, "nobody tells", nil},
		{breaking, "nobody tells any more", nil},
		{ending, `--verdict "drop": want deny, permit, all or audit`, []string{"--verdict", "drop"}},
		{ending, `--from-label "a b": `, []string{"--from-label", "a b"}},
		{ending, `--to-pod "a/b/c": want NAME or NAMESPACE/NAME`, []string{"--to-pod", "a/b/c"}},
		{ending, `--pod "a/b" is not in namespace c`, []string{"--pod", "a/b", "-n", "c"}},
		{ending, "POD and --pod are the same", []string{"web", "--pod", "web"}},
		{ending, "--namespace and --all-namespaces exclude each other", []string{"-A", "-n", "web"}},
		{ending, "--from-peer \"fe80::1%eth0\"", []string{"--from-peer", "fe80::1%eth0"}},
		{ending, "--since -1s: want a time that is not negative", []string{"--since", "-1s"}},
		{ending, "--to-port", []string{"--to-port", "65536"}},
		{ending, "--direction", []string{"--direction", "in"}},
		{ending, "--peer", []string{"--peer", "shop"}},
		{ending, "--protocol", []string{"--protocol", "tpc"}},
	} {
		code, _, errOut := sluicectl(c.socket, "", append([]string{"watch", "verdicts"}, c.args...)...)
		if code != ExitError || !strings.Contains(errOut, c.want) {
			t.Errorf("%v: exit code %d and %q, want one that says %q", c.args, code, errOut, c.want)
		}
	}
}

// TestWatchFollowsVerdictsOverRestart has the agent end twice while it is watched. What is printed
// goes on, and the gaps are reported on the standard error.
func TestWatchFollowsVerdictsOverRestart(t *testing.T) {
	var asked []view.Watch
	socket := agent(t, map[string]http.HandlerFunc{"POST /v1/verdicts": func(w http.ResponseWriter, r *http.Request) {
		var q view.Watch
		if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
			t.Error(err)
		}
		asked = append(asked, q)
		_ = json.NewEncoder(w).Encode(reported()[0]) // a client that is gone fails the test itself
	}})
	code, out, errOut := sluicectl(socket, "", "watch", "verdicts", "-o", "json", "--count", "3", "--since", "1m")
	if code != ExitOK || strings.Count(out, "\n") != 3 || strings.Count(errOut, "the agent has ended; asking again for 1m0s\n") != 1 || strings.Count(errOut, "what came in between is missing\n") != 2 {
		t.Errorf("exit code %d, %s; printed\n%s", code, errOut, out)
	}
	if asked[0].Since != time.Minute || asked[1].Since != 0 {
		t.Errorf("what was kept is asked for again: %+v", asked)
	}
	code, out, errOut = sluicectl(socket, "", "watch", "verdicts", "-o", "json", "--follow=false")
	if code != ExitOK || strings.Count(out, "\n") != 1 || errOut != "" || !asked[3].Past {
		t.Errorf("what was kept: exit code %d, %s; printed\n%s", code, errOut, out)
	}
}
