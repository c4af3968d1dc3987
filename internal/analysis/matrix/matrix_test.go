package matrix

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/lib/term"
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

func TestComputeAsksEachPairOncePerFamily(t *testing.T) {
	asked := map[api.Flow]int{}
	m := Compute(world(), Selection{}, func(f api.Flow) bool {
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

func TestMatrixWriteIsGolden(t *testing.T) {
	m := Compute(world(), Selection{}, judge)
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

func TestMatrixMergesEqualOutsideDestinations(t *testing.T) {
	https := Port{"https", api.TCP, 443}
	m := Compute([]Endpoint{
		{Group: "shop/web", Addrs: addrs("10.0.0.1"), Ports: []Port{http}},
		{Group: "a", External: true, Addrs: addrs("192.0.2.1"), Ports: []Port{https}},
		{Group: "b", External: true, Addrs: addrs("192.0.2.2"), Ports: []Port{https}},
		{Group: "c", External: true, Addrs: addrs("192.0.2.3"), Ports: []Port{http, https}},
	}, Selection{}, func(f api.Flow) bool { return f.Dst != addrs("10.0.0.1")[0] })
	want := []string{"a, b https:443/tcp", "c https:443/tcp http:8080/tcp"}
	if d := cmp.Diff(want, m.reached(0)); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}

func TestDiffNamesOpenedAndClosedCells(t *testing.T) {
	before := Compute(world(), Selection{}, judge)
	after := Compute(world()[:3], Selection{}, func(f api.Flow) bool { return f.DstPort == 9090 })
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

func TestComputeReportsOmittedGroups(t *testing.T) {
	var many []Endpoint
	for i := range maxGroups + 5 {
		a := netip.AddrFrom4([4]byte{10, 0, byte(i / 250), byte(i%250 + 1)})
		many = append(many, Endpoint{Group: a.String() + "/x", Addrs: []netip.Addr{a}, Ports: []Port{http}})
	}
	m := Compute(many, Selection{}, judge)
	if len(m.Groups) != maxGroups || m.Left != 5 {
		t.Errorf("%d groups, %d left", len(m.Groups), m.Left)
	}
}

func TestSelectionAsksAboutLess(t *testing.T) {
	for _, tc := range []struct {
		s    Selection
		want string // pairs that were asked
	}{
		{Selection{}, "db>web web>web internet>web web>db internet>db"},
		{Selection{From: []string{"internet"}}, "internet>web internet>db"},
		{Selection{From: []string{"shop"}, To: []string{"shop/web"}}, "db>web web>web"},
		{Selection{To: []string{"shop/db"}}, "web>db internet>db"},
		{Selection{Namespace: "shop", From: []string{"internet"}}, "internet>web internet>db"},
	} {
		m := Compute(world(), tc.s, judge)
		got := map[string]bool{}
		for i, row := range m.Cells {
			for j, c := range row {
				if len(c.Ports) > 0 {
					got[strings.TrimPrefix(m.Groups[i].Name, "shop/")+">"+strings.TrimPrefix(m.Groups[j].Name, "shop/")] = true
				}
			}
		}
		for pair := range strings.FieldsSeq(tc.want) {
			if !got[pair] {
				t.Errorf("%+v: %s is not asked", tc.s, pair)
			}
			delete(got, pair)
		}
		if len(got) > 0 {
			t.Errorf("%+v: %v are asked, too", tc.s, got)
		}
	}
}

func TestSelectionRefusesUnknownNames(t *testing.T) {
	for want, s := range map[string]Selection{
		`--from "shp": no pod`:           {From: []string{"shop", "shp"}},
		`--to "shop/nosuch": no pod`:     {To: []string{"shop/nosuch"}},
		`--namespace "internet": no pod`: {Namespace: "internet"},
		`--from "a\x1b[2J": no pod`:      {From: []string{"a\x1b[2J"}},
	} {
		if err := s.Check(world()); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", s, err, want)
		}
	}
	if err := (Selection{Namespace: "shop", From: []string{"internet"}, To: []string{"shop/db"}}).Check(world()); err != nil {
		t.Error(err)
	}
}

// Pods of two namespaces, with the given number of groups each.
func manyEndpoints(groups int) (out []Endpoint) {
	for n := range 2 {
		for g := range groups {
			a := netip.AddrFrom4([4]byte{10, byte(n), 0, byte(g + 1)})
			out = append(out, Endpoint{Group: fmt.Sprintf("ns-%d/app-%d", n, g), Addrs: []netip.Addr{a}, Ports: []Port{http}})
		}
	}
	return out
}

// TestMatrixIsGroupedByNamespace where there are too many groups, but for what is asked about.
func TestMatrixIsGroupedByNamespace(t *testing.T) {
	toZero := func(f api.Flow) bool { return f.Dst.As4()[1] == 0 }
	m := Compute(manyEndpoints(40), Selection{}, toZero)
	if len(m.Groups) != 2 || !m.Namespaces || m.Left != 0 || m.Groups[0] != (Group{Name: "ns-0", Members: 40}) || m.Cells[1][0].Reach != All || m.Cells[0][1].Reach != None {
		t.Errorf("the matrix is %+v", m)
	}
	m = Compute(manyEndpoints(40), Selection{Namespace: "ns-0"}, toZero)
	if len(m.Groups) != 41 || m.Groups[40].Name != "ns-1" || m.Cells[40][3].Reach != All || m.Cells[3][40].Reach != None || len(m.Cells[40][40].Ports) > 0 {
		t.Errorf("with a namespace it has %d groups", len(m.Groups))
	}
}

// TestWriteFitsWidth by namespaces, and by blocks of columns.
func TestWriteFitsWidth(t *testing.T) {
	someOf := func(f api.Flow) bool { return f.Src.As4()[1] == 0 && f.Dst.As4()[3] > 1 }
	for _, tc := range []struct {
		width int
		s     Selection
		want  string

		blocks int
	}{
		{60, Selection{}, "   from \\ to  1  2\n1  ns-0 (10)  ◐  ◐\n2  ns-1 (10)  ·  ·\n● every", 2}, // and in the line that says how to see more
		{40, Selection{From: []string{"ns-0/app-0"}, To: []string{"ns-1"}}, "    from \\ to   2  3  4  5  6  7  8  9\n1   ns-0/app-0  ·  ●  ●  ●  ●  ●  ●  ●\n2   ns-1/app-0\n", 2},
	} {
		var b strings.Builder
		w := term.NewWriter(&b)
		w.SetWidth(tc.width)
		Compute(manyEndpoints(10), tc.s, someOf).Write(w)
		if blocks := strings.Count(b.String(), "from"); !strings.HasPrefix(b.String(), tc.want) || blocks != tc.blocks {
			t.Errorf("%+v in %d columns is\n%swant\n%s", tc.s, tc.width, b.String(), tc.want)
		}
	}
}
