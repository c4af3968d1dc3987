package bench

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/session"
	"github.com/sluice-net/sluice/tests/lab/harness/backends"
)

// BenchmarkSessionRules has an address join a set that an application may connect to on one port,
// and leave it again: how long an event takes on the embedded vswitch and how many rules it
// changes, by the size of the set. "anew" is what taking everything away and adding it again costs.
func BenchmarkSessionRules(b *testing.B) {
	for _, size := range []int{100, 1_000, 10_000} {
		for _, how := range []string{"join-or-leave", "anew"} {
			b.Run(fmt.Sprintf("%d-members/%s", size, how), func(b *testing.B) { sessionRules(b, size, how == "anew") })
		}
	}
}

func sessionRules(b *testing.B, size int, anew bool) {
	pod, set := api.PodID{Namespace: "test", Name: "client"}, api.NewSetID("peers")
	s, err := backends.NewSession(backends.SessionOptions{})
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			b.Error(err)
		}
	}()
	s.Namespaces[pod] = s.Switch.AddNamespace(session.NamespaceID(pod))
	cfg := renderer.PodConfig{IPs: []netip.Addr{netip.MustParseAddr("10.255.0.1")}, Ingress: renderer.NewRuleList([]api.ContivRule{
		{Action: api.Permit, Dst: api.SetNet(set), Protocol: api.TCP, DstPort: api.Port(443)}, {Action: api.Deny}}, nil)}
	commit := func(fill func(*renderer.Changes)) {
		b.Helper()
		txn := renderer.Changes{}
		fill(&txn)
		if err := s.Rules.Apply(b.Context(), txn); err != nil {
			b.Fatal(err)
		}
	}
	var members []netip.Prefix
	for n := range size {
		members = append(members, addressOf(n))
	}
	joins := []netip.Prefix{addressOf(size)}
	commit(func(t *renderer.Changes) {
		t.UpdateSet(set, members, nil)
		t.Render(pod, cfg)
	})
	before := s.Operations()
	for b.Loop() {
		if anew {
			commit(func(t *renderer.Changes) { t.Remove(pod) })
			commit(func(t *renderer.Changes) { t.Render(pod, cfg) })
			continue
		}
		commit(func(t *renderer.Changes) { t.UpdateSet(set, joins, nil) })
		commit(func(t *renderer.Changes) { t.UpdateSet(set, nil, joins) })
	}
	events := float64(b.N)
	if !anew {
		events *= 2
	}
	b.ReportMetric(float64(s.Operations()-before)/events, "rules")
	b.ReportMetric(b.Elapsed().Seconds()*1e3/events, "event-ms")
}
