package cache

import (
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

// Split keeps the directions apart, for a stack that is to apply both at the interface
// of the pod: what it sends where that enters, what it gets where that leaves. Nothing
// is combined, and there is no global table. It is used by one goroutine, like a Cache.
type Split struct {
	gets, sends *Cache
}

// NewSplit returns an empty Split.
func NewSplit() *Split { return &Split{gets: New(api.Egress), sends: New(api.Ingress)} }

func (s *Split) each() [2]*Cache { return [2]*Cache{s.gets, s.sends} }

// SetPod is that of a Cache.
func (s *Split) SetPod(id api.PodID, cfg renderer.PodConfig) {
	s.gets.SetPod(id, renderer.PodConfig{IPs: cfg.IPs, Egress: cfg.Egress})
	s.sends.SetPod(id, renderer.PodConfig{IPs: cfg.IPs, Ingress: cfg.Ingress})
}

// RemovePod is that of a Cache.
func (s *Split) RemovePod(id api.PodID) {
	for _, c := range s.each() {
		c.RemovePod(id)
	}
}

// UpdateSet is that of a Cache.
func (s *Split) UpdateSet(id api.SetID, added, removed []netip.Prefix) {
	for _, c := range s.each() {
		c.UpdateSet(id, added, removed)
	}
}

// BeginResync is that of a Cache.
func (s *Split) BeginResync() {
	for _, c := range s.each() {
		c.BeginResync()
	}
}

// EndResync is that of a Cache.
func (s *Split) EndResync() {
	for _, c := range s.each() {
		c.EndResync()
	}
}

// Compute is that of a Cache. A pod may have two bindings, one for each direction.
func (s *Split) Compute() Plan {
	gets, sends := s.gets.Compute(), s.sends.Compute()
	out := Plan{
		Added: slices.Concat(gets.Added, sends.Added), Replaced: slices.Concat(gets.Replaced, sends.Replaced),
		Removed: slices.Concat(gets.Removed, sends.Removed), Bindings: slices.Concat(gets.Bindings, sends.Bindings),
		Sets: slices.Concat(gets.Sets, sends.Sets),
	}
	slices.Sort(out.Sets)
	out.Sets = slices.Compact(out.Sets)
	return out
}

// Commit is that of a Cache.
func (s *Split) Commit() {
	for _, c := range s.each() {
		c.Commit()
	}
}

// Desired is that of a Cache.
func (s *Split) Desired() Layout { return both(s.gets.Desired(), s.sends.Desired()) }

// Installed is that of a Cache.
func (s *Split) Installed() Layout { return both(s.gets.Installed(), s.sends.Installed()) }

// both joins the layouts of the directions. Tables with equal rules are one.
func both(gets, sends Layout) Layout {
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

// InstalledTables is that of a Cache.
func (s *Split) InstalledTables() []*Table { return s.Installed().Tables }

// Evaluate is that of a Cache: what the sender's table decides, then the receiver's.
func (s *Split) Evaluate(f api.Flow) []renderer.Decision {
	return append(s.sends.Evaluate(f), s.gets.Evaluate(f)...)
}

// Members is that of a Cache.
func (s *Split) Members(id api.SetID) []netip.Prefix { return s.gets.Members(id) }
