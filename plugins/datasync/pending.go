package datasync

import (
	"slices"

	"github.com/sluice-net/sluice/api/model"
)

// pending is what the consumer has not taken yet: at most one delta per object.
// The deltas are in the order in which their objects were first seen.
type pending struct {
	changes model.Changes
	// at is where the delta of an object is. For a resync it is only made when
	// something has to be merged, which is seldom, and costs more than the rest.
	at map[model.ID]int
}

// empty says that there is nothing to take. A resync without objects is something.
func (p *pending) empty() bool { return !p.changes.Resync && len(p.changes.Deltas) == 0 }

// replace makes a whole state pending instead of everything before. It takes the
// slice over.
func (p *pending) replace(deltas []model.Delta, revision int64) {
	p.changes = model.Changes{Resync: true, Deltas: deltas, Revision: revision}
	p.at = nil
}

// merge adds newer states of some objects.
func (p *pending) merge(deltas []model.Delta, revision int64) {
	p.changes.Revision = revision
	if len(deltas) == 0 {
		return
	}
	if p.at == nil {
		p.at = make(map[model.ID]int, len(p.changes.Deltas)+len(deltas))
		for i, d := range p.changes.Deltas {
			p.at[d.ID] = i
		}
	}
	for _, d := range deltas {
		if i, ok := p.at[d.ID]; ok {
			p.changes.Deltas[i].Value = d.Value
			continue
		}
		p.at[d.ID] = len(p.changes.Deltas)
		p.changes.Deltas = append(p.changes.Deltas, d)
	}
}

// take hands everything over. In a resync a deleted object is one that is not
// named.
func (p *pending) take() model.Changes {
	taken := p.changes
	if taken.Resync && p.at != nil {
		taken.Deltas = slices.DeleteFunc(taken.Deltas, func(d model.Delta) bool { return d.Value == nil })
	}
	*p = pending{}
	return taken
}
