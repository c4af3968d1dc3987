package configurator

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/api"
)

func TestGenerateNeedsPermitsOfAllSharers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		policies := drawTiers(t)
		var shared []api.Sharing
		for range rapid.IntRange(1, 2).Draw(t, "others") {
			shared = append(shared, api.Sharing{
				Policies: drawTiers(t), Before: rapid.Bool().Draw(t, "before"),
				Apart: rapid.SampledFrom([]netip.Prefix{{}, {}, pfx("0.0.0.0/0"), pfx("::/0")}).Draw(t, "apart"),
			})
		}
		for _, d := range []api.Direction{api.Ingress, api.Egress} {
			g := generate(d, policies, false, shared...)
			for _, f := range propertyFlows(d) {
				peer := f.Src
				if d == api.Egress {
					peer = f.Dst
				}
				want := decided(d, policies, f)
				for _, s := range shared {
					want = want && (s.Apart.IsValid() && s.Apart.Contains(peer) || decided(d, s.Policies, f))
				}
				if got, by := g.evaluate(f); got != want {
					t.Fatalf("%s %s: permitted is %t by %d, want %t; rules\n%s", d, f, got, by, want, g.text())
				}
			}
		}
	})
}

func TestGenerateTakesNodesOfSharers(t *testing.T) {
	isolated := ingressOf("a")
	remote := func(node ...netip.Addr) api.Sharing {
		return api.Sharing{Policies: []*api.ContivPolicy{ingressOf("b")}, Elsewhere: true, Node: node}
	}
	other := netip.MustParseAddr("192.168.0.2")
	for _, tt := range []struct {
		name   string
		own    []*api.ContivPolicy
		shared api.Sharing
		want   string
	}{
		{"only the node of the other pod", nil, remote(other), "permit any 192.168.0.2/32 -> any; b*\ndeny any any -> any; b!\n"},
		{"a node without an address", nil, remote(), "deny any any -> any; b!\n"},
		{"both isolated, on two nodes", []*api.ContivPolicy{isolated}, remote(other),
			"permit any C -> any; a* b*\ndeny any set:node -> any; b!\ndeny any any -> any; a!\n"},
		{"both isolated, on one node", []*api.ContivPolicy{isolated}, api.Sharing{Policies: []*api.ContivPolicy{ingressOf("b")}},
			"permit any set:node -> any; a* b*\ndeny any any -> any; a!\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, tierText(generate(api.Ingress, tt.own, true, tt.shared))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestGenerateNamesDenyingSharer(t *testing.T) {
	own, other := ingressOf("a", rule("set:300", "tcp/80-81")), ingressOf("b", rule("set:300", "tcp/79-80"))
	want := "permit tcp set:12c -> any port 80; a0 b0\ndeny tcp set:12c -> any port 80-81; b!\ndeny any any -> any; a!\n"
	g := generate(api.Ingress, []*api.ContivPolicy{own}, false, api.Sharing{Policies: []*api.ContivPolicy{other}})
	if diff := cmp.Diff(want, tierText(g)); diff != "" {
		t.Error(diff)
	}
}

func TestTxnGivesSharersOneList(t *testing.T) {
	f := newFixture(t)
	a, b := []*api.ContivPolicy{ingressOf("a", rule("set:300", "tcp/80-81"))}, []*api.ContivPolicy{ingressOf("b", rule("set:300", "tcp/79-80"))}
	both := func(x *Txn) {
		x.Configure(podID(0), podAddrs(0), a, []api.Sharing{{Policies: b}})
		x.Configure(podID(1), podAddrs(0), b, []api.Sharing{{Policies: a, Before: true}})
	}
	f.commit(both)
	if one, other := f.config(0).Egress, f.config(1).Egress; one == nil || one != other {
		t.Errorf("two lists:\n%v\n%v", one, other)
	}
	f.commit(func(x *Txn) { x.Configure(podID(0), podAddrs(0), a, nil) }, func(x *Txn) { x.Remove(podID(1)) })
	if got := f.config(0).Egress.Rules(); !slices.Equal(generate(api.Ingress, a, true).rules.Rules(), got) {
		t.Errorf("when the other one is gone: %v", got)
	}
	f.commit(func(x *Txn) { x.Remove(podID(0)) })
	for what, n := range footprint(f.c) {
		if n != 0 {
			t.Errorf("%d %s are left", n, what)
		}
	}
}
