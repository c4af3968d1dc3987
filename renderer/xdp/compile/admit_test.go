package compile

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

// manyRows is a list with n rules, each about all addresses but one and with a port of its own, of
// which every row is a node.
func manyRows(m *Image, first api.SetID, n int) *renderer.RuleList {
	var rules []api.ContivRule
	for i := range n {
		id := first + api.SetID(i)
		var members []netip.Prefix
		for k := range n {
			if k != i {
				members = append(members, hostOf(k))
			}
		}
		m.Update(id, members, nil)
		rules = append(rules, api.ContivRule{Action: api.Permit, Src: api.SetNet(id), Protocol: api.TCP, DstPort: api.Port(uint16(1 + 3*i))})
	}
	return renderer.NewRuleList(append(rules, api.ContivRule{}), nil)
}

func hostOf(i int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 9, byte(i >> 8), byte(i)}), 32)
}

// permits reports whether a list of an endpoint permits TCP from the i-th host.
func permits(m *Image, id uint32, i int, port uint16) bool {
	f := api.Flow{Src: hostOf(i).Addr(), Dst: netip.MustParseAddr("10.0.0.1"), Protocol: api.TCP, SrcPort: 1, DstPort: port}
	return Reader{m.Words()}.Verdict(m.Record(id), ToPod, f)&Allow != 0
}

func set(t *testing.T, m *Image, id uint32, owner string, l *renderer.RuleList) {
	t.Helper()
	if err := m.Set(Endpoint{ID: id, IPs: []netip.Addr{netip.AddrFrom4([4]byte{10, 0, 0, byte(id)})}, Owner: owner, ToPod: l}); err != nil {
		t.Fatal(err)
	}
}

// plan makes a plan and carries it out.
func plan(t *testing.T, m *Image) Plan {
	t.Helper()
	p := m.Plan(false)
	if err := m.check(); err != nil {
		t.Fatal(err)
	}
	m.Release(m.Done())
	return p
}

func web(i int) *renderer.RuleList {
	return renderer.NewRuleList([]api.ContivRule{{Action: api.Permit, Src: api.PrefixNet(hostOf(i)), Protocol: api.TCP, DstPort: api.Port(80)}, {}}, nil)
}

// costOfRows is what n rows of a list of manyRows with n rules cost, and that of other addresses.
func costOfRows(n int) int { return n*(linesOfRow+2*n) + linesOfRow + 2 }

// TestLimitsCloseDearestLists and no others, until they are cheaper.
func TestLimitsCloseDearestLists(t *testing.T) {
	m := NewImage(Options{Limits: Limits{Rows: Bounds{List: costOfRows(120) - 1}}})
	set(t, m, 1, "tenant", manyRows(m, 300, 120))
	set(t, m, 2, "tenant", web(3))
	set(t, m, 3, "other", web(4))
	p := plan(t, m)
	if got, want := fmt.Sprint(m.Refused()), fmt.Sprintf("[{1 0 tenant {2 true %d}}]", costOfRows(120)-1); got != want {
		t.Fatalf("refused is %s, want %s", got, want)
	}
	if permits(m, 1, 3, 1) || !permits(m, 2, 3, 80) || !permits(m, 3, 4, 80) || permits(m, 3, 5, 80) {
		t.Error("a list that is closed is open, or another one is not what it was")
	}
	if u := m.Use(); u.Rows > 20 || p.Slots > 8 {
		t.Errorf("there are %d rows and %d counters although the list is closed", u.Rows, p.Slots)
	}
	for k := range 60 {
		for i := range api.SetID(120) {
			m.Update(300+i, nil, []netip.Prefix{hostOf(60 + k)})
		}
	}
	if plan(t, m); len(m.Refused()) > 0 || !permits(m, 1, 3, 1) || permits(m, 1, 0, 1) || permits(m, 1, 77, 1) {
		t.Errorf("a list whose sets are small now is closed: %v", m.Refused())
	}
	set(t, m, 1, "tenant", manyRows(m, 300, 119))
	if plan(t, m); len(m.Refused()) > 0 || !permits(m, 1, 5, 1) {
		t.Errorf("a list that is cheap enough now is closed: %v", m.Refused())
	}
	set(t, m, 1, "tenant", web(5))
	if plan(t, m); m.Use().Rows > 20 {
		t.Errorf("%d rows are left of what is gone", m.Use().Rows)
	}
}

// TestLimitsOfNamespaceAdmitTheCheapest lists that fit together.
func TestLimitsOfNamespaceAdmitTheCheapest(t *testing.T) {
	m := NewImage(Options{Limits: Limits{Rows: Bounds{Namespace: costOfRows(50) + costOfRows(40) + 1000}}})
	set(t, m, 1, "tenant", manyRows(m, 300, 50))
	set(t, m, 2, "tenant", manyRows(m, 400, 40))
	if plan(t, m); len(m.Refused()) != 0 {
		t.Fatalf("refused is %v, and both fit", m.Refused())
	}
	set(t, m, 3, "tenant", manyRows(m, 500, 40))
	if plan(t, m); len(m.Refused()) != 1 || m.Refused()[0].ID != 1 || m.Refused()[0].One {
		t.Errorf("refused is %v, want the largest", m.Refused())
	}
	m.Remove(2)
	if plan(t, m); len(m.Refused()) != 0 || !permits(m, 1, 3, 1) || permits(m, 1, 3, 10) {
		t.Errorf("what fits now is refused: %v", m.Refused())
	}
}

// TestLimitsOfAllGiveEvenParts: the namespace that wants most has what others leave.
func TestLimitsOfAllGiveEvenParts(t *testing.T) {
	m := NewImage(Options{Limits: Limits{Rows: Bounds{Total: costOfRows(100)}}})
	set(t, m, 1, "large", manyRows(m, 1000, 100))
	if plan(t, m); len(m.Refused()) != 0 {
		t.Fatalf("refused is %v, and there is no other namespace", m.Refused())
	}
	for i := range 5 {
		set(t, m, uint32(2+i), "small", web(i))
	}
	plan(t, m)
	if refused := m.Refused(); len(refused) != 1 || refused[0].Owner != "large" {
		t.Errorf("refused is %v, want the large one", refused)
	}
	for i := range 5 {
		if !permits(m, uint32(2+i), i, 80) {
			t.Errorf("endpoint %d of the small namespace is closed", 2+i)
		}
	}
}

// TestLimitsOfAddressesCloseBeforeWrite: a list that names too many takes no classes.
func TestLimitsOfAddressesCloseBeforeWrite(t *testing.T) {
	m := NewImage(Options{Limits: Limits{Addresses: Bounds{Namespace: 1 << 10}}})
	var members []netip.Prefix
	for i := range 1 << 11 {
		members = append(members, hostOf(i))
	}
	m.Update(300, members, nil)
	set(t, m, 1, "tenant", renderer.NewRuleList([]api.ContivRule{{Action: api.Permit, Src: api.SetNet(300)}, {}}, nil))
	plan(t, m)
	if len(m.Refused()) != 1 || m.Refused()[0].Of != Addresses || permits(m, 1, 3, 1) || m.Use().Classes > 2 {
		t.Fatalf("refused is %v, with %d classes", m.Refused(), m.Use().Classes)
	}
	m.Update(300, nil, members[5:])
	if plan(t, m); len(m.Refused()) != 0 || !permits(m, 1, 3, 1) || permits(m, 1, 7, 1) {
		t.Errorf("a set that is small now: refused is %v", m.Refused())
	}
	m.Update(300, members[5:], nil)
	if plan(t, m); len(m.Refused()) != 1 || permits(m, 1, 3, 1) || m.Use().Classes > 2 {
		t.Errorf("a set that is large again: refused is %v, with %d classes", m.Refused(), m.Use().Classes)
	}
}

// TestLimitsDependOnStateOnly: whatever changes led to a state, what is refused is what an image
// refuses that gets all of it at once, and nothing is more open than its list.
func TestLimitsDependOnStateOnly(t *testing.T) {
	limits := Limits{Addresses: Bounds{Namespace: 60, Total: 120}, Rows: Bounds{List: 250, Namespace: 350, Total: 600}}
	some := map[Resource]int{}
	for seed := range uint64(worlds(t)) {
		w := newWorld(t, 500+seed)
		w.image = NewImage(Options{Limits: limits})
		for range 25 {
			for id := range uint32(6) {
				if w.rng.IntN(3) == 0 {
					w.set(Endpoint{ID: 1 + id, IPs: []netip.Addr{w.addr()}, Owner: string('a' + rune(id/2)), ToPod: w.list(ToPod), FromPod: w.list(FromPod)})
				}
			}
			w.changeSet(w.setID(), 20)
			p := w.image.Plan(false)
			if err := w.image.check(); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			w.upload(&p)
			for _, step := range w.steps(&p) {
				step()
			}
			w.done()

			at := NewImage(Options{Limits: limits})
			for id, members := range w.sets {
				var all []netip.Prefix
				for p := range members {
					all = append(all, p)
				}
				at.Update(id, all, nil)
			}
			for _, id := range w.image.endpoints.sorted() {
				if err := at.Set(w.image.endpoints.all[id].Endpoint); err != nil {
					t.Fatal(err)
				}
			}
			at.Plan(false)
			if got, want := w.image.Refused(), at.Refused(); !slices.Equal(got, want) {
				t.Fatalf("seed %d: refused are %v, by an image that is new %v", seed, got, want)
			}
			for _, r := range at.Refused() {
				some[r.Of]++
			}
			for _, f := range w.flows(100) {
				got, _ := w.verdict(f)
				refused := slices.ContainsFunc(at.Refused(), func(r Refusal) bool { return r.ID == f.id && r.Dir == f.dir })
				if want := w.want(f) && !refused; got != want {
					t.Fatalf("seed %d: endpoint %d direction %d flow %s is permitted: %t, want %t (refused: %t)\n%s", seed, f.id, f.dir, f.Flow, got, want, refused, w.dump())
				}
			}
		}
	}
	if some[Addresses] == 0 || some[Rows] == 0 {
		t.Errorf("refused were %v", some)
	}
}

func worlds(t *testing.T) int {
	t.Helper()
	if testing.Short() {
		return 4
	}
	return 12
}

// TestRowsTakeNoMoreThanTheirCost whatever their rules are: what limits admit fits into the memory.
func TestRowsTakeNoMoreThanTheirCost(t *testing.T) {
	for seed := range uint64(4 * worlds(t)) {
		w := newWorld(t, 900+seed)
		for id := range api.SetID(5) {
			w.changeSet(300+id, 1+w.rng.IntN(60))
		}
		w.image.Plan(false)
		before := w.image.Use().Lines
		var rules []api.ContivRule
		for range 1 + w.rng.IntN(300) {
			r := api.ContivRule{Action: api.Permit, Protocol: []api.Protocol{api.TCP, api.UDP, api.SCTP}[w.rng.IntN(3)], Src: api.SetNet(w.setID()), DstPort: api.Port(uint16(w.rng.IntN(65536)))}
			if w.rng.IntN(3) == 0 {
				r.DstPort = w.ports()
			}
			rules = append(rules, r)
		}
		set(t, w.image, 1, "tenant", renderer.NewRuleList(append(rules, api.ContivRule{}), nil))
		w.image.Plan(false)
		cost := 0
		for _, p := range w.image.lists.programs {
			cost += p.cost
		}
		addresses := w.image.nets.total
		if took := w.image.Use().Lines - before; took > cost+4*addresses+200 { // a record, a table
			t.Errorf("seed %d: %d rules and %d addresses take %d lines, of which rows cost %d", seed, len(rules), addresses, took, cost)
		}
	}
}

// TestArenaGrowsWithWrittenLines checks that twice as many rules about nearly all addresses take
// twice the lines.
func TestArenaGrowsWithWrittenLines(t *testing.T) {
	lines := func(n int) int {
		m := NewImage(Options{})
		before := m.Use().Lines
		set(t, m, 1, "tenant", manyRows(m, 300, n))
		m.Plan(false)
		return m.Use().Lines - before
	}
	small, large := lines(250), lines(500)
	t.Logf("%d lines for 250 rules, %d for 500", small, large)
	if large > 5*small/2 {
		t.Errorf("250 rules take %d lines, and 500 take %d", small, large)
	}
}

// TestTableSharesPagesOfEqualRows: classes that one list distinguishes cost others next to nothing.
func TestTableSharesPagesOfEqualRows(t *testing.T) {
	lines := func(others int) int {
		m := NewImage(Options{})
		var rules []api.ContivRule
		for i := range 4096 {
			rules = append(rules, api.ContivRule{Action: api.Permit, Src: api.PrefixNet(hostOf(i)), Protocol: api.TCP, DstPort: api.Port(uint16(1 + i))})
		}
		set(t, m, 1, "tenant", renderer.NewRuleList(append(rules, api.ContivRule{}), nil))
		for i := range others {
			wide := api.ContivRule{Action: api.Permit, Src: api.PrefixNet(netip.MustParsePrefix("0.0.0.0/0")), Protocol: api.TCP, DstPort: api.Port(uint16(1 + i))}
			set(t, m, uint32(2+i), "other", renderer.NewRuleList([]api.ContivRule{wide, {}}, nil))
		}
		plan(t, m)
		for i := range others {
			if !permits(m, uint32(2+i), 77, uint16(1+i)) || permits(m, uint32(2+i), 77, 77) {
				t.Errorf("endpoint %d does not have its list", 2+i)
			}
		}
		return m.Use().Lines
	}
	if each := (lines(50) - lines(0)) / 50; each > 80 {
		t.Errorf("a list of two rules takes %d lines beside one of 4096", each)
	}
}
