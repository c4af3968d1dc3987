package compile

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

// steps returns a Turn that is over after some questions.
func steps(n int) Turn {
	left := n
	return func(half bool) bool {
		left--
		return left < 0 || half && left < n/2
	}
}

type sideOf struct {
	id  uint32
	dir Direction
}

// inForce returns the lists that the image says are in force.
func (w *world) inForce() map[sideOf]*renderer.RuleList {
	out := map[sideOf]*renderer.RuleList{}
	for id := range w.ends {
		for d := range Direction(2) {
			out[sideOf{id, d}] = w.image.InForce(id, d)
		}
	}
	return out
}

// judged returns the verdicts of lists with the current members of sets.
func (w *world) judged(flows []flow, lists map[sideOf]*renderer.RuleList) []bool {
	desired := w.ends
	defer func() { w.ends = desired }()
	w.ends = map[uint32]Endpoint{}
	for side, l := range lists {
		e := w.ends[side.id]
		e.ID = side.id
		if side.dir == ToPod {
			e.ToPod = l
		} else {
			e.FromPod = l
		}
		w.ends[side.id] = e
	}
	return w.wanted(flows)
}

// checkWaiting checks that a direction has a list that it was to have at some time, or nothing
// passes.
func (w *world) checkWaiting(now map[sideOf]*renderer.RuleList) {
	w.t.Helper()
	for side, l := range now {
		if l.Digest() != Closed.Digest() && !w.once[side][l.Digest()] {
			w.t.Fatalf("endpoint %d direction %d has list %s, which it was never to have", side.id, side.dir, l.Digest())
		}
	}
}

// TestTurnsEndAnywhere: plans are interrupted after every number of steps while lists, endpoints
// and sets change. After every step of a plan packets meet the list that was in force before it or
// the one that the image names, and in the end what is desired.
func TestTurnsEndAnywhere(t *testing.T) {
	waited := 0
	for seed := range uint64(worlds(t)) {
		w := newWorld(t, 4000+seed, netip.MustParsePrefix("10.1.1.7/32"))
		flows, states := w.flows(60), [][]bool(nil)
		for range 30 {
			if states == nil {
				flows = w.flows(60)
				states = [][]bool{w.judged(flows, w.inForce())}
			}
			if w.rng.IntN(3) > 0 {
				w.change()
			}
			p := w.image.PlanTurn(len(states) > 1, steps(w.rng.IntN(12)))
			now := w.inForce()
			w.checkWaiting(now)
			after := w.judged(flows, now)
			states = append(states, after)
			w.upload(&p)
			all := w.steps(&p)
			fails := w.rng.IntN(4) == 0
			if fails { // the next plan starts from there
				all = all[:w.rng.IntN(len(all)+1)]
			}
			for i, step := range all {
				if step(); i%(1+len(all)/50) == 0 {
					w.compareAny(flows, states)
				}
			}
			if fails {
				continue
			}
			w.compare(flows, after, after)
			w.done()
			states = nil
			if w.image.Unfinished() {
				waited++
			}
		}
		for turns := 0; w.image.Unfinished(); turns++ {
			if turns > 5000 {
				t.Fatalf("seed %d: lists are never written", seed)
			}
			p := w.image.PlanTurn(states != nil, steps(0))
			states = nil
			w.upload(&p)
			for _, step := range w.steps(&p) {
				step()
			}
			w.done()
		}
		flows = w.flows(200)
		w.compare(flows, w.wanted(flows), w.wanted(flows))
	}
	if waited == 0 {
		t.Error("no list ever waited")
	}
}

func worlds(t *testing.T) int {
	t.Helper()
	if testing.Short() {
		return 10
	}
	return 40
}

// large returns a list with so many rows that no turn of a few steps is enough.
func large(hosts int, port uint16) *renderer.RuleList {
	var rules []api.ContivRule
	for i := range hosts {
		rules = append(rules, api.ContivRule{Action: api.Permit, Src: api.PrefixNet(hostOf(i)), Protocol: api.TCP, DstPort: api.Port(port + uint16(i%7))})
	}
	return renderer.NewRuleList(append(rules, api.ContivRule{}), nil)
}

func planTurn(m *Image, n int) {
	m.PlanTurn(false, steps(n))
	m.Release(m.Done())
}

// TestTurnsServeOthersFirst: while one tenant's large lists are written, and change before each
// turn, the small list of another is in force after its first turn, and the large ones are at last.
func TestTurnsServeOthersFirst(t *testing.T) {
	m := NewImage(Options{})
	set(t, m, 9, "tenant", web(1))
	planTurn(m, 100)
	finished := 0
	for turn := range 300 {
		for id := range uint32(3) {
			set(t, m, 1+id, "tenant", large(600+int(id), uint16(100+turn)))
		}
		if turn%100 == 50 {
			set(t, m, 8, "other", web(turn/100))
		}
		planTurn(m, 1800)
		if turn%100 == 50 {
			if m.InForce(8, ToPod).Digest() != web(turn/100).Digest() {
				t.Fatalf("turn %d: the other tenant waits", turn)
			}
		}
		if m.InForce(1, ToPod).Digest() != Closed.Digest() {
			finished++
		}
	}
	if finished == 0 {
		t.Error("a list that changes before each turn is never in force")
	}
}

// TestTurnsKeepNoListThatForgot: a list that waits to be replaced denies a set that loses all its
// members, as sets do that no policy names any more. It is closed.
func TestTurnsKeepNoListThatForgot(t *testing.T) {
	m := NewImage(Options{})
	m.Update(300, []netip.Prefix{hostOf(3)}, nil)
	set(t, m, 1, "tenant", renderer.NewRuleList([]api.ContivRule{{Src: api.SetNet(300)}, {Action: api.Permit}}, nil))
	plan(m)
	if permits(m, 1, 3, 80) || !permits(m, 1, 4, 80) {
		t.Fatal("the list is not what it is")
	}
	set(t, m, 1, "tenant", large(600, 100))
	planTurn(m, 1)
	if permits(m, 1, 3, 80) || !permits(m, 1, 4, 80) {
		t.Error("what waits does not keep its list")
	}
	m.Update(300, nil, []netip.Prefix{hostOf(3)})
	planTurn(m, 1)
	if permits(m, 1, 3, 80) || permits(m, 1, 4, 80) {
		t.Error("a list that denies a set that is empty now is still in force")
	}
	for m.Unfinished() {
		planTurn(m, 10)
	}
	if !permits(m, 1, 3, 103) || permits(m, 1, 4, 80) {
		t.Error("the list that is desired is not in force")
	}
}

// TestTurnsRefuseWhatPlansRefuse: what is refused in the end is what one plan refuses.
func TestTurnsRefuseWhatPlansRefuse(t *testing.T) {
	one, many := NewImage(Options{Budget: Budget{Lines: 1 << 13, Share: 1 << 11}}), NewImage(Options{Budget: Budget{Lines: 1 << 13, Share: 1 << 11}})
	for _, m := range []*Image{one, many} {
		set(t, m, 1, "tenant", manyRows(m, 300, 120))
		set(t, m, 2, "tenant", web(3))
		set(t, m, 3, "other", large(600, 100))
	}
	plan(one)
	turns := 0
	for planTurn(many, 2); many.Unfinished(); planTurn(many, 2) {
		turns++
	}
	if turns < 10 || !slices.Equal(one.Refused(), many.Refused()) || len(one.Refused()) == 0 {
		t.Errorf("after %d turns refused is %v, and by one plan %v", turns, many.Refused(), one.Refused())
	}
}
