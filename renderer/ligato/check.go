package ligato

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sluice-net/sluice/renderer"
)

var _ renderer.Checker = (*Renderer)(nil)

// Check implements renderer.Checker: it reads the ACLs in the store. What the vpp-agent has made of
// them it does not know.
func (r *Renderer) Check(ctx context.Context) (objects int, drift []string, err error) {
	if !r.mu.TryLock() {
		return 0, nil, errors.New("an Apply is running: try again")
	}
	defer r.mu.Unlock()
	if r.held == nil {
		return 0, nil, errors.New("nothing has been published yet, or the store has changed: try again")
	}
	entries, _, err := r.options.Store.List(ctx, r.prefix)
	if err != nil {
		return 0, nil, err
	}
	there := map[string][]byte{}
	for _, e := range entries {
		if name := strings.TrimPrefix(e.Key, r.prefix); strings.HasPrefix(name, ownPrefix) {
			there[name] = e.Value
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.held)) {
		want, err := r.held[name].entry(r.prefix, name)
		switch value, ok := there[name]; {
		case err != nil:
			return 0, nil, err
		case !ok:
			drift = append(drift, fmt.Sprintf("acl %s is gone", name))
		case !bytes.Equal(value, want.Value):
			drift = append(drift, fmt.Sprintf("acl %s has another value", name))
		}
		delete(there, name)
	}
	for _, name := range slices.Sorted(maps.Keys(there)) {
		drift = append(drift, fmt.Sprintf("acl %.100q was not published by this agent", name))
	}
	return len(r.held), drift, nil
}
