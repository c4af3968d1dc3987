package datasync

import (
	"slices"

	"github.com/sluice-net/sluice/api/model"
)

// pending holds the changes that the consumer has not fetched yet: at most one delta per object.
// The deltas are in the order in which their objects first occurred.
type pending struct {
	changes model.Changes
	// indexes has the index of each object's delta. For a resync it is built only when changes must be
	// merged, which is rare: building it costs more than the rest.
	indexes map[model.ID]int
}

// empty reports whether there is nothing to fetch. A resync without objects is not empty.
func (p *pending) empty() bool { return !p.changes.Resync && len(p.changes.Deltas) == 0 }

// replace replaces everything pending by a complete state. It takes ownership of the slice.
func (p *pending) replace(deltas []model.Delta, revision int64) {
	p.changes = model.Changes{Resync: true, Deltas: deltas, Revision: revision}
	p.indexes = nil
}

// merge adds newer states of some objects.
func (p *pending) merge(deltas []model.Delta, revision int64) {
	p.changes.Revision = revision
	if len(deltas) == 0 {
		return
	}
	if p.indexes == nil {
		p.indexes = make(map[model.ID]int, len(p.changes.Deltas)+len(deltas))
		for i, d := range p.changes.Deltas {
			p.indexes[d.ID] = i
		}
	}
	for _, d := range deltas {
		if i, ok := p.indexes[d.ID]; ok {
			p.changes.Deltas[i].Value = d.Value
			continue
		}
		p.indexes[d.ID] = len(p.changes.Deltas)
		p.changes.Deltas = append(p.changes.Deltas, d)
	}
}

// takeAll returns everything. In a resync a deleted object is left out.
func (p *pending) takeAll() model.Changes {
	taken := p.changes
	if taken.Resync && p.indexes != nil {
		taken.Deltas = slices.DeleteFunc(taken.Deltas, func(d model.Delta) bool { return d.Value == nil })
	}
	*p = pending{}
	return taken
}
