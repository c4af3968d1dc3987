package renderer

import (
	"maps"
	"net/netip"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/api"
)

// cut is a state that changes lead from and to.
type cut struct {
	Sets map[api.SetID]map[netip.Prefix]bool
	Pods map[api.PodID]*PodConfig
}

// apply is what changes mean, by the words of their documentation.
func (s cut) apply(t *rapid.T, c Changes) cut {
	out := cut{map[api.SetID]map[netip.Prefix]bool{}, map[api.PodID]*PodConfig{}}
	if !c.Resync {
		for id, members := range s.Sets {
			out.Sets[id] = maps.Clone(members)
		}
		maps.Copy(out.Pods, s.Pods)
	}
	for id, change := range c.Sets {
		set := out.Sets[id]
		if set == nil {
			set = map[netip.Prefix]bool{}
			out.Sets[id] = set
		}
		for _, p := range change.Removed {
			if !set[p] {
				t.Fatalf("set %s: %s is removed and was no member", id, p)
			}
			delete(set, p)
		}
		for _, p := range change.Added {
			if set[p] {
				t.Fatalf("set %s: %s is added and was a member", id, p)
			}
			set[p] = true
		}
		if len(set) == 0 {
			delete(out.Sets, id)
		}
	}
	for pod, cfg := range c.Pods {
		if out.Pods[pod] = cfg; cfg == nil {
			delete(out.Pods, pod)
		}
	}
	return out
}

// drawChanges draws changes that may come after a state.
func (s cut) drawChanges(t *rapid.T) Changes {
	c := Changes{Resync: rapid.IntRange(0, 9).Draw(t, "resync") == 0}
	for id := range api.SetID(3) {
		var change SetChange
		for i := range 4 {
			p := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), 32)
			switch in := rapid.Bool().Draw(t, "in"); {
			case in && (c.Resync || !s.Sets[id][p]):
				change.Added = append(change.Added, p)
			case !in && !c.Resync && s.Sets[id][p]:
				change.Removed = append(change.Removed, p)
			}
		}
		if len(change.Added)+len(change.Removed) > 0 {
			c.UpdateSet(id, change.Added, change.Removed)
		}
	}
	for _, name := range []string{"a", "b", "c"} {
		pod := api.PodID{Namespace: "ns", Name: name}
		switch rapid.IntRange(0, 2).Draw(t, "pod") {
		case 0:
			c.Render(pod, PodConfig{IPs: []netip.Addr{netip.AddrFrom4([4]byte{10, 0, 1, rapid.Byte().Draw(t, "address")})}})
		case 1:
			c.Remove(pod)
		}
	}
	return c
}

// TestMergeDoesWhatOneAfterTheOtherDoes: also when changes are merged that were merged before.
func TestMergeDoesWhatOneAfterTheOtherDoes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		start := cut{}.apply(t, cut{}.drawChanges(t))
		now, merged := start, Changes{}
		var m Merger
		for range rapid.IntRange(1, 6).Draw(t, "changes") {
			c := now.drawChanges(t)
			now, merged = now.apply(t, c), Merge(merged, c)
			m.Add(c)
		}
		for _, c := range []Changes{merged, m.Take()} {
			if got := start.apply(t, c); !reflect.DeepEqual(got, now) {
				t.Fatalf("merged changes lead to %v, one after the other to %v:\n%s", got, now, c)
			}
		}
		if !m.Take().Empty() {
			t.Fatal("what was taken is there still")
		}
	})
}

// TestMergeKeepsNothingThatCancels bounds what waits by the states, not by the changes between them.
func TestMergeKeepsNothingThatCancels(t *testing.T) {
	var m Merger
	p := []netip.Prefix{netip.MustParsePrefix("10.0.0.1/32")}
	for range 1000 {
		m.Add(Changes{Sets: map[api.SetID]SetChange{1: {Added: p}}})
		m.Add(Changes{Sets: map[api.SetID]SetChange{1: {Removed: p}}})
	}
	if c := m.Take(); !c.Empty() {
		t.Errorf("a member that joins and leaves again is kept:\n%s", c)
	}
}

// TestChangesUpdateSetTwice: of a set that a value names twice the net change counts.
func TestChangesUpdateSetTwice(t *testing.T) {
	a, b := netip.MustParsePrefix("10.0.0.1/32"), netip.MustParsePrefix("10.0.0.2/32")
	var c Changes
	c.UpdateSet(1, []netip.Prefix{a}, nil)
	c.UpdateSet(1, []netip.Prefix{b}, []netip.Prefix{a})
	if want := map[api.SetID]SetChange{1: {Added: []netip.Prefix{b}}}; !reflect.DeepEqual(c.Sets, want) {
		t.Errorf("%v, want %v", c.Sets, want)
	}
	if c.UpdateSet(1, nil, []netip.Prefix{b}); !c.Empty() {
		t.Errorf("a member that joined and left is kept:\n%s", c)
	}
}
