package agent

import (
	"log/slog"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/agent/config"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/tests/lab/programs"
)

func TestVerdictsAreThoseSinceLastRead(t *testing.T) {
	origin := func(rule int) []api.Origin {
		return []api.Origin{{Policy: api.PolicyID{Kind: api.AdminNetworkPolicy, Name: "p"}, Direction: api.Ingress, Rule: rule}}
	}
	table := func(packets ...uint64) renderer.Table {
		return renderer.Table{
			Rules:   []api.ContivRule{{Action: api.Deny}, {Action: api.Permit}, {Action: api.Deny}},
			Origins: [][]api.Origin{origin(0), origin(1), nil}, Packets: packets,
		}
	}
	type line struct {
		Text    string
		Packets uint64
	}
	look := func(l *verdictLog, tables ...renderer.Table) (out []line) {
		for _, v := range l.since([]*renderer.State{{Renderer: "acl", Tables: tables}}) {
			out = append(out, line{v.key.action + " " + v.key.origins, v.packets})
		}
		return out
	}
	all := &verdictLog{}
	for i, step := range []struct {
		tables []renderer.Table
		want   []line
	}{
		{[]renderer.Table{table(1, 2, 0), table(3, 0, 0)}, []line{
			{"deny AdminNetworkPolicy p ingress rule 0", 4}, {"permit AdminNetworkPolicy p ingress rule 1", 2}}},
		{[]renderer.Table{table(1, 2, 0), table(3, 0, 0)}, nil},
		{[]renderer.Table{table(1, 5, 1), table(3, 0, 0)}, []line{{"deny none", 1}, {"permit AdminNetworkPolicy p ingress rule 1", 3}}},
		{[]renderer.Table{table(2, 0, 0)}, []line{{"deny AdminNetworkPolicy p ingress rule 0", 2}}}, // replaced
	} {
		if diff := cmp.Diff(step.want, look(all, step.tables...)); diff != "" {
			t.Errorf("look %d: %s", i, diff)
		}
	}
	if got := look(&verdictLog{denials: true}, table(1, 1, 1)); len(got) != 2 {
		t.Errorf("denials are %v", got)
	}
	audited := table(1, 1, 1)
	audited.Rules[1].Audit = true
	if got := look(&verdictLog{denials: true}, audited); len(got) != 3 || !strings.HasPrefix(got[0].Text, "audit ") {
		t.Errorf("denials with audited permits are %v", got)
	}
}

// TestVerdictLogNamesDenyingRules watches the log of an agent while traffic is denied.
func TestVerdictLogNamesDenyingRules(t *testing.T) {
	var log programs.Buffer
	a := prepared(t, func(c *config.Config) { c.Log.Verdicts = "deny" })
	a.log = slog.New(slog.NewTextHandler(&log, nil))
	a.run(t)
	a.apply(t, demo)
	traffic(t, a, api.Flow{Src: netip.MustParseAddr("10.2.0.3"), Dst: netip.MustParseAddr("10.2.0.1"), Protocol: api.TCP, SrcPort: 4000, DstPort: 80})
	got := awaitLine(t, &log, "verdict")
	if want := `action=deny packets=1 rule="NetworkPolicy demo/server isolates ingress" renderer=acl`; !strings.Contains(got, want) {
		t.Errorf("the log has %q, want %q", got, want)
	}
}
