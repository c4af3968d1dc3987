package reflect

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"

	"google.golang.org/protobuf/proto"

	"github.com/sluice-net/sluice/api/model"
)

// ErrDuplicate reports that one call names an object twice.
var ErrDuplicate = errors.New("the object is named twice")

// Stats counts what a call did, in objects.
type Stats struct {
	Put       int // written, because they were missing or different
	Deleted   int
	Unchanged int // already as wanted
}

// Reflector writes model messages to the store. It holds no state: every call compares with the
// store, and writes only what differs byte for byte. After an error a call may be partially done;
// repeating it does the rest. A Reflector may be used by several goroutines; their calls are
// serialized.
type Reflector struct {
	store  Store
	prefix string
	log    *slog.Logger
	mu     sync.Mutex
}

// NewReflector returns a Reflector that writes below model.Root(prefix).
func NewReflector(store Store, prefix string, log *slog.Logger) *Reflector {
	return &Reflector{store: store, prefix: prefix, log: log}
}

// Replace makes the values the complete state: it deletes everything else below model.Root(prefix)
// in the store.
func (r *Reflector) Replace(ctx context.Context, values []proto.Message) (Stats, error) {
	want, err := r.encode(values)
	if err != nil {
		return Stats{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	have, err := r.all(ctx)
	if err != nil {
		return Stats{}, err
	}
	var gone []string
	for key := range have {
		if _, ok := want[key]; !ok && key != model.MarkerKey(r.prefix) {
			gone = append(gone, key)
		}
	}
	return r.write(ctx, want, gone, have, true)
}

// Apply writes single objects.
func (r *Reflector) Apply(ctx context.Context, values []proto.Message) (Stats, error) {
	stats, _, err := r.Change(ctx, Change{Put: values})
	return stats, err
}

// Delete deletes single objects. Those that are not in the store count as unchanged.
func (r *Reflector) Delete(ctx context.Context, ids []model.ID) (Stats, error) {
	stats, _, err := r.Change(ctx, Change{Remove: ids})
	return stats, err
}

// Effect is the effect of a change on one object.
type Effect string

// The effects of a change.
const (
	Created   Effect = "created"
	Changed   Effect = "configured" // kubectl's word
	Unchanged Effect = "unchanged"
	Deleted   Effect = "deleted"
	Absent    Effect = "not found" // it was to be deleted
)

// Change is a set of changes by a source. It must not name an object twice.
type Change struct {
	Put    []proto.Message
	Remove []model.ID
	Whole  bool // the source has no other objects
}

// Change compares with the store, writes the difference in one Write, and returns its effect on
// each object. It returns an error if an object is to be both written and deleted.
func (r *Reflector) Change(ctx context.Context, c Change) (Stats, map[model.ID]Effect, error) {
	want, err := r.encode(c.Put)
	if err != nil {
		return Stats{}, nil, err
	}
	var remove []string
	for _, id := range c.Remove {
		key := model.Key(r.prefix, id)
		if _, ok := want[key]; ok {
			return Stats{}, nil, fmt.Errorf("reflect %s: %w", id, ErrDuplicate)
		}
		remove = append(remove, key)
	}
	slices.Sort(remove)
	remove = slices.Compact(remove)
	r.mu.Lock()
	defer r.mu.Unlock()
	have, err := r.all(ctx)
	if err != nil {
		return Stats{}, nil, err
	}
	byKey := effectsOf(want, remove, have)
	gone := slices.DeleteFunc(slices.Clone(remove), func(key string) bool { return byKey[key] == Absent })
	stats, err := r.write(ctx, want, gone, have, c.Whole)
	if err != nil {
		return Stats{}, nil, err
	}
	stats.Unchanged += len(remove) - len(gone)
	effects := make(map[model.ID]Effect, len(byKey))
	for key, effect := range byKey {
		id, err := model.ParseKey(r.prefix, key)
		if err != nil {
			return stats, nil, fmt.Errorf("reflect: %w", err)
		}
		effects[id] = effect
	}
	return stats, effects, nil
}

// effectsOf compares the desired values and the keys to remove with the previous content of the
// store.
func effectsOf(want map[string][]byte, remove []string, have map[string][]byte) map[string]Effect {
	effects := make(map[string]Effect, len(want)+len(remove))
	for key, value := range want {
		switch old, ok := have[key]; {
		case !ok:
			effects[key] = Created
		case bytes.Equal(old, value):
			effects[key] = Unchanged
		default:
			effects[key] = Changed
		}
	}
	for _, key := range remove {
		effects[key] = Absent
		if _, ok := have[key]; ok {
			effects[key] = Deleted
		}
	}
	return effects
}

// Differs reports whether the store holds another value for the object of a value.
func (r *Reflector) Differs(ctx context.Context, value proto.Message) (bool, error) {
	want, err := r.encode([]proto.Message{value})
	if err != nil {
		return false, err
	}
	for key, bytesWanted := range want {
		have := map[string][]byte{}
		if err := r.list(ctx, key, have); err != nil {
			return false, err
		}
		if old, ok := have[key]; ok {
			return !bytes.Equal(old, bytesWanted), nil
		}
	}
	return false, nil
}

// encode returns the canonical bytes of the values by key.
func (r *Reflector) encode(values []proto.Message) (map[string][]byte, error) {
	out := make(map[string][]byte, len(values))
	for _, v := range values {
		id, err := model.IDOf(v)
		if err != nil {
			return nil, fmt.Errorf("reflect: %w", err)
		}
		value, err := model.Encode(v)
		if err != nil {
			return nil, fmt.Errorf("reflect %s: %w", id, err)
		}
		key := model.Key(r.prefix, id)
		if _, ok := out[key]; ok {
			return nil, fmt.Errorf("reflect %s: %w", id, ErrDuplicate)
		}
		out[key] = value
	}
	return out, nil
}

// all returns the content of the store, by key, with the marker.
func (r *Reflector) all(ctx context.Context) (map[string][]byte, error) {
	have := map[string][]byte{}
	return have, r.list(ctx, model.Root(r.prefix), have)
}

func (r *Reflector) list(ctx context.Context, prefix string, into map[string][]byte) error {
	entries, _, err := r.store.List(ctx, prefix)
	if err != nil {
		return fmt.Errorf("reflect: list %s: %w", prefix, err)
	}
	for _, e := range entries {
		into[e.Key] = e.Value
	}
	return nil
}

// write writes the difference to the content of the store, in the order of the keys; it writes
// nothing if there is none. whole means that the desired objects are the complete state.
func (r *Reflector) write(ctx context.Context, want map[string][]byte, gone []string, have map[string][]byte, whole bool) (Stats, error) {
	var puts []model.Entry
	for _, key := range slices.Sorted(maps.Keys(want)) {
		if old, ok := have[key]; !ok || !bytes.Equal(old, want[key]) {
			puts = append(puts, model.Entry{Key: key, Value: want[key]})
		}
	}
	slices.Sort(gone)
	stats := Stats{Put: len(puts), Deleted: len(gone), Unchanged: len(want) - len(puts)}
	mark, err := r.marker(puts, gone, have, whole)
	if err != nil || len(mark) == 0 && len(puts) == 0 && len(gone) == 0 {
		return stats, err
	}
	puts = append(puts, mark...)
	if err := r.store.Write(ctx, puts, gone); err != nil {
		return Stats{}, fmt.Errorf("reflect: write %d and delete %d objects: %w", stats.Put, stats.Deleted, err)
	}
	r.log.Info("state reflected", "put", stats.Put, "deleted", stats.Deleted, "unchanged", stats.Unchanged)
	return stats, nil
}
