package renderertest

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

// ref identifies a pod or a set of the suite.
type ref struct {
	set api.SetID // 0: a pod
	pod int
}

// content is the configuration of a pod, or the members of a set. Unchanged content is the same
// object in every state.
type content struct {
	pod     renderer.PodConfig
	members []netip.Prefix
}

// world is a state at the renderer contract.
type world map[ref]content

// place adds something to a world.
type place func(world)

func worldOf(places ...place) world {
	w := world{}
	for _, p := range places {
		p(w)
	}
	return w
}

// pod adds a pod with its first addresses.
func pod(n int, ingress, egress *renderer.RuleList) place { return podAt(n, both(n), ingress, egress) }

// podAt adds a pod with other addresses.
func podAt(n int, ips []netip.Addr, ingress, egress *renderer.RuleList) place {
	ips = slices.SortedFunc(slices.Values(ips), netip.Addr.Compare)
	return func(w world) {
		w[ref{pod: n}] = content{pod: renderer.PodConfig{IPs: ips, Ingress: ingress, Egress: egress}}
	}
}

// set adds a set with single addresses as members.
func set(id api.SetID, addrs ...netip.Addr) place { return setOf(id, hosts(addrs...)...) }

func setOf(id api.SetID, members ...netip.Prefix) place {
	return func(w world) { w[ref{set: id}] = content{members: members} }
}

// sequenceOf returns a named sequence of worlds.
func sequenceOf(name string, worlds ...world) Sequence[ref, content] {
	s := Sequence[ref, content]{Name: name, Compare: compareRefs, Equal: equalContent}
	for _, w := range worlds {
		s.States = append(s.States, w)
	}
	return s
}

// compareRefs orders sets before pods, like the layer above.
func compareRefs(a, b ref) int {
	return cmp.Or(cmp.Compare(b.set, a.set), cmp.Compare(a.pod, b.pod))
}

func equalContent(a, b content) bool {
	return equalConfigs(a.pod, b.pod) && slices.Equal(a.members, b.members)
}

// event is what a renderer applies at once.
type event = Event[ref, content]

// apply adds an event to changes, in the order of the event. from is the world before it.
func apply(t *renderer.Changes, from world, e event) {
	now := world{}
	if !e.Resync {
		maps.Copy(now, from)
	}
	for _, d := range e.Deltas {
		switch {
		case d.Key.set != 0:
			applySet(t, d.Key.set, now[d.Key].members, d.Value.members)
		case d.Gone:
			t.Remove(PodIDs[d.Key.pod])
		default:
			t.Render(PodIDs[d.Key.pod], again(d.Value.pod))
		}
		if now[d.Key] = d.Value; d.Gone {
			delete(now, d.Key)
		}
	}
}

// applySet adds the change of a set to changes, if there is any.
func applySet(t *renderer.Changes, id api.SetID, old, members []netip.Prefix) {
	if added, removed := without(members, old), without(old, members); len(added)+len(removed) > 0 {
		t.UpdateSet(id, added, removed)
	}
}

// again returns an equal configuration made of other objects: equality is that of rules.
func again(cfg renderer.PodConfig) renderer.PodConfig {
	cfg.IPs = slices.Clone(cfg.IPs)
	for _, l := range []**renderer.RuleList{&cfg.Ingress, &cfg.Egress} {
		if *l != nil {
			*l = list(slices.Clone((*l).Rules())...)
		}
	}
	return cfg
}

// holders counts the pods with each address.
func (w world) holders() map[netip.Addr]int {
	out := map[netip.Addr]int{}
	for _, c := range w {
		for _, ip := range c.pod.IPs {
			out[ip]++
		}
	}
	return out
}
