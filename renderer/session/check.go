package session

import (
	"context"
	"errors"
	"maps"

	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/vpp"
)

var _ renderer.Checker = (*Renderer)(nil)

var errNotRead = errors.New("session rules have not been read yet: try again")

// Check implements renderer.Checker: it reads the application namespaces and all session rules. A
// caller who leaves does not cut the connection off: its calls are bounded by Options.Timeout.
func (r *Renderer) Check(ctx context.Context) (objects int, drift []string, err error) {
	if !r.mu.TryLock() {
		return 0, nil, errors.New("an Apply is running: try again")
	}
	defer r.mu.Unlock()
	if r.mirror == nil {
		return 0, nil, errNotRead
	}
	ctx, done := r.link.Calls(context.WithoutCancel(ctx))
	defer done()
	if objects, drift, err = r.check(ctx); err != nil {
		err = vpp.Ended(ctx, err)
		r.link.Failed(err)
	}
	return objects, drift, err
}

func (r *Renderer) check(ctx context.Context) (objects int, drift []string, err error) {
	names, err := r.names(ctx)
	if err != nil {
		return 0, nil, err
	}
	drift, others, err := r.mirror.compare(ctx, r.link)
	if err != nil {
		return 0, nil, err
	}
	if others && len(drift) == 0 { // rules of ours that are gone count as a difference of others
		drift = append(drift, "rules of another owner beside ours have come or gone")
	}
	if !maps.Equal(names, r.mirror.namespaces) {
		drift = append(drift, "application namespaces have come or gone")
	}
	for _, p := range r.mirror.sections {
		objects += len(p.rules)
	}
	return objects, drift, nil
}
