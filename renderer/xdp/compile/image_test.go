package compile

import (
	"maps"
	"net/netip"
	"slices"
	"testing"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

// TestVerdictIsThatOfFirstMatch: whatever changes led to a state, and after every single step
// of a change, the policy map has the verdict of the first rule that matches, before or after the
// change.
func TestVerdictIsThatOfFirstMatch(t *testing.T) {
	worlds, changes, perChange := 40, 40, 60
	if testing.Short() {
		worlds = 10
	}
	for seed := range worlds {
		w := newWorld(t, uint64(seed), netip.MustParsePrefix("10.1.1.7/32"))
		w.fillPages(seed % 3)
		for range changes {
			flows := w.flows(perChange)
			before := w.wanted(flows)
			w.change()
			w.commit(false, flows, before)
		}
	}
}

// TestPlanIsRepeatedAfterFailure: a plan is given up after any of its steps, and what
// follows leads from there without a verdict that was neither before nor after.
func TestPlanIsRepeatedAfterFailure(t *testing.T) {
	for seed := range 25 {
		w := newWorld(t, uint64(1000+seed))
		w.fillPages(seed % 3)
		for range 30 {
			flows := w.flows(60)
			states := [][]bool{w.wanted(flows)}
			again := false
			for tries := w.rng.IntN(3); tries > 0; tries-- {
				w.change()
				p := w.image.Plan(again)
				states = append(states, w.wanted(flows))
				if w.rng.IntN(4) > 0 { // else not even the upload works
					w.upload(&p)
					steps := w.steps(&p)
					for i, step := range steps[:w.rng.IntN(len(steps)+1)] {
						if step(); i%(1+len(steps)/50) == 0 {
							w.compareAny(flows, states)
						}
					}
				}
				again = true
			}
			w.change()
			p := w.image.Plan(again)
			states = append(states, w.wanted(flows))
			w.upload(&p)
			steps := w.steps(&p)
			for i, step := range steps {
				if step(); i%(1+len(steps)/50) == 0 {
					w.compareAny(flows, states)
				}
			}
			w.compare(flows, states[len(states)-1], states[len(states)-1])
			w.done()
		}
	}
}

// fillPages gives the first classes to a list, so that others are on pages that come and go.
func (w *world) fillPages(n int) {
	var rules []api.ContivRule
	for i := range n*pageClasses - 2 { // there are two classes already
		rules = append(rules, api.ContivRule{Action: api.Permit, Src: api.PrefixNet(netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 168, byte(i), 1}), 32))})
	}
	if n > 0 {
		w.set(Endpoint{ID: 9, ToPod: renderer.NewRuleList(append(rules, api.ContivRule{}), nil)})
		w.commit(false, nil, nil)
	}
}

func (w *world) compareAny(flows []flow, states [][]bool) {
	w.t.Helper()
	for i, f := range flows {
		got, _ := w.verdict(f)
		if !slices.ContainsFunc(states, func(s []bool) bool { return s[i] == got }) {
			w.t.Fatalf("endpoint %d flow %s: the memory says %t, which no state did\n%s", f.id, f.Flow, got, w.dump())
		}
	}
}

// TestImageChangesLeakNothing: after thousands of changes and then none of anything, no
// more is in use than at the start.
func TestImageChangesLeakNothing(t *testing.T) {
	w := newWorld(t, 7)
	w.commit(false, nil, nil)
	changes := 3000
	if testing.Short() {
		changes = 500
	}
	peak := 0
	for i := range changes {
		w.change()
		w.commit(false, nil, nil)
		if u := w.image.Use(); i > changes/10 {
			peak = max(peak, u.Capacity)
		} else if i == changes/10 {
			peak = u.Capacity
		}
	}
	for id := range maps.Clone(w.ends) {
		w.remove(id)
	}
	for id, set := range w.sets {
		w.image.Update(id, nil, slices.Collect(maps.Keys(set)))
	}
	for range 3 {
		w.commit(true, nil, nil)
	}
	u := w.image.Use()
	t.Logf("after %d changes: %+v, peak %d lines", changes, u, peak)
	fresh := newWorld(t, 8)
	for range 3 {
		fresh.commit(true, nil, nil)
	}
	want := fresh.image.Use()
	if u.Lines != want.Lines || u.Slots != want.Slots || u.Programs != 0 || u.Endpoints != 0 || u.Classes != want.Classes {
		t.Errorf("in use are %+v, of a new image %+v", u, want)
	}
}

func TestImageSharesEqualLists(t *testing.T) {
	w := newWorld(t, 3)
	rules := []api.ContivRule{{Action: api.Permit, Src: api.SetNet(300), Protocol: api.TCP, DstPort: api.Port(80)}, {}}
	for id := range uint32(200) {
		l := renderer.NewRuleList(slices.Clone(rules), nil)
		w.set(Endpoint{ID: id + 1, IPs: []netip.Addr{netip.AddrFrom4([4]byte{10, 0, 0, byte(id)})}, ToPod: l})
	}
	w.commit(false, nil, nil)
	if u := w.image.Use(); u.Programs != 1 || u.Slots != 4 {
		t.Errorf("200 equal lists take %d programs and %d slots, want 1 and 4", u.Programs, u.Slots)
	}
}

func TestImageAddAddressFlipsNothing(t *testing.T) {
	w := newWorld(t, 4)
	w.set(Endpoint{ID: 1, IPs: []netip.Addr{w.addr()}, ToPod: renderer.NewRuleList([]api.ContivRule{{Action: api.Permit, Src: api.SetNet(300)}, {}}, nil)})
	w.image.Update(300, []netip.Prefix{netip.MustParsePrefix("10.0.0.1/32"), netip.MustParsePrefix("fd00::1/128")}, nil)
	p := w.image.Plan(false)
	w.upload(&p)
	w.done()
	w.image.Update(300, []netip.Prefix{netip.MustParsePrefix("10.0.0.2/32"), netip.MustParsePrefix("fd00::2/128")}, nil)
	if p = w.image.Plan(false); len(p.Flips) != 0 || len(p.Roots) != 2 || len(p.Stores) != 0 {
		t.Errorf("it takes %d flips, %d roots and %d stores, want 0, 2 and 0", len(p.Flips), len(p.Roots), len(p.Stores))
	}
	w.image.Done()
	if p = w.image.Plan(false); !p.Empty() {
		t.Errorf("nothing changed, and the plan is %+v", p)
	}
}

func TestImageRefusesTooManyAddresses(t *testing.T) {
	var ips []netip.Addr
	for i := range MaxAddresses + 1 {
		ips = append(ips, netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}))
	}
	m := NewImage(Options{})
	if err := m.Set(Endpoint{ID: 1, IPs: ips}); err == nil {
		t.Error("an endpoint with too many addresses is accepted")
	}
	if err := m.Set(Endpoint{ID: 1, IPs: ips[1:]}); err != nil {
		t.Error(err)
	}
}

// TestListsSwitchWithTheirSets: a long list names another set than before, the old set ends in the
// same plan, and an address that is in both is permitted after every step.
func TestListsSwitchWithTheirSets(t *testing.T) {
	w := newWorld(t, 11)
	names := func(id api.SetID) *renderer.RuleList {
		rules := []api.ContivRule{{Action: api.Permit, Src: api.SetNet(id), Protocol: api.TCP, DstPort: api.Port(80)}}
		for i := range 2000 {
			rules = append(rules, api.ContivRule{Action: api.Permit, Src: api.PrefixNet(hostOf(1000 + i)), Protocol: api.TCP, DstPort: api.Port(uint16(1000 + i))})
		}
		return renderer.NewRuleList(append(rules, api.ContivRule{}), nil)
	}
	at := Endpoint{ID: 1, IPs: []netip.Addr{netip.MustParseAddr("10.0.0.1")}, ToPod: names(300)}
	w.image.Update(300, []netip.Prefix{hostOf(1), hostOf(2)}, nil)
	w.set(at)
	p := w.image.Plan(false)
	w.upload(&p)
	for _, step := range w.steps(&p) {
		step()
	}
	w.done()

	at.ToPod = names(301)
	w.image.Update(301, []netip.Prefix{hostOf(1)}, nil)
	w.set(at)
	w.image.Update(300, nil, []netip.Prefix{hostOf(1), hostOf(2)})
	p = w.image.Plan(false)
	w.upload(&p)
	to := func(i int) flow {
		return flow{1, ToPod, api.Flow{Src: hostOf(i).Addr(), Dst: at.IPs[0], Protocol: api.TCP, SrcPort: 1, DstPort: 80}}
	}
	for i, step := range w.steps(&p) {
		step()
		if in, _ := w.verdict(to(1)); !in {
			t.Fatalf("step %d of the plan drops what both lists permit", i)
		}
		if in, _ := w.verdict(to(3)); in {
			t.Fatalf("step %d of the plan permits what neither list does", i)
		}
	}
	if in, _ := w.verdict(to(2)); in {
		t.Error("the old list is still in force")
	}
}

// TestPagesStayWhilePacketsHaveTheirClasses: one of two classes of a page is free, the end of the
// other one is in a plan that failed. A new class there changes nothing for packets of the latter.
func TestPagesStayWhilePacketsHaveTheirClasses(t *testing.T) {
	w := newWorld(t, 12)
	w.fillPages(1)
	var rules []api.ContivRule
	for i := range 3 {
		rules = append(rules, api.ContivRule{Action: api.Permit, Src: api.SetNet(api.SetID(300 + i)), Protocol: api.TCP, DstPort: api.Port(uint16(80 + i))})
	}
	w.set(Endpoint{ID: 1, IPs: []netip.Addr{netip.MustParseAddr("10.0.0.1")}, ToPod: renderer.NewRuleList(append(rules, api.ContivRule{}), nil)})
	change := func(id api.SetID, added, removed []netip.Prefix) { w.image.Update(id, added, removed) }
	carryOut := func(again bool) {
		p := w.image.Plan(again)
		w.upload(&p)
		for _, step := range w.steps(&p) {
			step()
		}
		w.done()
	}
	change(300, []netip.Prefix{hostOf(0)}, nil)
	change(301, []netip.Prefix{hostOf(1)}, nil)
	carryOut(false)
	change(300, nil, []netip.Prefix{hostOf(0)})
	carryOut(false)
	change(301, nil, []netip.Prefix{hostOf(1)})
	p := w.image.Plan(false) // which is not carried out
	w.upload(&p)
	for _, old := range w.waiting {
		w.image.Release(old)
	}
	w.waiting = nil
	change(302, []netip.Prefix{hostOf(2)}, nil)
	p = w.image.Plan(true)
	w.upload(&p)
	for i, step := range append([]func(){func() {}}, w.steps(&p)...) {
		step()
		for port := uint16(80); port < 83; port++ {
			f := flow{1, ToPod, api.Flow{Src: hostOf(1).Addr(), Dst: netip.MustParseAddr("10.0.0.1"), Protocol: api.TCP, SrcPort: 1, DstPort: port}}
			if got, _ := w.verdict(f); got && port != 81 {
				t.Fatalf("step %d of the plan permits port %d, which no list does", i, port)
			}
		}
	}
}
