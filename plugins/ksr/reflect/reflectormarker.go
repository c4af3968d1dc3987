package reflect

import (
	"fmt"
	"time"

	"github.com/sluice-net/sluice/api/model"
)

// ManifestsCluster is the cluster in the completeness marker if objects come from manifests instead
// of an API server.
const ManifestsCluster = "manifests"

// marker returns the completeness marker to write with a change, or none if that of the store is
// right. Changes by hand are deliberate: removing the last objects is accepted. The marker is
// written after the puts and before the deletions.
func (r *Reflector) marker(puts []model.Entry, gone []string, have map[string][]byte, whole bool) ([]model.Entry, error) {
	key, before := model.MarkerKey(r.prefix), model.Counts{}
	for k := range have {
		before.Add(model.Root(r.prefix), k, 1)
	}
	after := r.countsAfter(before, puts, gone, have)
	next := model.Marker{Cluster: ManifestsCluster}
	stored, err := model.DecodeMarker(have[key])
	switch {
	case err != nil && len(puts) == 0 && !whole:
		return nil, nil // a mere deletion does not define what exists
	case err == nil && stored.Counts.Equal(after) && (!whole || len(puts)+len(gone) == 0):
		return nil, nil
	case err == nil:
		next = *stored
	}
	next.Counts = after
	if next.Level = max(next.Level, model.Level); whole {
		next.Level = model.Level // nothing is left of a writer of another one
	}
	vanished := after.Vanished(before)
	if err != nil || whole || vanished {
		next.Generation = model.NextGeneration(next.Generation, time.Now().UnixMilli())
	}
	if vanished {
		next.Accepted = next.Generation
	}
	value, err := model.EncodeMarker(&next)
	if err != nil {
		return nil, fmt.Errorf("reflect: %w", err)
	}
	return []model.Entry{{Key: key, Value: value}}, nil
}

// countsAfter returns how many objects the store holds after a change.
func (r *Reflector) countsAfter(before model.Counts, puts []model.Entry, gone []string, have map[string][]byte) model.Counts {
	after, root := before.Clone(), model.Root(r.prefix)
	for _, e := range puts {
		if _, ok := have[e.Key]; !ok {
			after.Add(root, e.Key, 1)
		}
	}
	for _, key := range gone {
		after.Add(root, key, -1)
	}
	return after
}
