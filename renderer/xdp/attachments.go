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

// endpoints are the interfaces of pods, with their lists and their pods.
type endpoints struct {
	lists map[uint32]compile.Endpoint
	owner map[uint32]api.PodID
}

func newEndpoints() endpoints {
	return endpoints{map[uint32]compile.Endpoint{}, map[uint32]api.PodID{}}
}

// attachments attaches to endpoints, and tracks the attachment state of each.
type attachments struct {
	dataplane attacher
	release   func(id uint32) error // called before an endpoint is detached; may be nil
	states    map[uint32]attachmentState
	addresses map[uint32][]netip.Addr // as registered in the policy map in force
	unplugged renderer.Unplugged      // pods whose interfaces disappeared
	drift     attach.Drift
}

func newAttachments(o Options, drift attach.Drift) *attachments {
	return &attachments{dataplane: o.Dataplane, release: o.Release, states: map[uint32]attachmentState{}, addresses: map[uint32][]netip.Addr{}, drift: drift}
}

func (a *attachments) recordEvent(id uint32, e attachmentEvent) {
	a.states[id] = a.states[id].after(e)
	if a.states[id] == attachmentNone {
		delete(a.states, id)
	}
}

// observe returns the attached endpoints, as the dataplane reports them, sorted.
func (a *attachments) observe() (ids []uint32, err error) {
	if ids, err = a.dataplane.Attached(); err != nil {
		return nil, fmt.Errorf("read attachments: %w", err)
	}
	return ids, nil
}

// seen records that endpoints are attached.
func (a *attachments) seen(ids []uint32) {
	for _, id := range ids {
		a.recordEvent(id, attachmentSeen)
	}
}

// match reports whether exactly the desired endpoints are attached, and records that.
func (a *attachments) match(eps map[uint32]compile.Endpoint) (same bool, err error) {
	ids, err := a.observe()
	if same = err == nil && slices.Equal(ids, slices.Sorted(maps.Keys(eps))); same {
		a.seen(ids)
	}
	return same, err
}

// missing reports whether desired endpoints are not attached any more, and records which.
func (a *attachments) missing(eps map[uint32]compile.Endpoint) (lost bool, err error) {
	if len(a.states) == 0 {
		return false, nil
	}
	ids, err := a.observe()
	if err != nil {
		return false, err
	}
	for id := range a.states {
		_, needed := eps[id]
		if _, there := slices.BinarySearch(ids, id); needed && !there {
			a.recordEvent(id, attachmentMissed)
			lost = true
		}
	}
	return lost, nil
}

// settled reports whether exactly the desired endpoints are recorded as attached.
func (a *attachments) settled(eps map[uint32]compile.Endpoint) bool {
	for _, state := range a.states {
		if state != attachmentDone {
			return false
		}
	}
	return len(a.states) == len(eps)
}

// isAttached reports whether the program judges the packets of an endpoint.
func (a *attachments) isAttached(id uint32) bool { return a.states[id] == attachmentDone }

// forgetAddresses records that a new policy map is in force, in which no addresses are registered.
func (a *attachments) forgetAddresses() { clear(a.addresses) }

// leaving returns the endpoints that are or may be attached and are not desired any more, sorted.
func (a *attachments) leaving(eps map[uint32]compile.Endpoint) (ids []uint32) {
	for _, id := range slices.Sorted(maps.Keys(a.states)) {
		if _, ok := eps[id]; !ok {
			ids = append(ids, id)
		}
	}
	return ids
}

// detach detaches from an endpoint. Then it removes its record by unflip.
func (a *attachments) detach(id uint32, unflip func(id, record uint32) error) error {
	if a.release != nil {
		if err := a.release(id); err != nil {
			return fmt.Errorf("block interface %d before detaching: %w", id, err)
		}
	}
	if err := a.dataplane.Detach(id); err != nil {
		return fmt.Errorf("detach from interface %d: %w", id, err)
	}
	if err := unflip(id, 0); err != nil {
		return fmt.Errorf("endpoint %d: %w", id, err)
	}
	a.recordEvent(id, attachmentDetached)
	delete(a.addresses, id)
	return nil
}

// attach attaches to new endpoints. An interface that does not exist any more does not stop the
// others: attach returns an error in gone for each of these.
func (a *attachments) attach(e endpoints) (gone []error, err error) {
	for _, id := range slices.Sorted(maps.Keys(e.lists)) {
		end, pod := e.lists[id], e.owner[id]
		if !slices.Equal(a.addresses[id], end.IPs) {
			if err := a.dataplane.Name(end); err != nil {
				return gone, fmt.Errorf("interface %d of pod %s: %w", id, pod, err)
			}
			a.addresses[id] = end.IPs
		}
		if a.isAttached(id) {
			continue
		}
		a.recordEvent(id, attachmentTried)
		switch err := a.dataplane.Attach(end); {
		case errors.Is(err, ErrGone) && a.unplugged.Ends(pod, time.Now()): // the owner of interfaces will report it
		case errors.Is(err, ErrGone):
			gone = append(gone, fmt.Errorf("pod %s: interface %d is gone: %w", pod, id, renderer.ErrNoInterface))
		case err != nil:
			return gone, fmt.Errorf("attach to interface %d of pod %s: %w", id, pod, err)
		default:
			if a.states[id] == attachmentLost {
				a.drift[attach.DriftAttachment]++
			}
			a.recordEvent(id, attachmentSeen)
		}
	}
	return gone, nil
}

// pending returns why a pod without an interface is not enforced yet.
func (a *attachments) pending(pod api.PodID) renderer.Pending {
	if a.unplugged.Ends(pod, time.Now()) {
		return renderer.Pending{Pod: pod, Reason: "its interface is gone", Ends: true}
	}
	return renderer.Pending{Pod: pod, Reason: "no interface is known"}
}

// enforces returns the pods of the attached endpoints among some.
func (a *attachments) enforces(owner map[uint32]api.PodID) map[uint32]api.PodID {
	out := maps.Clone(owner)
	maps.DeleteFunc(out, func(id uint32, _ api.PodID) bool { return !a.isAttached(id) })
	return out
}
