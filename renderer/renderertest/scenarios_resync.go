package renderertest

import (
	"github.com/sluice-net/sluice/api"
)

// town is a state with lists, sets and shared tables; townMembers are its sets.
func town() change {
	return all(townPods(),
		update(frontends, hosts(v4(1, 0), v6(1, 0), v4(2, 0)), nil),
		update(backends, hosts(v4(0, 0), outside[1]), nil))
}

func townPods() change {
	return all(openPods(),
		render(0, list(denyAll), webFrom(frontends)),
		render(1, webTo(backends), nil),
		render(2, webTo(backends), webFrom(backends)),
		render(3, nil, webFrom(frontends)))
}

// village is another state that shares some parts with town.
func village() change {
	return all(
		render(0, nil, webFrom(backends)),
		render(2, webTo(backends), webFrom(backends)),
		render(4, list(to(api.Permit, cidr("10.1.0.0/16"), api.TCP, api.Ports(80, 8000)), denyAll), nil),
		update(backends, hosts(v4(2, 0), outside[1], outside[4]), nil),
		update(blocks, hosts(v4(4, 0)), nil))
}

var resyncScenarios = []scenario{
	{"a first resync installs what it names", func(t TB, newSubject func() Subject) {
		r := newRig(t, newSubject())
		r.resync(town())
		r.want(api.Permit, tcp(v4(1, 0), v4(0, 0), 80))
		r.want(api.Deny, tcp(v4(0, 0), v4(1, 0), 80))
	}},
	{"a resync drops pods and sets that it does not name", func(t TB, newSubject func() Subject) {
		r := newRig(t, newSubject())
		r.apply(town())
		r.resync(village())
		r.want(api.Permit, tcp(v4(3, 0), v4(1, 0), 80))
		r.want(api.Deny, tcp(v4(1, 0), v4(0, 0), 80))
		r.apply(render(5, nil, webFrom(frontends)))
		r.want(api.Deny, tcp(v4(1, 0), v4(5, 0), 80))
		r.resync(nothing)
		r.want(api.Permit, tcp(v4(1, 0), v4(0, 0), 80))
	}},
	{"a resync replaces the members of sets", func(t TB, newSubject func() Subject) {
		r := newRig(t, newSubject())
		r.apply(town())
		r.resync(all(townPods(), update(frontends, hosts(v4(3, 0)), nil), update(backends, hosts(v4(0, 0)), nil)))
		r.want(api.Permit, tcp(v4(3, 0), v4(0, 0), 80))
		r.want(api.Deny, tcp(v4(1, 0), v4(0, 0), 80))
		r.apply(update(frontends, hosts(v4(1, 0)), hosts(v4(3, 0))))
		r.want(api.Permit, tcp(v4(1, 0), v4(0, 0), 80))
	}},
	{"equal input takes no operation", func(t TB, newSubject func() Subject) {
		r := newRig(t, newSubject())
		r.apply(town())
		steps := []struct {
			name string
			step func()
		}{
			{"an empty transaction", func() { r.apply(nothing) }},
			{"the same pods with new list objects", func() { r.apply(townPods()) }},
			{"a resync of the same state", func() { r.resync(town()) }},
			{"a second resync of the same state", func() { r.resync(town()) }},
			{"a change that is taken back in the same transaction", func() {
				r.apply(all(render(0, nil, nil), update(frontends, hosts(v4(5, 0)), nil), townPods(), update(frontends, nil, hosts(v4(5, 0)))))
			}},
			{"members of a set that no rule names", func() { r.apply(update(blocks, hosts(v4(3, 0)), nil)) }},
		}
		for _, s := range steps[:5] {
			if n := r.operations(s.step); n != 0 {
				t.Errorf("%s took %d operations, want 0", s.name, n)
			}
		}
		if n := r.operations(steps[5].step); n > 1 {
			t.Errorf("%s took %d operations, want at most 1", steps[5].name, n)
		}
	}},
	{"a state that was left and entered again is the same", func(t TB, newSubject func() Subject) {
		r := newRig(t, newSubject())
		r.resync(town())
		for range 3 {
			r.resync(village())
			r.resync(town())
		}
		if n := r.operations(func() { r.resync(town()) }); n != 0 {
			t.Errorf("it took %d operations to say it again, want 0", n)
		}
	}},
}
