package xdp

import (
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

// Size implements Plane.
func (k *Kernel) Size() (lines, slots int) { return k.maps.Size() }

// Limits implements Plane. Counters are those of all processors together.
func (k *Kernel) Limits() (lines, slots int) { return k.loader.Limits() }

// Prepare implements Plane.
func (k *Kernel) Prepare(lines, slots int) error {
	return k.maps.Prepare(lines, slots, k.attached.Programs(), k.attached.Unseen())
}

// Write implements Plane.
func (k *Kernel) Write(line uint32, content []compile.Line) error { return k.maps.Write(line, content) }

// Store implements Plane.
func (k *Kernel) Store(word, value uint32) error {
	k.maps.Store(word, value)
	return nil
}

// Flip implements Plane.
func (k *Kernel) Flip(id, record uint32) error { return k.maps.Flip(id, record) }

// Switch implements Plane.
func (k *Kernel) Switch() (left []uint64, err error) { return k.maps.Switch(k.attached.Run) }

// Grace implements Plane.
func (k *Kernel) Grace() error { return k.grace.Wait() }

// Word implements Plane.
func (k *Kernel) Word(i uint32) uint32 { return k.maps.Word(i) }

// Record implements Plane.
func (k *Kernel) Record(id uint32) uint32 { return k.maps.Record(id) }

// Hits implements Plane.
func (k *Kernel) Hits(first, count uint32) ([]uint64, error) { return k.maps.Hits(first, count) }

// Name implements Plane.
func (k *Kernel) Name(e compile.Endpoint) error { return k.maps.Name(e.ID, e.IPs) }

// Attach implements Plane. Where another mode attached, its places stay until those of this mode
// are there.
func (k *Kernel) Attach(e compile.Endpoint) error {
	known := k.attached.Has(e.ID)
	err := permitted(k.attached.Attach(e.ID, k.maps.Programs()))
	if !known {
		err = errors.Join(err, k.connections.Divide(k.attached.Count()))
	}
	return err
}

// Detach implements Plane.
func (k *Kernel) Detach(id uint32) error {
	if err := k.attached.Detach(id); err != nil {
		return err
	}
	return errors.Join(k.connections.Divide(k.attached.Count()), k.connections.ForgetFragments(id), k.maps.Name(id, nil))
}

// Attached implements Plane. An endpoint whose device is gone is not attached, nor is one that has
// not all places of the mode, or others.
func (k *Kernel) Attached() ([]uint32, error) { return k.attached.Attached(), nil }

// Decides returns the endpoints at which programs of ours decide about both directions, in whatever
// mode, also if another process attached them.
func (k *Kernel) Decides() (ids []uint32, err error) { return k.attached.Decides(), nil }

// Permits implements Plane.
func (k *Kernel) Permits(id uint32, dir compile.Direction, f api.Flow) (bool, error) {
	if !k.attached.Has(id) {
		return true, nil
	}
	return k.run(bpf.SluiceProgAskTo, bpf.SluiceProgAskFrom, id, dir, Frame(f, false))
}

// Probe says what becomes of a packet that an endpoint sends or receives, and leaves the
// state that the packet would leave.
func (k *Kernel) Probe(id uint32, dir compile.Direction, frame []byte) (bool, error) {
	return k.run(bpf.SluiceProgProbeTo, bpf.SluiceProgProbeFrom, id, dir, frame)
}

// run has the kernel run the program of a direction on a packet.
func (k *Kernel) run(to, from string, id uint32, dir compile.Direction, frame []byte) (bool, error) {
	name := to
	if dir == compile.FromPod {
		name = from
	}
	ctx := struct{ Len, PktType, Mark uint32 }{Mark: id}
	var full [192]byte // as large as what the kernel takes; zero behind
	*(*struct{ Len, PktType, Mark uint32 })(unsafe.Pointer(&full)) = ctx
	got, err := k.maps.Run(name, &ebpf.RunOptions{Data: frame, Context: full})
	if err != nil {
		return false, fmt.Errorf("run %s for endpoint %s: %w", name, strconv.FormatUint(uint64(id), 10), err)
	}
	return int32(got) == -1, nil
}

// Reset makes a kernel as it was when it was new, without loading anything: no endpoint, no policy,
// no mark, no evidence. It is for those that use one for many things, one after the other.
func (k *Kernel) Reset() error {
	for _, id := range k.attached.IDs() {
		if err := k.Detach(id); err != nil {
			return fmt.Errorf("detach from interface %d: %w", id, err)
		}
	}
	if k.loader.Runs() { // else nothing runs but what is asked
		if err := k.Grace(); err != nil { // packets on their way note flows, and read memory
			return err
		}
	}
	if err := errors.Join(k.SetStateDigest(StateDigest{}), k.connections.Forget()); err != nil {
		return err
	}
	return k.maps.Reset(k.attached.Uplinks() == 0)
}

// audit compares what the kernel has with what this process made, and repairs it.
func (k *Kernel) audit() (f finding, err error) {
	f.drift = attach.Drift{}
	errs := []error{k.attached.Audit(k.maps.Programs(), f.drift)}
	f.aliens = k.attached.Aliens()
	if k.folder.Pins() && k.StateDigest() != (StateDigest{}) { // else they are pinned in a moment
		pinned := maps.Clone(k.shared)
		pinned[digestPin] = k.digest
		for _, name := range loader.MapNames {
			pinned[name] = k.maps.All()[name]
		}
		lost, err := k.folder.Repin(pinned)
		errs = append(errs, err)
		if lost > 0 {
			f.drift[attach.DriftPin] += lost
		}
	}
	if f.policyMap = k.maps.Changed(); f.policyMap {
		f.drift[attach.DriftPolicyMap]++
	}
	renewed, err := k.loader.Renew(k.maps.Layout())
	f.policyMap = f.policyMap || renewed
	return f, errors.Join(append(errs, err)...)
}
