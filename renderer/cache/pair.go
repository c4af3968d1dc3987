package cache

import (
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

// Pair has a cache for what pods get and one for what they send. It is used by one goroutine, like
// a Cache.
type Pair struct {
	gets, sends *Cache
	combined    bool
}

// NewSplit returns an empty Pair that keeps the directions apart, for a stack that applies both at
// the interface of the pod: what it sends where that enters, what it gets where that leaves.
// Nothing is combined, and there is no global table.
func NewSplit() *Pair { return &Pair{gets: New(api.Egress), sends: New(api.Ingress)} }

// NewGuarded returns an empty Pair that is a Cache of Egress, which decides, and beside it says for
// each pod what of the packets that it sends is denied for certain: by its own rules, or by those
// of the pods of this node (Layout.Senders).
func NewGuarded() *Pair {
	p := NewSplit()
	p.combined = true
	return p
}

func (s *Pair) each() [2]*Cache { return [2]*Cache{s.gets, s.sends} }

// SetPod is that of a Cache.
func (s *Pair) SetPod(id api.PodID, cfg renderer.PodConfig) {
	gets, sends := cfg, cfg
	if !s.combined {
		gets.Ingress, sends.Egress = nil, nil
	}
	s.gets.SetPod(id, gets)
	s.sends.SetPod(id, sends)
}

// RemovePod is that of a Cache.
func (s *Pair) RemovePod(id api.PodID) {
	for _, c := range s.each() {
		c.RemovePod(id)
	}
}

// UpdateSet is that of a Cache.
func (s *Pair) UpdateSet(id api.SetID, added, removed []netip.Prefix) {
	for _, c := range s.each() {
		c.UpdateSet(id, added, removed)
	}
}

// BeginResync is that of a Cache.
func (s *Pair) BeginResync() {
	for _, c := range s.each() {
		c.BeginResync()
	}
}

// EndResync is that of a Cache.
func (s *Pair) EndResync() {
	for _, c := range s.each() {
		c.EndResync()
	}
}

// Compute is that of a Cache. A pod may have two bindings, one for each direction.
func (s *Pair) Compute() Plan {
	gets, sends := s.gets.Compute(), s.sends.Compute()
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

// Commit is that of a Cache.
func (s *Pair) Commit() {
	for _, c := range s.each() {
		c.Commit()
	}
}

// Desired is that of a Cache.
func (s *Pair) Desired() Layout { return s.both(s.gets.Desired(), s.sends.Desired()) }

// Installed is that of a Cache.
func (s *Pair) Installed() Layout { return s.both(s.gets.Installed(), s.sends.Installed()) }

// both joins the layouts of the directions. Tables with equal rules are one, unless those of what
// pods send are beside the others.
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

// InstalledTables is that of a Cache.
func (s *Pair) InstalledTables() []*Table {
	if s.combined {
		return s.gets.InstalledTables()
	}
	return s.Installed().Tables
}

// Evaluate is that of a Cache: what the sender's table decides, then the receiver's. Combined
// tables of the receiver decide for both.
func (s *Pair) Evaluate(f api.Flow) []renderer.Decision {
	if s.combined {
		return s.gets.Evaluate(f)
	}
	return append(s.sends.Evaluate(f), s.gets.Evaluate(f)...)
}

// Members is that of a Cache.
func (s *Pair) Members(id api.SetID) []netip.Prefix { return s.gets.Members(id) }

// Named is that of a Cache.
func (s *Pair) Named(id api.SetID) (permits, denies bool) {
	for _, c := range s.each() {
		p, d := c.Named(id)
		permits, denies = permits || p, denies || d
	}
	return permits, denies
}
