package datasync

import (
	"fmt"

	"github.com/sluice-net/sluice/api/model"
)

// proof decides by the completeness marker whether the store holds the complete state of the right
// cluster. It implements follow.Proof and belongs to the goroutine of Run.
type proof struct {
	prefix string
	// holds reports whether the store held a key when it was last believed.
	holds func(key string) bool
	// equals reports whether entries are what is in force.
	equals func(entries []model.Entry) bool

	// last is the marker of the state in force, with the counts of that state; nil if unknown. It
	// is never modified in place.
	last    *model.Marker
	highest int64         // highest seen revision of the store
	newest  int64         // revision of the newest change that is in force; 0 if unknown
	marker  *model.Marker // of the store, when it was last believed
	refused string        // why the store is not believed; empty if it is
}

// Key implements follow.Proof.
func (p *proof) Key() string { return model.MarkerKey(p.prefix) }

// Snapshot implements follow.Proof.
func (p *proof) Snapshot(entries []model.Entry, revision int64) error {
	counts, newest := model.CountsOf(model.Root(p.prefix), entries), newestOf(entries)
	m, err := model.DecodeMarker(model.FindMarker(p.prefix, entries))
	if err != nil {
		err = p.unmarked(err, counts)
	} else if err = p.judge(m, counts); err == nil {
		err = p.setBack(m, revision, newest, entries)
	}
	return p.decide(err, m, counts, revision, newest)
}

// newestOf returns the revision at which the newest of some entries was written.
func newestOf(entries []model.Entry) (newest int64) {
	for _, e := range entries {
		newest = max(newest, e.Revision)
	}
	return newest
}

// Changes implements follow.Proof.
func (p *proof) Changes(entries []model.Entry, revision int64) error {
	counts, m, err := p.last.Counts.Clone(), p.marker, error(nil)
	root, there := model.Root(p.prefix), map[string]bool{}
	for _, e := range entries {
		if e.Key == p.Key() {
			m, err = model.DecodeMarker(e.Value)
			continue
		}
		before, seen := there[e.Key]
		if !seen {
			before = p.holds(e.Key)
		}
		switch there[e.Key] = e.Value != nil; {
		case before && e.Value == nil:
			counts.Add(root, e.Key, -1)
		case !before && e.Value != nil:
			counts.Add(root, e.Key, 1)
		}
	}
	if err != nil {
		err = p.unmarked(err, counts)
	} else {
		err = p.judge(m, counts)
	}
	return p.decide(err, m, counts, revision, revision)
}

// decide records whether the store is believed, and returns why not.
func (p *proof) decide(err error, m *model.Marker, counts model.Counts, revision, newest int64) error {
	if err != nil {
		p.refused = err.Error()
		return err
	}
	last := *m
	last.Counts = counts
	p.last, p.marker, p.highest, p.newest, p.refused = &last, m, revision, newest, ""
	return nil
}

const acceptHint = "if it is meant, run sluicectl store accept"

// unmarked returns the error for a store without a marker.
func (p *proof) unmarked(err error, counts model.Counts) error {
	root := model.Root(p.prefix)
	if n := counts.Total(); n > 0 {
		return fmt.Errorf("%w: %s has %d objects, but sluice-ksr has not compared them with the cluster, or is older than this agent; "+
			"start it, or upgrade it", err, root, n)
	}
	return fmt.Errorf("%w: nothing is below %s; is --etcd-prefix right, was etcd emptied, and does sluice-ksr run?", err, root)
}

// judge returns an error if the content of the store cannot be the complete state of the cluster.
func (p *proof) judge(m *model.Marker, counts model.Counts) error {
	if err := m.CheckLevel(); err != nil {
		return err
	}
	if kind := counts.Lacks(m.Counts); kind != "" {
		return fmt.Errorf("objects are missing: etcd has %d of at least %d of kind %s; wait until sluice-ksr has written the rest",
			counts[kind], m.Counts[kind], model.Quoted(string(kind)))
	}
	if p.last == nil || m.Means(p.last.Generation) {
		return nil
	}
	switch known := p.last; {
	case known.Cluster != "" && m.Cluster != known.Cluster:
		return fmt.Errorf("etcd has the state of cluster %s, and that of cluster %s is in force; see --etcd-endpoints and --etcd-prefix; %s",
			model.Quoted(m.Cluster), model.Quoted(known.Cluster), acceptHint)
	case counts.Vanished(known.Counts):
		return fmt.Errorf("etcd has %d objects and no namespace, and %d objects are in force; %s", counts.Total(), known.Counts.Total(), acceptHint)
	}
	return nil
}

// setBack reports whether the store was restored from a backup and has not been compared with the
// cluster since. A restored store may be at a raised revision. But what it holds was written before
// the backup: the newest change that is in force is missing, and no later one came. The same is
// seen where the newest object was deleted while nothing was received; then the marker follows some
// seconds later.
func (p *proof) setBack(m *model.Marker, revision, newest int64, entries []model.Entry) error {
	known := p.last
	if known == nil || m.Means(known.Generation) || m.Generation > known.Generation {
		return nil
	}
	why := "wait until sluice-ksr has compared it with the cluster; " + acceptHint
	switch same := m.Generation == known.Generation; {
	case same && revision >= p.highest && (newest >= p.newest || newest == 0 || p.equals(entries)):
		return nil
	case same && revision >= p.highest:
		return fmt.Errorf("etcd was set back: it holds nothing that was written after revision %d, and changes up to revision %d are in force; %s",
			newest, p.newest, why)
	}
	return fmt.Errorf("etcd was set back: revision %d of generation %d is there, and revision %d of generation %d is in force; %s",
		revision, m.Generation, p.highest, known.Generation, why)
}
