package ligato

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/sluice-net/sluice/api/model"
)

// binding is one direction of an interface.
type binding struct {
	name   string
	egress bool
}

// read reads the content of the store, unless it is known.
func (r *Renderer) read(ctx context.Context) error {
	if r.held != nil {
		return nil
	}
	entries, _, err := r.options.Store.List(ctx, r.prefix)
	if err != nil {
		return err
	}
	held, foreign := make(map[string]published), make(map[binding]string)
	r.strange = nil
	for _, e := range entries {
		name := strings.TrimPrefix(e.Key, r.prefix)
		if !strings.HasPrefix(name, ownPrefix) {
			noteBindings(foreign, name, e.Value)
		} else if p, ok := parse(r.prefix, e); ok {
			held[name] = p
		} else {
			r.strange = append(r.strange, name)
		}
	}
	r.held, r.foreign = held, foreign
	r.log.Info("read the published acls", "label", r.options.Label, "acls", len(held), "foreign", len(entries)-len(held)-len(r.strange))
	return nil
}

// noteBindings records the interfaces of a foreign ACL.
func noteBindings(to map[binding]string, name string, value []byte) {
	var a wireACL
	if json.Unmarshal(value, &a) != nil {
		return // the agent cannot parse it either, or it only has more fields than we know
	}
	for _, i := range a.Interfaces.Egress {
		to[binding{i, true}] = name
	}
	for _, i := range a.Interfaces.Ingress {
		to[binding{i, false}] = name
	}
}

// step is a group of changes of the store whose order does not matter. It follows the previous
// step.
type step struct {
	puts    map[string]published
	deletes []string
}

func (s step) isEmpty() bool { return len(s.puts)+len(s.deletes) == 0 }

// write performs the steps and records what was written.
func (r *Renderer) write(ctx context.Context, steps []step) error {
	for _, s := range steps {
		if s.isEmpty() {
			continue
		}
		var puts []model.Entry
		var deletes []string
		for name, p := range s.puts {
			e, err := p.entry(r.prefix, name)
			if err != nil {
				return err
			}
			puts = append(puts, e)
			r.warn(name, p)
		}
		for _, name := range s.deletes {
			deletes = append(deletes, r.prefix+name)
		}
		slices.SortFunc(puts, func(a, b model.Entry) int { return strings.Compare(a.Key, b.Key) })
		slices.Sort(deletes)
		if err := r.options.Store.Write(ctx, puts, deletes); err != nil {
			return err
		}
		r.wrote(s)
	}
	return nil
}

// wrote records a step that the store has acknowledged.
func (r *Renderer) wrote(s step) {
	for name, p := range s.puts {
		r.held[name] = p
		r.strange = slices.DeleteFunc(r.strange, func(n string) bool { return n == name })
	}
	for _, name := range s.deletes {
		delete(r.held, name)
		r.strange = slices.DeleteFunc(r.strange, func(n string) bool { return n == name })
	}
}

// warn warns, once, that an interface has a foreign ACL as well: it is undefined which of the two
// decides.
func (r *Renderer) warn(name string, p published) {
	for _, side := range []struct {
		egress     bool
		interfaces []string
	}{{true, p.egress}, {false, p.ingress}} {
		for _, i := range side.interfaces {
			b := binding{i, side.egress}
			if other, ok := r.foreign[b]; ok {
				delete(r.foreign, b)
				r.log.Warn("found an acl of another owner on the same interface and direction; either may decide", "interface", i, "acl", name, "other", other)
			}
		}
	}
}

// Invalidate notifies the renderer that the store may not hold what was written: another program
// has written, or the host could not apply the writes. The next Apply reads the store. Invalidate
// waits for a running Apply.
func (r *Renderer) Invalidate() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held = nil
}

// Prefix returns the prefix of the keys of all ACLs of the agent, for watchers.
func (r *Renderer) Prefix() string { return r.prefix }

// Seen processes changes of keys under Prefix, as reported by a watch of the store; a nil Value is
// a deletion. It reports whether another program made one of them: then the next Apply reads
// everything, and the caller should commit soon. Seen waits for a running Apply. A value that
// existed only for a moment during an Apply counts as foreign.
func (r *Renderer) Seen(entries []model.Entry) (foreign bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.held == nil {
		return false // the next Apply reads everything anyway
	}
	for _, e := range entries {
		name := strings.TrimPrefix(e.Key, r.prefix)
		if !strings.HasPrefix(name, ownPrefix) {
			continue
		}
		p, held := r.held[name]
		if e.Value == nil && !held {
			continue
		}
		if want, err := p.entry(r.prefix, name); !held || err != nil || !bytes.Equal(want.Value, e.Value) {
			r.held = nil
			return true
		}
	}
	return false
}
