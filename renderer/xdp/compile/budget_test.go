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

func plan(m *Image) Plan {
	p := m.Plan(false)
	m.Release(m.Done())
	return p
}

func web(i int) *renderer.RuleList {
	return renderer.NewRuleList([]api.ContivRule{{Action: api.Permit, Src: api.PrefixNet(hostOf(i)), Protocol: api.TCP, DstPort: api.Port(80)}, {}}, nil)
}

// TestBudgetClosesLargestListsOfLargestOwner and no others, until they are smaller.
func TestBudgetClosesLargestListsOfLargestOwner(t *testing.T) {
	m := NewImage(Options{Budget: Budget{Lines: 1 << 13, Share: 1 << 11}})
	set(t, m, 1, "tenant", manyRows(m, 300, 120))
	set(t, m, 2, "tenant", web(3))
	set(t, m, 3, "other", web(4))
	p := plan(m)
	if got, want := fmt.Sprint(m.Refused()), "[{1 0 tenant 2048}]"; got != want {
		t.Fatalf("refused is %s, want %s", got, want)
	}
	if permits(m, 1, 3, 1) || !permits(m, 2, 3, 80) || !permits(m, 3, 4, 80) || permits(m, 3, 5, 80) {
		t.Error("a list that is refused is open, or another one is not what it was")
	}
	if p.Lines > 1<<15 {
		t.Errorf("the memory has %d lines although the list is refused", p.Lines)
	}
	set(t, m, 1, "tenant", web(5))
	if plan(m); len(m.Refused()) > 0 || !permits(m, 1, 5, 80) {
		t.Errorf("a list that is small enough now is refused: %v", m.Refused())
	}
	plan(m)
	if u := m.Use(); u.Lines > 1<<14 {
		t.Errorf("%d lines are in use after what was large is gone", u.Lines)
	}
}

// TestBudgetIsRecomputedWithLists: two lists are too much, one of them is not.
func TestBudgetIsRecomputedWithLists(t *testing.T) {
	alone := NewImage(Options{})
	set(t, alone, 1, "tenant", manyRows(alone, 300, 50))
	alone.Plan(false)
	m := NewImage(Options{Budget: Budget{Lines: 1 << 20, Share: 3 * (50*49 + alone.budget.wanted()) / 2}})
	set(t, m, 1, "tenant", manyRows(m, 300, 50))
	set(t, m, 2, "tenant", manyRows(m, 400, 50))
	if plan(m); len(m.Refused()) != 2 {
		t.Fatalf("refused is %v, want both", m.Refused())
	}
	set(t, m, 2, "tenant", web(1))
	if plan(m); len(m.Refused()) != 0 || !permits(m, 1, 3, 1) || permits(m, 1, 3, 10) {
		t.Errorf("what fits now is refused: %v", m.Refused())
	}
	set(t, m, 2, "tenant", manyRows(m, 400, 50))
	plan(m)
	m.Remove(1)
	if plan(m); len(m.Refused()) != 0 || !permits(m, 2, 3, 1) {
		t.Errorf("what fits without another endpoint is refused: %v", m.Refused())
	}
}

// TestBudgetOfListsAddedOneByOne refuses what it refuses of lists that come together, and builds
// none of them twice.
func TestBudgetOfListsAddedOneByOne(t *testing.T) {
	const n = 12
	budget := Budget{Lines: 1 << 20, Share: 8 * 50 * 49}
	list := func(m *Image, i int) *renderer.RuleList { return manyRows(m, api.SetID(1000+100*i), 20+3*(i%n)) }
	one, all := NewImage(Options{Budget: budget}), NewImage(Options{Budget: budget})
	for i := range n {
		set(t, all, uint32(1+i), "tenant", list(all, i))
		set(t, one, uint32(1+i), "tenant", list(one, i))
		plan(one)
	}
	if plan(all); len(all.Refused()) < 2 || len(all.Refused()) == n || !slices.Equal(all.Refused(), one.Refused()) {
		t.Errorf("refused is %v one by one, and %v together", one.Refused(), all.Refused())
	}
	set(t, one, n+1, "tenant", list(one, 2*n-1)) // too large as well, and of the others it is known
	one.Plan(false)
	if dropped := len(one.Done().Slots()); dropped > 2 { // and one of the others may have less room now
		t.Errorf("%d lists are built and dropped for one that is new", dropped)
	}
}

// TestBudgetOfNodeHalvesShare until all fit: the largest is the first.
func TestBudgetOfNodeHalvesShare(t *testing.T) {
	m := NewImage(Options{Budget: Budget{Lines: 1 << 11}})
	set(t, m, 1, "large", manyRows(m, 1000, 100))
	for i := range 5 {
		set(t, m, uint32(2+i), "small", web(i))
	}
	plan(m)
	refused := m.Refused()
	if len(refused) != 1 || refused[0].Owner != "large" || refused[0].Share > 1<<10 {
		t.Errorf("refused is %v, want the large one, with half of the budget", refused)
	}
	for i := range 5 {
		if !permits(m, uint32(2+i), i, 80) {
			t.Errorf("endpoint %d of the small owner is closed", 2+i)
		}
	}
}

// TestBudgetRefusesAddressesBeforeWrite: a list that names too many takes no classes.
func TestBudgetRefusesAddressesBeforeWrite(t *testing.T) {
	m := NewImage(Options{Budget: Budget{Lines: 1 << 12, Share: 1 << 10}})
	var members []netip.Prefix
	for i := range 1 << 11 {
		members = append(members, hostOf(i))
	}
	m.Update(300, members, nil)
	set(t, m, 1, "tenant", renderer.NewRuleList([]api.ContivRule{{Action: api.Permit, Src: api.SetNet(300)}, {}}, nil))
	plan(m)
	if len(m.Refused()) != 1 || permits(m, 1, 3, 1) || m.Use().Classes > 2 {
		t.Fatalf("refused is %v, with %d classes", m.Refused(), m.Use().Classes)
	}
	m.Update(300, nil, members[5:])
	if plan(m); len(m.Refused()) != 1 {
		t.Error("it is looked at again although nothing of the owner changed")
	}
	m.Reconsider()
	if plan(m); len(m.Refused()) != 0 || !permits(m, 1, 3, 1) || permits(m, 1, 7, 1) {
		t.Errorf("a set that is small now: refused is %v", m.Refused())
	}
}

// TestBudgetDependsOnDesiredStateOnly: whatever changes led to a state, what is refused is what an
// image refuses that gets all of it at once, and nothing is more open than its list.
func TestBudgetDependsOnDesiredStateOnly(t *testing.T) {
	budget := Budget{Lines: 400, Share: 150}
	some := false
	for seed := range uint64(12) {
		w := newWorld(t, 500+seed)
		w.image = NewImage(Options{Budget: budget})
		for range 25 {
			for id := range uint32(6) {
				if w.rng.IntN(3) == 0 {
					w.set(Endpoint{ID: 1 + id, IPs: []netip.Addr{w.addr()}, Owner: string('a' + rune(id/2)), ToPod: w.list(ToPod), FromPod: w.list(FromPod)})
				}
			}
			w.changeSet(w.setID(), 20)
			w.image.Reconsider()
			p := w.image.Plan(false)
			w.upload(&p)
			for _, step := range w.steps(&p) {
				step()
			}
			w.done()

			at := NewImage(Options{Budget: budget})
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
			some = some || len(at.Refused()) > 0
			for _, f := range w.flows(100) {
				got, _ := w.verdict(f)
				refused := slices.ContainsFunc(at.Refused(), func(r Refusal) bool { return r.ID == f.id && r.Dir == f.dir })
				if want := w.want(f) && !refused; got != want {
					t.Fatalf("seed %d: endpoint %d direction %d flow %s is permitted: %t, want %t (refused: %t)\n%s", seed, f.id, f.dir, f.Flow, got, want, refused, w.dump())
				}
			}
		}
	}
	if !some {
		t.Error("nothing was ever refused")
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
	m := NewImage(Options{})
	var rules []api.ContivRule
	for i := range 4096 {
		rules = append(rules, api.ContivRule{Action: api.Permit, Src: api.PrefixNet(hostOf(i)), Protocol: api.TCP, DstPort: api.Port(uint16(1 + i))})
	}
	set(t, m, 1, "tenant", renderer.NewRuleList(append(rules, api.ContivRule{}), nil))
	for i := range 50 {
		wide := api.ContivRule{Action: api.Permit, Src: api.PrefixNet(netip.MustParsePrefix("0.0.0.0/0")), Protocol: api.TCP, DstPort: api.Port(uint16(1 + i))}
		set(t, m, uint32(2+i), "other", renderer.NewRuleList([]api.ContivRule{wide, {}}, nil))
	}
	m.Plan(false)
	for _, p := range m.lists.sorted() {
		if len(p.list.Rules()) == 2 && p.spent > 64 {
			t.Fatalf("a list of two rules takes %d lines beside one of %d", p.spent, len(rules))
		}
	}
	for i := range 50 {
		if !permits(m, uint32(2+i), 77, uint16(1+i)) || permits(m, uint32(2+i), 77, 77) {
			t.Errorf("endpoint %d does not have its list", 2+i)
		}
	}
}
