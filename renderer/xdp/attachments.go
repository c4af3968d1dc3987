package xdp

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/xdp/compile"
	"github.com/sluice-net/sluice/renderer/xdp/internal/attach"
)

// endpoints are the interfaces of pods with their lists, and whose they are.
type endpoints struct {
	lists map[uint32]compile.Endpoint
	owner map[uint32]api.PodID
}

func newEndpoints() endpoints {
	return endpoints{map[uint32]compile.Endpoint{}, map[uint32]api.PodID{}}
}

// attachments attach endpoints, and know how far each is attached.
type attachments struct {
	plane   attacher
	release func(id uint32) error // asked before an endpoint is detached; nil is none
	states  map[uint32]attachmentState
	named   map[uint32][]netip.Addr // addresses that the policy map in force knows
	ending  renderer.Unplugged      // pods whose interfaces went
	drift   attach.Drift
}

func newAttachments(o Options, drift attach.Drift) *attachments {
	return &attachments{plane: o.Dataplane, release: o.Release, states: map[uint32]attachmentState{}, named: map[uint32][]netip.Addr{}, drift: drift}
}

func (a *attachments) note(id uint32, e attachmentEvent) {
	a.states[id] = a.states[id].after(e)
	if a.states[id] == attachmentNone {
		delete(a.states, id)
	}
}

// observe returns what the plane says that is attached, sorted.
func (a *attachments) observe() (ids []uint32, err error) {
	if ids, err = a.plane.Attached(); err != nil {
		return nil, fmt.Errorf("what is attached: %w", err)
	}
	return ids, nil
}

// seen notes what is attached.
func (a *attachments) seen(ids []uint32) {
	for _, id := range ids {
		a.note(id, attachmentSeen)
	}
}

// match notes what is attached if that is exactly what there must be.
func (a *attachments) match(ends map[uint32]compile.Endpoint) (same bool, err error) {
	ids, err := a.observe()
	if same = err == nil && slices.Equal(ids, slices.Sorted(maps.Keys(ends))); same {
		a.seen(ids)
	}
	return same, err
}

// missing reports whether endpoints are not attached any more that should be.
func (a *attachments) missing(ends map[uint32]compile.Endpoint) (lost bool, err error) {
	if len(a.states) == 0 {
		return false, nil
	}
	ids, err := a.observe()
	if err != nil {
		return false, err
	}
	for id := range a.states {
		_, needed := ends[id]
		if _, there := slices.BinarySearch(ids, id); needed && !there {
			a.note(id, attachmentMissed)
			lost = true
		}
	}
	return lost, nil
}

// settled reports whether exactly the endpoints that there are are attached.
func (a *attachments) settled(ends map[uint32]compile.Endpoint) bool {
	for _, state := range a.states {
		if state != attachmentDone {
			return false
		}
	}
	return len(a.states) == len(ends)
}

// isAttached reports whether packets of an endpoint are decided.
func (a *attachments) isAttached(id uint32) bool { return a.states[id] == attachmentDone }

// renamed notes that a new policy map is in force, to which addresses have to be told again.
func (a *attachments) renamed() { clear(a.named) }

// leaving returns the endpoints that are attached, or may be, and are no more, sorted.
func (a *attachments) leaving(ends map[uint32]compile.Endpoint) (ids []uint32) {
	for _, id := range slices.Sorted(maps.Keys(a.states)) {
		if _, ok := ends[id]; !ok {
			ids = append(ids, id)
		}
	}
	return ids
}

// detach lets go of an endpoint, first of its packets. unflip has nothing lead to it any more.
func (a *attachments) detach(id uint32, unflip func(id, record uint32) error) error {
	if a.release != nil {
		if err := a.release(id); err != nil {
			return fmt.Errorf("let go of interface %d: %w", id, err)
		}
	}
	if err := a.plane.Detach(id); err != nil {
		return fmt.Errorf("detach from interface %d: %w", id, err)
	}
	if err := unflip(id, 0); err != nil {
		return fmt.Errorf("endpoint %d: %w", id, err)
	}
	a.note(id, attachmentDetached)
	delete(a.named, id)
	return nil
}

// attach has packets of new endpoints decided. It returns what was gone when it was to be attached:
// the others need not wait until somebody says whose that was.
func (a *attachments) attach(e endpoints) (gone []error, err error) {
	for _, id := range slices.Sorted(maps.Keys(e.lists)) {
		end, pod := e.lists[id], e.owner[id]
		if !slices.Equal(a.named[id], end.IPs) {
			if err := a.plane.Name(end); err != nil {
				return gone, fmt.Errorf("interface %d of pod %s: %w", id, pod, err)
			}
			a.named[id] = end.IPs
		}
		if a.isAttached(id) {
			continue
		}
		a.note(id, attachmentTried)
		switch err := a.plane.Attach(end); {
		case errors.Is(err, ErrGone) && a.ending.Ends(pod, time.Now()): // who looks after interfaces will say so
		case errors.Is(err, ErrGone):
			gone = append(gone, fmt.Errorf("pod %s: interface %d is gone: %w", pod, id, renderer.ErrNoInterface))
		case err != nil:
			return gone, fmt.Errorf("attach to interface %d of pod %s: %w", id, pod, err)
		default:
			if a.states[id] == attachmentLost {
				a.drift[attach.DriftAttachment]++
			}
			a.note(id, attachmentSeen)
		}
	}
	return gone, nil
}

// pending returns what a pod without an interface waits for.
func (a *attachments) pending(pod api.PodID) renderer.Pending {
	if a.ending.Ends(pod, time.Now()) {
		return renderer.Pending{Pod: pod, Reason: "its interface is gone", Ends: true}
	}
	return renderer.Pending{Pod: pod, Reason: "no interface is known"}
}

// enforces returns the endpoints of some that are attached, and whose they are.
func (a *attachments) enforces(owner map[uint32]api.PodID) map[uint32]api.PodID {
	out := maps.Clone(owner)
	maps.DeleteFunc(out, func(id uint32, _ api.PodID) bool { return !a.isAttached(id) })
	return out
}
