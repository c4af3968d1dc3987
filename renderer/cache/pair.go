package cache

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

// Pair holds one cache for what pods receive and one for what they send. Like a Cache, it is used
// by one goroutine.
type Pair struct {
	gets, sends *Cache
	combined    bool
}

// NewSplit returns an empty Pair that keeps the directions apart. It is for a dataplane that
// applies both directions at the interface of the pod: what the pod sends on input, what it
// receives on output. Nothing is combined, and there is no global table.
func NewSplit(bounds ...Bound) *Pair {
	return &Pair{gets: New(api.Egress, bounds...), sends: New(api.Ingress, bounds...)}
}

// NewGuarded returns an empty Pair whose tables for received traffic decide, as those of a Cache
// with egress orientation do. In addition, Layout.Senders holds for each pod what is certain to be
// denied of the packets that it sends. That is by its own rules, or by those of pods on this node.
func NewGuarded(bounds ...Bound) *Pair {
	guards := slices.Clone(bounds)
	for i := range guards { // they are small
		guards[i].Entries = nil
	}
	return &Pair{gets: New(api.Egress, bounds...), sends: New(api.Ingress, guards...), combined: true}
}

func (s *Pair) each() [2]*Cache { return [2]*Cache{s.gets, s.sends} }

// SetPod is Cache.SetPod for both directions.
func (s *Pair) SetPod(id api.PodID, cfg renderer.PodConfig) {
	gets, sends := cfg, cfg
	if !s.combined {
		gets.Ingress, sends.Egress = nil, nil
	}
	s.gets.SetPod(id, gets)
	s.sends.SetPod(id, sends)
}

// RemovePod is Cache.RemovePod for both directions.
func (s *Pair) RemovePod(id api.PodID) {
	for _, c := range s.each() {
		c.RemovePod(id)
	}
}

// UpdateSet is Cache.UpdateSet for both directions.
func (s *Pair) UpdateSet(id api.SetID, added, removed []netip.Prefix) {
	for _, c := range s.each() {
		c.UpdateSet(id, added, removed)
	}
}

// BeginResync is Cache.BeginResync for both directions.
func (s *Pair) BeginResync() {
	for _, c := range s.each() {
		c.BeginResync()
	}
}

// EndResync is Cache.EndResync for both directions.
func (s *Pair) EndResync() {
	for _, c := range s.each() {
		c.EndResync()
	}
}

// Compute is Cache.Compute for both directions. A pod may have two bindings, one for each
// direction.
func (s *Pair) Compute() Plan {
	why := maps.Clone(s.gets.look())
	for key, text := range s.sends.look() {
		if why == nil {
			why = make(map[listKey]string)
		}
		if why[key] == "" {
			why[key] = text
		}
	}
	gets, sends := s.gets.build(why), s.sends.build(why)
	out := Plan{
		Added: slices.Concat(gets.Added, sends.Added), Replaced: slices.Concat(gets.Replaced, sends.Replaced),
		Removed: slices.Concat(gets.Removed, sends.Removed), Bindings: slices.Concat(gets.Bindings, sends.Bindings),
		Sets: slices.Concat(gets.Sets, sends.Sets), Pods: gets.Pods,
	}
	if s.combined {
		out.Global = gets.Global
	}
	slices.Sort(out.Sets)
	out.Sets = slices.Compact(out.Sets)
	return out
}

// Refused is Cache.Refused for both directions.
func (s *Pair) Refused() []renderer.Unenforced {
	if s.combined {
		return s.gets.Refused() // it has all lists
	}
	return append(s.gets.Refused(), s.sends.Refused()...)
}

// Capacity is Cache.Capacity. Where directions are apart, each of them may take as much.
func (s *Pair) Capacity() []renderer.Capacity {
	if s.combined {
		return s.gets.Capacity() // guards are small
	}
	return append(s.gets.admission.capacity("entries of what pods receive"), s.sends.admission.capacity("entries of what pods send")...)
}

// Acknowledge is Cache.Acknowledge for both directions.
func (s *Pair) Acknowledge() {
	for _, c := range s.each() {
		c.Acknowledge()
	}
}

// Desired is Cache.Desired for both directions.
func (s *Pair) Desired() Layout { return s.both(s.gets.Desired(), s.sends.Desired()) }

// Installed is Cache.Installed for both directions.
func (s *Pair) Installed() Layout { return s.both(s.gets.Installed(), s.sends.Installed()) }

// both joins the layouts of the two directions. Tables with equal rules are merged, except in a
// guarded Pair, which keeps the sender tables apart.
func (s *Pair) both(gets, sends Layout) Layout {
	if s.combined {
		gets.Senders = sends.Pods
		return gets
	}
	tables := make(map[renderer.Digest]*Table, len(gets.Tables)+len(sends.Tables))
	for _, t := range gets.Tables {
		tables[t.Digest] = t
	}
	for _, t := range sends.Tables {
		if other := tables[t.Digest]; other != nil {
			joined := *t
			joined.Pods = slices.Concat(other.Pods, t.Pods)
			slices.SortFunc(joined.Pods, api.PodID.Compare)
			joined.Pods = slices.Compact(joined.Pods)
			t = &joined
		}
		tables[t.Digest] = t
	}
	for _, of := range [2]map[api.PodID]*Table{gets.Pods, sends.Pods} {
		for id, t := range of {
			if t != nil {
				of[id] = tables[t.Digest]
			}
		}
	}
	return Layout{Tables: sortedTables(tables), Pods: gets.Pods, Senders: sends.Pods}
}

// InstalledTables is Cache.InstalledTables for both directions.
func (s *Pair) InstalledTables() []*Table {
	if s.combined {
		return s.gets.InstalledTables()
	}
	return s.Installed().Tables
}

// Evaluate returns the decision of the sender's table, then that of the receiver's. In a guarded
// Pair, the receiver's tables decide for both directions.
func (s *Pair) Evaluate(f api.Flow) []renderer.Decision {
	if s.combined {
		return s.gets.Evaluate(f)
	}
	return append(s.sends.Evaluate(f), s.gets.Evaluate(f)...)
}

// Aggregated is Cache.Aggregated.
func (s *Pair) Aggregated(id api.SetID) Families { return s.gets.Aggregated(id) }
