package datasync

import (
	"bytes"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
)

// decoder turns entries of the store into deltas. It keeps the last valid bytes of every object: to
// skip writes that change nothing, to keep an object in force if a newer value does not decode, and
// for those who ask about the cluster. Policy does not depend on services: no delta is about one.
// One goroutine owns it.
type decoder struct {
	prefix string // of the cluster
	marker string // key that is not that of an object
	report func(api.Problem)

	known map[string][]byte  // key -> the value in force
	bad   map[string]unusual // key -> a value in the store that is not in force

	unchanged uint64 // number of entries that changed nothing
	reported  uint64
}

// unusual is an unusable value, and why.
type unusual struct {
	value   []byte
	problem api.Problem
}

// delta decodes one entry. It returns false if the entry changes nothing.
func (d *decoder) delta(e model.Entry) (model.Delta, bool) {
	old, had := d.known[e.Key]
	switch {
	case e.Key == d.marker:
		return model.Delta{}, false
	case e.Value == nil:
		delete(d.bad, e.Key)
		if !had {
			return model.Delta{}, false
		}
		delete(d.known, e.Key)
		id, err := model.ParseKey(d.prefix, e.Key)
		return model.Delta{ID: id}, err == nil && !id.Kind.IsOfServices()
	case had && bytes.Equal(old, e.Value):
		delete(d.bad, e.Key)
		d.unchanged++
		return model.Delta{}, false
	}
	id, m, err := d.newer(e, old)
	if err != nil {
		d.refuse(d.bad, e, err)
		return model.Delta{}, false
	}
	delete(d.bad, e.Key)
	d.known[e.Key] = e.Value
	return model.Delta{ID: id, Value: m}, !id.Kind.IsOfServices()
}

// values counts the known values.
func (d *decoder) values() Values {
	return Values{Objects: len(d.known), Problems: len(d.bad), Reported: d.reported, Unchanged: d.unchanged}
}

// deltas decodes a batch of a watch. It returns only values that change something; an object may
// occur more than once.
func (d *decoder) deltas(entries []model.Entry) []model.Delta {
	out := make([]model.Delta, 0, len(entries))
	for _, e := range entries {
		if delta, ok := d.delta(e); ok {
			out = append(out, delta)
		}
	}
	return out
}

// holds reports whether the store had a key.
func (d *decoder) holds(key string) bool {
	_, known := d.known[key]
	_, bad := d.bad[key]
	return known || bad
}

// equals reports whether the entries are exactly what is in force.
func (d *decoder) equals(entries []model.Entry) bool {
	n := 0
	for _, e := range entries {
		old, had := d.known[e.Key]
		switch {
		case had && bytes.Equal(old, e.Value):
			n++
		case e.Key != d.marker:
			return false
		}
	}
	return n == len(d.known)
}

// snapshot decodes a complete state.
func (d *decoder) snapshot(entries []model.Entry) []model.Delta {
	out := make([]model.Delta, 0, len(entries))
	known := make(map[string][]byte, len(entries))
	bad := map[string]unusual{}
	for _, e := range entries {
		if e.Key == d.marker {
			continue
		}
		old, had := d.known[e.Key]
		id, m, err := d.newer(e, old)
		if err != nil {
			d.refuse(bad, e, err)
			if !had {
				continue
			}
			if id, m, err = d.decode(model.Entry{Key: e.Key, Value: old}); err != nil {
				continue // impossible: it was valid before
			}
			e.Value = old
		}
		if had && bytes.Equal(old, e.Value) {
			e.Value = old // release the new copy
		}
		known[e.Key] = e.Value
		if !id.Kind.IsOfServices() {
			out = append(out, model.Delta{ID: id, Value: m})
		}
	}
	d.known, d.bad = known, bad
	return out
}

// newer decodes an entry that may replace the value old, which is nil for none. It is an error if a
// policy that cannot be read as a whole replaces one that can.
func (d *decoder) newer(e model.Entry, old []byte) (model.ID, proto.Message, error) {
	id, m, err := d.decode(e)
	if why := model.Refused(m); err == nil && why != "" && old != nil {
		if _, before, err := d.decode(model.Entry{Key: e.Key, Value: old}); err == nil && model.Refused(before) == "" {
			return id, nil, fmt.Errorf("%s: the last one that can be read stays in force: %s", id, why)
		}
	}
	return id, m, err
}

func (d *decoder) decode(e model.Entry) (model.ID, proto.Message, error) {
	id, err := model.ParseKey(d.prefix, e.Key)
	if err != nil {
		return model.ID{}, nil, err
	}
	m, err := model.Decode(id, e.Value)
	return id, m, err
}

// refuse records an unusable value and reports it, unless the same value was reported before.
func (d *decoder) refuse(bad map[string]unusual, e model.Entry, err error) {
	if before, ok := d.bad[e.Key]; ok && bytes.Equal(before.value, e.Value) {
		bad[e.Key] = before
		return
	}
	p := api.Problem{Source: model.Source(e.Key), Reason: err.Error()}
	if id, perr := model.ParseKey(d.prefix, e.Key); perr == nil {
		p.Object = id.String()
	}
	bad[e.Key] = unusual{value: e.Value, problem: p}
	d.reported++
	d.report(p)
}
