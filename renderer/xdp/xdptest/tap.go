// Package xdptest provides a pool of loaded kernel dataplanes, and a dataplane that injects
// failures, for tests of the XDP renderer and of its users.
package xdptest

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/sluice-net/sluice/renderer/xdp"
	"github.com/sluice-net/sluice/renderer/xdp/compile"
)

// ErrInjected is the error that a Tap injects.
var ErrInjected = errors.New("injected failure")

// Tap wraps a dataplane. It counts the steps that packets can notice, and fails on demand. FailNext
// may be called while a renderer uses the Tap.
type Tap struct {
	xdp.Dataplane
	preparing bool
	mu        sync.Mutex // of what follows
	ops       int
	failAt    int // counts down to the call that fails; 0 for none
}

func (t *Tap) step(changes bool) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.failAt > 0 {
		if t.failAt--; t.failAt == 0 {
			return ErrInjected
		}
	}
	if changes {
		t.ops++
	}
	return nil
}

// isAttached reports whether an endpoint is attached.
func (t *Tap) isAttached(id uint32) bool {
	ids, err := t.Dataplane.Attached()
	return err != nil || slices.Contains(ids, id)
}

// SetStateDigest implements xdp.Dataplane.
func (t *Tap) SetStateDigest(m xdp.StateDigest) error {
	if err := t.step(false); err != nil {
		return err
	}
	return t.Dataplane.SetStateDigest(m)
}

// Prepare implements xdp.Dataplane.
func (t *Tap) Prepare(lines, slots int) error {
	if err := t.step(false); err != nil {
		return err
	}
	t.preparing = true
	return t.Dataplane.Prepare(lines, slots)
}

// Write implements xdp.Dataplane.
func (t *Tap) Write(line uint32, content []compile.Line) error {
	if err := t.step(false); err != nil {
		return err
	}
	return t.Dataplane.Write(line, content)
}

// Store implements xdp.Dataplane.
func (t *Tap) Store(word, value uint32) error {
	if err := t.step(!t.preparing); err != nil {
		return err
	}
	return t.Dataplane.Store(word, value)
}

// Flip implements xdp.Dataplane.
func (t *Tap) Flip(id, record uint32) error {
	if err := t.step(!t.preparing && t.isAttached(id)); err != nil {
		return err
	}
	return t.Dataplane.Flip(id, record)
}

// Switch implements xdp.Dataplane.
func (t *Tap) Switch() ([]uint64, error) {
	ids, _ := t.Dataplane.Attached()
	if err := t.step(len(ids) > 0); err != nil {
		return nil, err
	}
	t.preparing = false
	return t.Dataplane.Switch()
}

// Attach implements xdp.Dataplane.
func (t *Tap) Attach(e compile.Endpoint) error {
	if err := t.step(true); err != nil {
		return err
	}
	return t.Dataplane.Attach(e)
}

// Detach implements xdp.Dataplane.
func (t *Tap) Detach(id uint32) error {
	if err := t.step(true); err != nil {
		return err
	}
	return t.Dataplane.Detach(id)
}

// Attached implements xdp.Dataplane.
func (t *Tap) Attached() ([]uint32, error) {
	if err := t.step(false); err != nil {
		return nil, err
	}
	return t.Dataplane.Attached()
}

// Operations returns how many steps so far packets could notice.
func (t *Tap) Operations() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.ops
}

// FailNext makes the n-th step from now fail; 1 is the next one, and 0 cancels.
func (t *Tap) FailNext(n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failAt = n
}

// Dangling describes attached endpoints without a record.
func (t *Tap) Dangling() (out []string) {
	ids, err := t.Dataplane.Attached() // without a failure
	if err != nil {
		return []string{err.Error()}
	}
	for _, id := range ids {
		if t.Record(id) == 0 {
			out = append(out, fmt.Sprintf("interface %d is attached and has no record", id))
		}
	}
	return out
}

// Installed prints what a renderer installed, as far as it depends on the desired state only.
func Installed(r *xdp.Renderer) (string, error) {
	d := r.State()
	if d.Err != nil {
		return "", d.Err
	}
	var b strings.Builder
	endpoints := r.Endpoints()
	for _, id := range slices.Sorted(maps.Keys(endpoints)) {
		fmt.Fprintf(&b, "interface %d has %s\n", id, endpoints[id].IPs)
	}
	for _, t := range d.Tables {
		text, err := json.Marshal(t)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&b, "%s\n", text)
	}
	members := r.Members()
	for _, id := range slices.Sorted(maps.Keys(members)) {
		fmt.Fprintf(&b, "set %s: %v\n", id, members[id])
	}
	return b.String(), nil
}
