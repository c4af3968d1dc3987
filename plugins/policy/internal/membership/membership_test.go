package membership

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/sluice-net/sluice/plugins/policy/internal/intent"

	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/api"
)

func TestTakeSumsInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.SampledFrom([]int{0, 1, 5, radixNumbers + 9}).Draw(t, "n")
		seed := rapid.Uint32().Draw(t, "seed")
		var l deltas
		want, joins := map[netip.Addr]int{}, 0
		for range n {
			seed = seed*1664525 + 1013904223
			a, d := addrOf(seed), int(seed>>30)/2*2-1
			l.add(a, d)
			want[a] += d
			joins += (d + 1) / 2
		}
		if join, leave := l.size(); join != joins || leave != n-joins {
			t.Fatalf("%d join and %d leave, want %d and %d", join, leave, joins, n-joins)
		}
		var got []netip.Addr
		l.drain(nil, func(a netip.Addr, d int) {
			if got = append(got, a); d != want[a] {
				t.Fatalf("the sum for %s is %d, want %d", a, d, want[a])
			}
		})
		if !slices.IsSortedFunc(got, netip.Addr.Compare) || len(slices.Compact(got)) != len(want) {
			t.Fatalf("%d addresses, sorted or not, of %d: %v", len(got), len(want), got)
		}
		l.drain(nil, func(a netip.Addr, d int) { t.Fatalf("%s is taken again", a) })
	})
}

// addrOf returns an address of either family; some come twice.
func addrOf(x uint32) netip.Addr {
	x &= 0xff00ff0f
	if x&8 != 0 {
		return netip.AddrFrom16([16]byte{0: 0xfd, 14: byte(x >> 24), 15: byte(x)})
	}
	return netip.AddrFrom4([4]byte{byte(x >> 24), 1, byte(x >> 8), byte(x)})
}

func TestPeerStringIsReadable(t *testing.T) {
	web, err := intent.NewSelector([]intent.Requirement{{Key: "app", Values: []string{"web"}}})
	if err != nil {
		t.Fatal(err)
	}
	for want, s := range map[string]key{
		"pods app=web in shop": {scope: scopeKey{namespace: "shop"}, pods: web.String()},
		"pods app=web in b":    {scope: scopeKey{selected: true, text: "kubernetes.io/metadata.name=b"}, pods: web.String()},
		"all pods in namespaces kubernetes.io/metadata.name=b,x=y": {scope: scopeKey{selected: true, text: "kubernetes.io/metadata.name=b,x=y"}},
		"all pods in all namespaces":                               {scope: scopeKey{selected: true}},
		"all pods in namespaces app=web":                           {scope: scopeKey{selected: true, text: web.String()}},
		"all pods of the cluster":                                  {},
		"all pods of the cluster, within 1::/16":                   {block: "1::/16"},
	} {
		if got := s.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestSelectorsThatDifferHaveDifferentSets(t *testing.T) {
	keys := []key{
		{}, {scope: scopeKey{namespace: "a"}}, {scope: scopeKey{selected: true}}, {scope: scopeKey{selected: true, text: "a"}},
		{pods: "a"}, {port: api.PortName{Protocol: api.TCP, Name: "a"}}, {port: api.PortName{Protocol: api.UDP, Name: "a"}}, {block: "a"},
	}
	seen := map[string]bool{}
	for _, k := range keys {
		for _, number := range []uint16{0, 80} {
			seen[k.canonical(number)] = true
		}
	}
	if len(seen) != 2*len(keys) {
		t.Errorf("%d texts for %d sets", len(seen), 2*len(keys))
	}
}
