package matrix

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/term"
)

var (
	http    = Port{"http", api.TCP, 8080}
	metrics = Port{"metrics", api.TCP, 9090}
)

func addrs(texts ...string) (out []netip.Addr) {
	for _, s := range texts {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

func world() []Endpoint {
	return []Endpoint{
		{Group: "internet", External: true, Addrs: addrs("198.51.100.7")},
		{Group: "shop/web", Addrs: addrs("10.0.0.2", "fd00::2"), Ports: []Port{http, metrics}},
		{Group: "shop/web", Addrs: addrs("10.0.0.1"), Ports: []Port{http, metrics}},
		{Group: "shop/db", Addrs: addrs("10.0.0.9", "fd00::9"), Ports: []Port{metrics}},
	}
}

// judge opens http to everyone, and the second web's IPv6 address to nothing.
func judge(f api.Flow) bool { return f.DstPort == 8080 && f.Src != netip.MustParseAddr("fd00::9") }

func TestEveryPairIsAskedOncePerFamily(t *testing.T) {
	asked := map[api.Flow]int{}
	m := Compute(world(), func(f api.Flow) bool {
		asked[f]++
		return judge(f)
	})
	for f, n := range asked {
		if n != 1 || f.Src == f.Dst || f.Src.Is4() != f.Dst.Is4() {
			t.Errorf("%v is asked %d times", f, n)
		}
	}
	if m.Probes != len(asked) {
		t.Errorf("%d probes reported, %d asked", m.Probes, len(asked))
	}
	var names []string
	for _, g := range m.Groups {
		names = append(names, g.Name)
	}
	if d := cmp.Diff([]string{"shop/db", "shop/web", "internet"}, names); d != "" {
		t.Error(d)
	}
	want := Cell{Reach: Some, Ports: []PortReach{{http, Some}, {metrics, None}}}
	if d := cmp.Diff(want, m.Cells[0][1]); d != "" {
		t.Errorf("db to web (-want +got):\n%s", d)
	}
	if d := cmp.Diff(Cell{Reach: Some, Ports: []PortReach{{http, All}, {metrics, None}}}, m.Cells[1][1]); d != "" {
		t.Errorf("web to web (-want +got):\n%s", d)
	}
	if d := cmp.Diff(Cell{}, m.Cells[1][2]); d != "" {
		t.Errorf("an external without ports is asked: %s", d)
	}
}

func TestPrinted(t *testing.T) {
	m := Compute(world(), judge)
	var b strings.Builder
	w := term.NewWriter(&b)
	m.Write(w)
	m.WriteOpen(w)
	want := `   from \ to     1  2  3
1  shop/db          ◐
2  shop/web (2)  ·  ◐
3  internet      ·  ◐
● every port that the destination declares   ◐ some   · none
  shop/db       →  shop/web ~http:8080/tcp
  shop/web (2)  →  shop/web http:8080/tcp
  internet      →  shop/web http:8080/tcp
`
	if d := cmp.Diff(want, b.String()); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}

func TestOutsideDestinationsWithEqualPortsStandTogether(t *testing.T) {
	https := Port{"https", api.TCP, 443}
	m := Compute([]Endpoint{
		{Group: "shop/web", Addrs: addrs("10.0.0.1"), Ports: []Port{http}},
		{Group: "a", External: true, Addrs: addrs("192.0.2.1"), Ports: []Port{https}},
		{Group: "b", External: true, Addrs: addrs("192.0.2.2"), Ports: []Port{https}},
		{Group: "c", External: true, Addrs: addrs("192.0.2.3"), Ports: []Port{http, https}},
	}, func(f api.Flow) bool { return f.Dst != addrs("10.0.0.1")[0] })
	want := []string{"a, b https:443/tcp", "c https:443/tcp http:8080/tcp"}
	if d := cmp.Diff(want, m.reached(0)); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}

func TestDiffNamesWhatOpenedAndClosed(t *testing.T) {
	before := Compute(world(), judge)
	after := Compute(world()[:3], func(f api.Flow) bool { return f.DstPort == 9090 })
	want := []Difference{
		{"shop/web", "shop/web", http, All, None},
		{"shop/web", "shop/web", metrics, None, All},
		{"internet", "shop/web", http, All, None},
		{"internet", "shop/web", metrics, None, All},
		{"shop/db", "shop/web", http, Some, None},
	}
	if d := cmp.Diff(want, after.Diff(before)); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
	if d := before.Diff(before); d != nil {
		t.Errorf("a matrix differs from itself: %v", d)
	}
}

func TestTooManyGroupsAreCutAndSaid(t *testing.T) {
	var many []Endpoint
	for i := range maxGroups + 5 {
		a := netip.AddrFrom4([4]byte{10, 0, byte(i / 250), byte(i%250 + 1)})
		many = append(many, Endpoint{Group: a.String(), Addrs: []netip.Addr{a}, Ports: []Port{http}})
	}
	m := Compute(many, judge)
	if len(m.Groups) != maxGroups || m.Left != 5 {
		t.Errorf("%d groups, %d left", len(m.Groups), m.Left)
	}
}
