package xdp

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"unsafe"

	"github.com/cilium/ebpf"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer/xdp/bpf"
	"github.com/sluice-net/sluice/renderer/xdp/compile"
	"github.com/sluice-net/sluice/renderer/xdp/internal/attach"
	"github.com/sluice-net/sluice/renderer/xdp/internal/loader"
)

// Size implements Dataplane.
func (k *Kernel) Size() (lines, slots int) { return k.maps.Size() }

// Limits implements Dataplane.
func (k *Kernel) Limits() (lines, slots int) { return k.loader.Limits() }

// Prepare implements Dataplane.
func (k *Kernel) Prepare(lines, slots int) error {
	return k.maps.Prepare(lines, slots, k.attached.Programs(), k.attached.Unseen())
}

// Write implements Dataplane.
func (k *Kernel) Write(line uint32, content []compile.Line) error { return k.maps.Write(line, content) }

// Store implements Dataplane.
func (k *Kernel) Store(word, value uint32) error {
	k.maps.Store(word, value)
	return nil
}

// Flip implements Dataplane.
func (k *Kernel) Flip(id, record uint32) error { return k.maps.Flip(id, record) }

// Switch implements Dataplane.
func (k *Kernel) Switch() (left []uint64, err error) { return k.maps.Switch(k.attached.Run) }

// Grace implements Dataplane.
func (k *Kernel) Grace() error { return k.grace.Wait() }

// Word implements Dataplane.
func (k *Kernel) Word(i uint32) uint32 { return k.maps.Word(i) }

// Record implements Dataplane.
func (k *Kernel) Record(id uint32) uint32 { return k.maps.Record(id) }

// Hits implements Dataplane.
func (k *Kernel) Hits(first, count uint32) ([]uint64, error) { return k.maps.Hits(first, count) }

// Name implements Dataplane.
func (k *Kernel) Name(e compile.Endpoint) error { return k.maps.Name(e.ID, e.IPs) }

// Attach implements Dataplane. Attachments of another mode stay until those of this mode are in
// place.
func (k *Kernel) Attach(e compile.Endpoint) error {
	known := k.attached.Has(e.ID)
	err := permitted(k.attached.Attach(e.ID, k.maps.Programs()))
	if !known {
		err = errors.Join(err, k.connections.Divide(k.attached.Count()))
	}
	return err
}

// Detach implements Dataplane.
func (k *Kernel) Detach(id uint32) error {
	if err := k.attached.Detach(id); err != nil {
		return err
	}
	delete(k.elders, id)
	return errors.Join(k.connections.Divide(k.attached.Count()), k.connections.ForgetFragments(id), k.maps.Name(id, nil))
}

// older implements elder. Without attachments, programs answer queries only.
func (k *Kernel) older(id uint32) bool { return !k.loader.Runs() || k.elders[id] }

// Attached implements Dataplane. An endpoint is attached if its device exists and it has exactly
// the attachments of the mode.
func (k *Kernel) Attached() ([]uint32, error) { return k.attached.Attached(), nil }

// Decides returns the endpoints at which Sluice's programs judge both directions, in any mode, also
// those that an earlier process attached.
func (k *Kernel) Decides() (ids []uint32, err error) { return k.attached.Decides(), nil }

// Permits implements Dataplane.
func (k *Kernel) Permits(id uint32, dir compile.Direction, f api.Flow) (bool, error) {
	if !k.attached.Has(id) {
		return true, nil
	}
	return k.run(bpf.SluiceProgAskTo, bpf.SluiceProgAskFrom, id, dir, Frame(f, false))
}

// Probe reports whether a packet that an endpoint sends or receives passes. It leaves the state
// that the packet would leave.
func (k *Kernel) Probe(id uint32, dir compile.Direction, frame []byte) (bool, error) {
	return k.run(bpf.SluiceProgProbeTo, bpf.SluiceProgProbeFrom, id, dir, frame)
}

// run runs the program of a direction on a packet, in the kernel.
func (k *Kernel) run(to, from string, id uint32, dir compile.Direction, frame []byte) (bool, error) {
	name := to
	if dir == compile.FromPod {
		name = from
	}
	ctx := struct{ Len, PktType, Mark uint32 }{Mark: id}
	var full [192]byte // the size of the kernel's struct; the rest is zero
	*(*struct{ Len, PktType, Mark uint32 })(unsafe.Pointer(&full)) = ctx
	got, err := k.maps.Run(name, &ebpf.RunOptions{Data: frame, Context: full})
	if err != nil {
		return false, fmt.Errorf("run %s for endpoint %s: %w", name, strconv.FormatUint(uint64(id), 10), err)
	}
	return int32(got) == -1, nil
}

// Reset returns a kernel to its initial state without loading programs: no endpoints, no policy, no
// state digest, no tracked connections. It is for callers that reuse a Kernel.
func (k *Kernel) Reset() error {
	for _, id := range k.attached.IDs() {
		if err := k.Detach(id); err != nil {
			return fmt.Errorf("detach from interface %d: %w", id, err)
		}
	}
	if k.loader.Runs() { // else programs run for queries only
		if err := k.Grace(); err != nil { // packets in flight note connections, and read the policy map
			return err
		}
	}
	if err := errors.Join(k.SetStateDigest(StateDigest{}), k.connections.Forget()); err != nil {
		return err
	}
	return k.maps.Reset(k.attached.Uplinks() == 0)
}

// FollowLinks follows the devices of the node, by which packets of pods reach it, until the context
// ends. It may run concurrently with all other methods.
func (k *Kernel) FollowLinks(ctx context.Context) error { return k.attached.FollowLinks(ctx) }

// look implements auditor.
func (k *Kernel) look() (string, error) {
	if what, err := k.attached.Look(k.maps.Programs()); err != nil || what != "" {
		return what, err
	}
	if port := k.loader.NewTunnel(k.attached.Ports()); port != 0 {
		return fmt.Sprintf("the node has a tunnel at UDP port %d, to which pods may send", port), nil
	}
	return k.folder.Look(k.attached.Pins(), k.pinned()), nil
}

// pinned returns the maps that have pins, by the names of these.
func (k *Kernel) pinned() map[string]*ebpf.Map {
	if !k.folder.Pins() || k.StateDigest() == (StateDigest{}) { // an Apply will pin them
		return nil
	}
	pinned := maps.Clone(k.shared)
	pinned[digestPin] = k.stored
	for _, name := range loader.MapNames {
		pinned[name] = k.maps.All()[name]
	}
	return pinned
}

// audit compares the state of the kernel with what this process created, and repairs differences.
func (k *Kernel) audit() (f finding, err error) {
	f.drift = attach.Drift{}
	restored, err := k.folder.Restore()
	errs := []error{err, k.attached.Audit(k.maps.Programs(), f.drift)}
	f.foreign = k.attached.ForeignPrograms()
	lost, err := k.folder.Repin(k.pinned())
	errs = append(errs, err)
	if lost > 0 {
		f.drift[attach.DriftPin] += lost
	}
	if restored && k.moved != nil {
		errs = append(errs, k.moved())
	}
	errs = append(errs, k.folder.Leave())
	if f.policyMap = k.maps.Changed(); f.policyMap {
		f.drift[attach.DriftPolicyMap]++
	}
	renewed, err := k.loader.Renew(k.maps.Layout())
	tunnels, errTunnels := k.loader.Tunnels(k.attached.Ports())
	f.policyMap = f.policyMap || renewed || tunnels
	return f, errors.Join(append(errs, err, errTunnels)...)
}

// altered implements auditor.
func (k *Kernel) altered(id uint32) (string, error) {
	name, err := k.attached.Altered(id, k.maps.Programs())
	if err != nil || name != "" {
		return "does not run the program " + name + " any more", err
	}
	stored, err := k.maps.Stored(id)
	if want := k.maps.Record(id); err == nil && stored != uint64(want) {
		return fmt.Sprintf("has record %d of the policy map instead of %d", stored, want), nil
	}
	return "", err
}
