package renderertest

import (
	"context"
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

// maxCalls bounds the search for the last call of an Apply.
const maxCalls = 2000

// firstCalls of a change fail one after the other, each.
const firstCalls = 8

// repaired makes every call of a change fail (or the first ones and every third one), each time on
// a new subject. After the failure, it requires verdicts between the old and the new ones; after an
// Apply without changes, the new ones.
func repaired(name string, before change, resync bool, c change) scenario {
	return failingCalls("a failure at any call is repaired: "+name, Extent(3, 1, 1), before, func(r *rig, n int) bool {
		return r.failAt(n, resync, c)
	})
}

// undone is repaired, but the opposite change follows the failure: the old verdicts are required
// then. Before the first call, the context of the change has ended.
func undone(name string, before change, resync bool, c change) scenario {
	first := true
	return failingCalls("a failure at any call is undone by the opposite change: "+name, Extent(9, 3, 1), before, func(r *rig, n int) bool {
		r.t.Helper()
		was := r.snapshot()
		if first {
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			_ = r.subject.Renderer().Apply(ctx, r.begin(resync, c)) // whatever it says, the change is the renderer's now
			first = false
			r.undo(was)
		}
		err := r.fails(n, resync, c)
		r.undo(was)
		return err != nil
	})
}

// undo applies the change back to a state, checks verdicts, and that nothing is left to do.
func (r *rig) undo(was snapshot) {
	r.t.Helper()
	r.apply(was.changesFrom(r.snapshot()))
	if k := r.operations(func() { r.applyAll(r.begin(false, nothing)) }); k != 0 {
		r.t.Errorf("no changes after the opposite change took %d operations, want 0", k)
	}
}

// snapshot is the state of the model.
type snapshot struct {
	pods map[api.PodID]renderer.PodConfig
	sets map[api.SetID][]netip.Prefix
}

func (r *rig) snapshot() snapshot { return snapshot{r.model.Pods(), r.model.Sets()} }

// changesFrom returns the change from another state to this one.
func (s snapshot) changesFrom(from snapshot) change {
	return func(c *renderer.Changes) {
		for id := range from.pods {
			if _, ok := s.pods[id]; !ok {
				c.Remove(id)
			}
		}
		for id, cfg := range s.pods {
			if old, ok := from.pods[id]; !ok || !equalConfigs(old, cfg) {
				c.Render(id, cfg)
			}
		}
		for id := range from.sets {
			applySet(c, id, from.sets[id], s.sets[id])
		}
		for id := range s.sets {
			if from.sets[id] == nil {
				applySet(c, id, nil, s.sets[id])
			}
		}
	}
}

// failingCalls calls fail for each call of a change, each time on a new subject, until nothing failed.
func failingCalls(name string, stride int, before change, fail func(r *rig, n int) bool) scenario {
	run := func(t TB, newSubject func() Subject) {
		for n := 1; ; {
			r := newRig(t, newSubject())
			r.apply(before)
			if !fail(r, n) {
				return
			}
			if n >= maxCalls {
				t.Fatalf("call %d of the change still fails: FailNext must make a later call than the last one fail nothing", n)
			}
			if n++; n > firstCalls {
				n += stride - 1
			}
		}
	}
	return scenario{name, run}
}

// fails has the subject apply a change whose call n fails.
func (r *rig) fails(n int, resync bool, c change) error {
	r.t.Helper()
	changes := r.begin(resync, c)
	r.subject.FailNext(n)
	defer r.subject.FailNext(0)
	return r.try(changes)
}

// failAt applies a change whose call n fails, and reports whether it failed.
func (r *rig) failAt(n int, resync bool, c change) bool {
	r.t.Helper()
	old := r.verdicts(allFlows)
	err := r.fails(n, resync, c)
	if err != nil {
		r.checkBetween(allFlows, old, r.verdicts(allFlows))
		r.applyAll(r.begin(false, nothing))
	}
	r.check()
	r.t.Helper()
	if k := r.operations(func() { r.applyAll(r.begin(false, nothing)) }); k != 0 {
		r.t.Errorf("no changes after the repair of call %d took %d operations, want 0", n, k)
	}
	return err != nil
}

// verdicts returns the verdicts of the model.
func (r *rig) verdicts(flows []api.Flow) []Ends {
	r.model.mu.Lock()
	defer r.model.mu.Unlock()
	verdicts := make([]Ends, len(flows))
	for i, f := range flows {
		verdicts[i] = r.model.state.ends(f)
	}
	return verdicts
}

// checkBetween requires that the dataplane enforces, at either end of every flow, the rules of one
// of the states. The ends may be in different states: a renderer promises either the old or the new
// rules of every pod, not of all pods at once.
func (r *rig) checkBetween(flows []api.Flow, states ...[]Ends) {
	r.t.Helper()
	judge(r.subject, flows, func(f api.Flow) api.Flow { return f })
	for i, f := range flows {
		of := make([]Ends, len(states))
		for n, s := range states {
			of[n] = s[i]
		}
		possible := Possible(of...)
		fits := false
		for _, a := range []api.Action{api.Permit, api.Deny} {
			if _, ok := accepts(r.subject, f, a); ok && possible[a] {
				fits = true
			}
		}
		if !fits {
			r.t.Fatalf("flow %s: after a failed Apply the stack says %s, which neither the old nor the new rules do; they should become\n%s",
				f, r.subject.Verdict(f), r.model.Dump())
		}
	}
}

// failedChanges are the changes that fail, with the state before.
var failedChanges = []struct {
	name   string
	before change
	resync bool
	change change
}{
	{"pods get lists", openPods(), false, townPods()},
	{"pods and sets come together", openPods(), false, town()},
	{"pods are attached with lists", nothing, false, town()},
	{"lists become stricter", town(), false, all(render(0, list(denyAll), list(denyAll)), render(3, list(denyAll), webFrom(backends)))},
	{"lists become wider", town(), false, all(render(0, nil, list(permitAll)), render(1, list(permitAll), nil), render(2, nil, nil))},
	{"lists are exchanged", town(), false, all(render(0, webTo(backends), nil), render(1, list(denyAll), webFrom(frontends)), render(5, webTo(frontends), webFrom(backends)))},
	{"members join", town(), false, all(update(frontends, hosts(v4(3, 0), v4(4, 0), v6(4, 0)), nil), update(backends, hosts(v4(5, 0)), nil))},
	{"members leave", town(), false, all(update(frontends, nil, hosts(v4(1, 0), v6(1, 0), v4(2, 0))), update(backends, nil, hosts(v4(0, 0))))},
	{"members are exchanged", town(), false, update(frontends, hosts(v4(3, 0), v4(4, 0)), hosts(v4(1, 0), v4(2, 0)))},
	{"members leave a set that one pod begins and another ends to name", all(town(), render(4, nil, webFrom(frontends))), false, all(
		update(frontends, nil, hosts(v4(1, 0), v6(1, 0))), render(4, nil, list(permitAll)), render(5, nil, webFrom(frontends)))},
	{"members join a set that a pod ends to name", town(), false, all(update(frontends, hosts(v4(5, 0)), nil), render(3, nil, list(denyAll)))},
	{"a pod names a new set, and one that changes, in other rules", town(), false, all(
		update(frontends, hosts(v4(5, 0)), hosts(v4(1, 0))), update(blocks, hosts(v4(1, 0), v4(4, 0)), nil),
		render(3, nil, list(from(api.Permit, api.SetNet(blocks), api.TCP, api.Port(80)), from(api.Permit, api.SetNet(frontends), api.TCP, api.Port(443)), denyAll)))},
	{"pods exchange sets that exchange members", all(town(), render(4, nil, webFrom(frontends)), render(5, nil, webFrom(backends))), false, all(
		update(frontends, hosts(v4(0, 0)), hosts(v4(1, 0))), update(backends, hosts(v4(1, 0)), hosts(v4(0, 0))),
		render(4, nil, webFrom(backends)), render(5, nil, webFrom(frontends)))},
	{"pods are removed", town(), false, all(remove(0), remove(2), remove(5))},
	{"pods change addresses", town(), false, all(
		renderAt(0, []netip.Addr{v4(0, 1), v6(0, 1)}, list(denyAll), webFrom(frontends)), renderAt(1, []netip.Addr{v4(1, 0)}, webTo(backends), nil))},
	{"a resync", town(), true, village()},
	{"a resync to nothing", town(), true, nothing},
}

var failureScenarios = slices.Concat(failuresOfChanges(), []scenario{
	{"a failed Apply is repaired by the next change as well", func(t TB, newSubject func() Subject) {
		r := newRig(t, newSubject())
		r.apply(town())
		if r.fails(1, false, all(render(0, nil, nil), update(frontends, hosts(v4(5, 0)), nil), remove(3))) == nil {
			t.Fatalf("the first call of a change failed, but its Apply did not")
		}
		r.apply(all(update(frontends, hosts(v4(4, 0)), hosts(v4(5, 0))), render(1, nil, webFrom(frontends))))
		r.want(api.Permit, tcp(v4(4, 0), v4(1, 0), 80))
		r.want(api.Permit, tcp(v4(5, 0), v4(0, 0), 8000))
	}},
	{"a failed resync is repaired by the next change as well", func(t TB, newSubject func() Subject) {
		r := newRig(t, newSubject())
		r.apply(town())
		if r.fails(1, true, village()) == nil {
			t.Fatalf("the first call of a resync failed, but its Apply did not")
		}
		r.apply(render(5, list(denyAll), nil))
		r.want(api.Deny, tcp(v4(5, 0), v4(0, 0), 80))
		r.want(api.Permit, tcp(v4(3, 0), v4(1, 0), 80))
	}},
	{"a cancelled Apply loses nothing", func(t TB, newSubject func() Subject) {
		r := newRig(t, newSubject())
		r.apply(town())
		old := r.verdicts(allFlows)
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		err := r.subject.Renderer().Apply(ctx, r.begin(false, all(render(0, nil, nil), update(frontends, hosts(v4(5, 0)), hosts(v4(1, 0))))))
		if err == nil {
			t.Logf("the renderer applies although its context is done")
		}
		r.checkBetween(allFlows, old, r.verdicts(allFlows))
		r.apply(nothing)
	}},
})

func failuresOfChanges() (out []scenario) {
	for _, f := range failedChanges {
		out = append(out, repaired(f.name, f.before, f.resync, f.change), undone(f.name, f.before, f.resync, f.change))
	}
	return out
}
