package xdp

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/xdp/compile"
)

var _ renderer.Checker = (*Renderer)(nil)

// Check implements renderer.Checker: it reads which interfaces packets are decided at, by which
// programs, which record of the policy map each has, and what the record says.
func (r *Renderer) Check(ctx context.Context) (objects int, drift []string, err error) {
	if !r.mu.TryLock() {
		return 0, nil, errors.New("an Apply is running: try again")
	}
	defer r.mu.Unlock()
	attached, err := r.options.Dataplane.Attached()
	if err != nil {
		return 0, nil, err
	}
	for _, id := range slices.Sorted(maps.Keys(r.acked.lists)) {
		if err := ctx.Err(); err != nil {
			return 0, nil, err
		}
		objects++
		what, err := r.differs(id, attached)
		if err != nil {
			return 0, nil, fmt.Errorf("interface %d: %w", id, err)
		}
		if what != "" {
			drift = append(drift, fmt.Sprintf("interface %d of pod %s %s", id, r.acked.owner[id], what))
		}
	}
	return objects, drift, nil
}

// differs describes how an interface differs from what was installed; it is empty if there is no
// difference.
func (r *Renderer) differs(id uint32, attached []uint32) (string, error) {
	if _, found := slices.BinarySearch(attached, id); !found {
		return "is not attached", nil
	}
	if a, ok := r.options.Dataplane.(auditor); ok {
		if what, err := a.altered(id); err != nil || what != "" {
			return what, err
		}
	}
	return r.differsInMap(id), nil
}

// differsInMap compares the record of an interface with the image of the policy map.
func (r *Renderer) differsInMap(id uint32) string {
	if r.policy.state != policyInstalled { // another process wrote the policy map, or a plan is not done
		return ""
	}
	record := r.policy.image.Record(id)
	if is := r.options.Dataplane.Record(id); is != record {
		return fmt.Sprintf("has record %d of the policy map instead of %d", is, record)
	}
	words := r.policy.image.Words()
	for i := range uint32(compile.LineWords) {
		if at := record*compile.LineWords + i; r.options.Dataplane.Word(at) != words(at) {
			return fmt.Sprintf("has a record of the policy map that is not the one installed (word %d)", i)
		}
	}
	return ""
}
