package xdp

import (
	"context"
	"fmt"
	"time"
)

// Watch looks every second for changes of the dataplane by other processes, until the context ends.
// When it finds one, State has an error until an Apply, for which it asks by OnChange, has repaired
// it.
func (r *Renderer) Watch(ctx context.Context) error {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
			r.lookOnce()
		}
	}
}

// lookOnce is one look of Watch.
func (r *Renderer) lookOnce() {
	r.mu.Lock()
	found := r.look()
	r.mu.Unlock()
	if found && r.options.OnChange != nil {
		r.options.OnChange()
	}
}

// look reports whether a change is found that was not found before. r.mu is held.
func (r *Renderer) look() bool {
	a, ok := r.options.Dataplane.(auditor)
	if !ok || r.ended || len(r.attachments.states) == 0 {
		return false
	}
	what, err := a.look()
	if err != nil {
		what = err.Error()
	}
	if what == "" || what == r.audits.seen {
		return false
	}
	r.audits.seen = what
	r.log.Warn("another process changed the dataplane, it is repaired", "what", what)
	v := *r.view.Load()
	if v.err == nil {
		v.err = fmt.Errorf("another process changed the dataplane, and it is not repaired yet: %s", what)
		r.view.Store(&v)
	}
	return true
}
