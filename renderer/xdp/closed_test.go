package xdp_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/xdp"
	"github.com/sluice-net/sluice/renderer/xdp/compile"
)

// TestClosedListsAreNamedAndExplained renders a namespace whose rules take more than its share of
// the policy memory: its traffic is denied, and Unenforced reports the rules. Other namespaces are
// not affected.
func TestClosedListsAreNamedAndExplained(t *testing.T) {
	t.Parallel()
	r, err := xdp.New(xdp.Options{Dataplane: xdp.NewHeap(), PolicyMemory: 1 << 20, Interfaces: func(pod api.PodID, _ []netip.Addr) []uint32 {
		return []uint32{uint32(pod.Name[0])}
	}})
	if err != nil {
		t.Fatal(err)
	}
	commit := func(namespace, name string, ip netip.Addr, peers int) {
		t.Helper()
		var rules []api.ContivRule
		var origins [][]api.Origin
		for n := range peers {
			peer := friend4
			if n > 0 {
				peer = netip.AddrFrom4([4]byte{172, 16, byte(n >> 8), byte(n)})
			}
			rules, origins = append(rules, permitTCP(api.AddrNet(peer), 80, compile.ToPod)), append(origins, []api.Origin{origin(name, 0)})
		}
		changes := renderer.Changes{}
		changes.Render(api.PodID{Namespace: namespace, Name: name}, renderer.PodConfig{IPs: []netip.Addr{ip}, Egress: renderer.NewRuleList(rules, origins)})
		if err := r.Apply(t.Context(), changes); err != nil {
			t.Fatal(err)
		}
	}
	check := func(when string, ip netip.Addr, want api.Action) {
		t.Helper()
		f := tcpFlow(friend4, ip, 1, 80)
		if d := r.Explain(f); len(d) != 1 || d[0].Action != want {
			t.Errorf("%s %s is explained by %+v, want %s", when, f, d, want)
		}
		if got, err := r.Verdict(f); err != nil || got != want {
			t.Errorf("%s the verdict about %s is %s, %v, want %s", when, f, got, err, want)
		}
	}
	commit("small", "a", own4, 1)
	commit("large", "b", other4, 6000)
	check("beside a large namespace", own4, api.Permit)
	check("of a large namespace", other4, api.Deny)
	u := r.Unenforced()
	if len(u) != 1 || u[0].Origin != origin("b", 0) || u[0].Class != api.ClassLimit || u[0].Pods != 1 || !strings.Contains(u[0].Reason, "namespace large") {
		t.Errorf("not enforced are %+v, want the rules of namespace large", u)
	}
	commit("large", "b", other4, 2)
	check("of a namespace that is not large any more", other4, api.Permit)
	if u := r.Unenforced(); len(u) > 0 {
		t.Errorf("not enforced are %+v, want none", u)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
}

// namesPod reports whether a table of what is installed is of a pod.
func namesPod(r *xdp.Renderer, pod api.PodID) bool {
	return slices.ContainsFunc(r.State().Tables, func(table renderer.Table) bool { return slices.Contains(table.Pods, pod) })
}
