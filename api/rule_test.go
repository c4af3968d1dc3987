package api_test

import (
	"encoding/json"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/api"
)

// The universes are small so that subsets, equal parts and overlaps are common.
var (
	genAddr = rapid.Custom(func(t *rapid.T) netip.Addr {
		if rapid.Bool().Draw(t, "v6") {
			return netip.AddrFrom16([16]byte{0: 0xfd, 15: byte(rapid.IntRange(0, 7).Draw(t, "host"))})
		}
		return netip.AddrFrom4([4]byte{10, 0, 0, byte(rapid.IntRange(0, 7).Draw(t, "host"))})
	})
	genNet = rapid.Custom(func(t *rapid.T) api.Net {
		switch rapid.IntRange(0, 3).Draw(t, "shape") {
		case 0:
			return api.Net{}
		case 1:
			return api.SetNet(api.SetID(rapid.IntRange(1, 3).Draw(t, "set")))
		}
		a := genAddr.Draw(t, "addr")
		p, err := a.Prefix(a.BitLen() - rapid.SampledFrom([]int{0, 1, 2, 3, 24, a.BitLen()}).Draw(t, "host bits"))
		if err != nil {
			t.Fatal(err)
		}
		return api.PrefixNet(p)
	})
	genPorts = rapid.Custom(func(t *rapid.T) api.PortRange {
		edge := rapid.SampledFrom([]uint16{0, 1, 79, 80, 81, 8000, 65534, 65535})
		a, b := edge.Draw(t, "first"), edge.Draw(t, "last")
		if a > b {
			a, b = b, a
		}
		if a == 0 && b == 0 {
			return api.AnyPort
		}
		return api.Ports(a, b)
	})
	genProtocol = rapid.SampledFrom([]api.Protocol{api.AnyProtocol, api.ICMP, api.TCP, api.UDP, api.SCTP, 255})
	genRule     = rapid.Custom(func(t *rapid.T) api.ContivRule {
		r := api.ContivRule{
			Action:   rapid.SampledFrom([]api.Action{api.Deny, api.Permit}).Draw(t, "action"),
			Src:      genNet.Draw(t, "src"),
			Dst:      genNet.Draw(t, "dst"),
			Protocol: genProtocol.Draw(t, "protocol"),
		}
		if r.Protocol.HasPorts() {
			r.SrcPort, r.DstPort = genPorts.Draw(t, "source port"), genPorts.Draw(t, "destination port")
		}
		return r
	})
)

func TestCompareIsTotalOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := genRule.Draw(t, "a"), genRule.Draw(t, "b"), genRule.Draw(t, "c")
		if (a.Compare(b) == 0) != (a == b) {
			t.Fatalf("compare is %d but equality is %v: %v, %v", a.Compare(b), a == b, a, b)
		}
		if a.Compare(b) != -b.Compare(a) {
			t.Fatalf("not antisymmetric: %v, %v", a, b)
		}
		if a.Compare(b) <= 0 && b.Compare(c) <= 0 && a.Compare(c) > 0 {
			t.Fatalf("not transitive: %v, %v, %v", a, b, c)
		}
	})
}

func TestRuleOfSubsetSortsFirst(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := genRule.Draw(t, "a"), genRule.Draw(t, "b")
		if within(a, b) && !within(b, a) && a.Compare(b) >= 0 {
			t.Fatalf("%v matches a part of %v but does not sort first", a, b)
		}
		b.Action = api.Permit
		d := b
		d.Action = api.Deny
		if d.Compare(b) >= 0 {
			t.Fatalf("the deny of the same traffic does not sort first: %v", b)
		}
	})
}

// within reports whether all traffic of a is known to be traffic of b.
func within(a, b api.ContivRule) bool {
	return netWithin(a.Src, b.Src) && netWithin(a.Dst, b.Dst) &&
		(b.Protocol == api.AnyProtocol || a.Protocol == b.Protocol) &&
		portsWithin(a.SrcPort, b.SrcPort) && portsWithin(a.DstPort, b.DstPort)
}

func netWithin(a, b api.Net) bool {
	switch {
	case b.IsAny() || a == b:
		return true
	case a.IsAny() || a.Set != 0 || b.Set != 0:
		return false
	}
	return a.Prefix.Bits() >= b.Prefix.Bits() && b.Prefix.Contains(a.Prefix.Addr())
}

func portsWithin(a, b api.PortRange) bool {
	af, al := a.Bounds()
	bf, bl := b.Bounds()
	return bf <= af && al <= bl
}

func TestRuleOfSubsetMatchesNoMore(t *testing.T) {
	inSet := func(s api.SetID, a netip.Addr) bool { return uint64(s)&1 == uint64(a.As16()[15])&1 }
	rapid.Check(t, func(t *rapid.T) {
		a, b := genRule.Draw(t, "a"), genRule.Draw(t, "b")
		f := api.Flow{
			Src: genAddr.Draw(t, "src"), Dst: genAddr.Draw(t, "dst"), Protocol: genProtocol.Draw(t, "flow protocol"),
			SrcPort: rapid.Uint16().Draw(t, "sport"), DstPort: rapid.SampledFrom([]uint16{0, 79, 80, 81, 9000}).Draw(t, "dport"),
		}
		if within(a, b) && a.Matches(f, inSet) && !b.Matches(f, inSet) {
			t.Fatalf("%v is within %v, but only the first matches %v", a, b, f)
		}
	})
}

func TestRulesSortSpecificFirst(t *testing.T) {
	set := api.SetNet(api.NewSetID("app=web"))
	ten := api.PrefixNet(netip.MustParsePrefix("10.1.2.3/8"))
	host := api.AddrNet(netip.MustParseAddr("10.1.2.3"))
	v6 := api.PrefixNet(netip.MustParsePrefix("fd00::/8"))
	want := []api.ContivRule{
		{Action: api.Permit, Src: set},
		{Action: api.Permit, Src: host, Protocol: api.TCP, DstPort: api.Port(80)},
		{Action: api.Permit, Src: host, Protocol: api.TCP, DstPort: api.Ports(80, 90)},
		{Action: api.Permit, Src: host, Protocol: api.TCP},
		{Action: api.Permit, Src: host},
		{Action: api.Deny, Src: ten, Protocol: api.UDP},
		{Action: api.Permit, Src: ten, Protocol: api.UDP},
		{Action: api.Permit, Src: v6},
		{Action: api.Permit, Protocol: api.SCTP},
		{},
	}
	got := slices.Clone(want)
	slices.Reverse(got)
	slices.SortFunc(got, api.ContivRule.Compare)
	if d := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); d != "" {
		t.Errorf("order (-want +got):\n%s", d)
	}
}

func TestRuleString(t *testing.T) {
	for _, tc := range []struct {
		rule api.ContivRule
		want string
	}{
		{api.ContivRule{}, "deny any any -> any"},
		{api.ContivRule{Action: api.Permit, Protocol: api.TCP, Dst: api.PrefixNet(netip.MustParsePrefix("10.1.0.0/16")), DstPort: api.Ports(8000, 8010)},
			"permit tcp any -> 10.1.0.0/16 port 8000-8010"},
		{api.ContivRule{Src: api.SetNet(api.NodeSet), Protocol: 47, SrcPort: api.Port(7)}, "deny 47 set:node port 7 -> any"},
	} {
		if got := tc.rule.String(); got != tc.want {
			t.Errorf("got %q, want %q", got, tc.want)
		}
	}
}

func TestRuleSurvivesJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := genRule.Draw(t, "rule")
		b, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		var got api.ContivRule
		if err := json.Unmarshal(b, &got); err != nil {
			t.Fatalf("%s: %v", b, err)
		}
		if got != want {
			t.Fatalf("%s became %v, want %v", b, got, want)
		}
	})
}

func TestMatchesLooksAtEveryPart(t *testing.T) {
	rule := api.ContivRule{
		Action: api.Permit, Protocol: api.TCP, SrcPort: api.Ports(1000, 2000), DstPort: api.Port(80),
		Src: api.PrefixNet(netip.MustParsePrefix("10.0.0.0/8")), Dst: api.SetNet(7),
	}
	inSet := func(s api.SetID, a netip.Addr) bool { return s == 7 && a == netip.MustParseAddr("10.9.9.9") }
	hit := api.Flow{
		Src: netip.MustParseAddr("10.1.1.1"), Dst: netip.MustParseAddr("10.9.9.9"),
		Protocol: api.TCP, SrcPort: 1500, DstPort: 80,
	}
	if !rule.Matches(hit, inSet) {
		t.Fatalf("%v does not match %v", rule, hit)
	}
	for name, change := range map[string]func(*api.Flow){
		"source":           func(f *api.Flow) { f.Src = netip.MustParseAddr("11.1.1.1") },
		"source family":    func(f *api.Flow) { f.Src = netip.MustParseAddr("fd00::1") },
		"destination":      func(f *api.Flow) { f.Dst = netip.MustParseAddr("10.9.9.8") },
		"protocol":         func(f *api.Flow) { f.Protocol = api.UDP },
		"source port":      func(f *api.Flow) { f.SrcPort = 999 },
		"destination port": func(f *api.Flow) { f.DstPort = 81 },
	} {
		miss := hit
		change(&miss)
		if rule.Matches(miss, inSet) {
			t.Errorf("another %s: %v matches %v", name, rule, miss)
		}
	}
}
