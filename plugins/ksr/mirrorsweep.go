package ksr

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/sluice-net/sluice/api/model"
)

// watchWrites has what is written from now on noted, until the end of the sweep that
// follows. No write is under way.
func (m *Mirror) watchWrites() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.touched = map[string]struct{}{}
}

// sweep reads what the store holds: everything that differs is to be written. Of what is
// written meanwhile the writer knows better; the next sweep looks at it.
func (m *Mirror) sweep(ctx context.Context, store Store, reason string) error {
	start := time.Now()
	defer m.forgetWrites()
	entries, revision, err := store.List(ctx, model.Root(m.prefix))
	if err != nil {
		return fmt.Errorf("reflect: list %s: %w", model.Root(m.prefix), err)
	}
	if err := m.readMarker(model.FindMarker(m.prefix, entries)); err != nil {
		return err
	}
	if err := m.evict(ctx, store); err != nil {
		return err
	}
	drift := 0
	for part := range slices.Chunk(entries, maxBatch) {
		drift += m.mark(part)
	}
	for part := range slices.Chunk(missing(m.held(), entries), maxBatch) {
		drift += m.mark(part)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if reason == sweepStart {
		m.begin(start)
	} else {
		m.counts.Drift += uint64(drift)
	}
	m.counts.Sweeps[reason]++
	m.swept = true
	m.compared(reason, drift, revision, time.Now())
	m.log.Info("store compared with the whole state", "reason", reason, "revision", revision, "keys", len(entries),
		"differ", m.left(), "took", time.Since(start))
	return nil
}

func (m *Mirror) forgetWrites() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.touched = nil
}

// begin lets what waited for the first sweep count from there: nobody could write it
// before.
func (m *Mirror) begin(now time.Time) {
	for _, keys := range m.pending {
		for key := range keys {
			keys[key] = now
		}
	}
}

// mark takes over what the store holds, or with a nil Value that it does not hold it, and
// counts the objects that are not as they were known to be. It is told a part at a time,
// because the source and the writer wait for it.
func (m *Mirror) mark(part []model.Entry) (drift int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	for _, e := range part {
		drift += m.take(e.Key, e.Value, now)
	}
	return drift
}

// held returns the keys that the store is believed to hold.
func (m *Mirror) held() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	keys := make([]string, 0, len(m.objects))
	for key, o := range m.objects {
		if o.have != nil {
			keys = append(keys, key)
		}
	}
	return keys
}

// missing returns, without a value, the keys that are not among the entries.
func missing(keys []string, entries []model.Entry) (gone []model.Entry) {
	there := make(map[string]struct{}, len(entries))
	for _, e := range entries {
		there[e.Key] = struct{}{}
	}
	for _, key := range keys {
		if _, ok := there[key]; !ok {
			gone = append(gone, model.Entry{Key: key})
		}
	}
	return gone
}

// take takes over what the store holds of one object, and returns 1 if that was not
// known, else 0.
func (m *Mirror) take(key string, value []byte, now time.Time) (drift int) {
	if _, later := m.touched[key]; later || key == model.MarkerKey(m.prefix) {
		return 0
	}
	o := m.objects[key]
	if old := (mirrored{want: value, have: o.have}); !old.same() {
		drift = 1
	}
	kind := m.kindOf(key)
	m.noteHave(kind, o.have != nil, value != nil)
	if o.have = value; m.late[kind] && o.want == nil && value != nil {
		o.want = value // as long as the source has not said otherwise
		m.kinds[kind]++
	}
	m.settle(kind, key, o, now)
	return drift
}
