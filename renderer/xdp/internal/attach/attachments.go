package attach

import (
	"errors"
	"sync/atomic"

	"github.com/cilium/ebpf"

	"github.com/sluice-net/sluice/renderer/xdp/internal/loader"
	"github.com/sluice-net/sluice/renderer/xdp/internal/pins"
)

// Attachments has all attachments: at interfaces, and at the netfilter hooks where the program
// judges what pods send to the node. One goroutine at a time may use it, in the node's network
// namespace.
type Attachments struct {
	*Interfaces
	stack    *Stack
	gateways *Gateways
	loader   *loader.Loader
	ids      map[*ebpf.Program]ebpf.ProgramID // of the last Look
	ports    atomic.Pointer[[]uint16]         // of tunnels of the node, found so far
}

// New returns Attachments without any attachment.
func New(folder *pins.Folder, mode loader.Mode, l *loader.Loader, shared map[string]*ebpf.Map) (*Attachments, error) {
	gateways, err := OpenGateways(shared)
	return &Attachments{Interfaces: NewInterfaces(folder, mode), stack: NewStack(folder), gateways: gateways, loader: l}, err
}

// Adopt takes over the attachments of an earlier process.
func (a *Attachments) Adopt(uplinks []uint32) error {
	return errors.Join(a.Interfaces.Adopt(uplinks), a.stack.Adopt())
}

// Unseen reports whether no packet runs a program.
func (a *Attachments) Unseen() bool {
	return len(a.pods)+len(a.uplinks) == 0 && a.stack.Empty()
}

// Attach attaches programs to an endpoint. It returns ErrGone if the interface does not exist.
func (a *Attachments) Attach(id uint32, programs Programs) error {
	if a.stack.Empty() && a.loader.Behind() {
		if err := a.stack.Attach(programs); err != nil {
			return err
		}
	}
	a.gateways.Find(id)
	return a.Interfaces.Attach(id, programs)
}

// Detach detaches from an endpoint, whose packets pass then.
func (a *Attachments) Detach(id uint32) error {
	if err := a.Interfaces.Detach(id); err != nil {
		return err
	}
	a.gateways.Forget(id)
	return nil
}

// Run replaces the programs of all attachments, those at netfilter hooks first.
func (a *Attachments) Run(programs Programs) error {
	if (len(a.pods) > 0 || !a.stack.Empty()) && a.loader.Behind() {
		if err := a.stack.Attach(programs); err != nil {
			return err
		}
	}
	return a.Update(programs)
}

// Audit compares the attachments in the kernel with those that were made, and repairs differences.
func (a *Attachments) Audit(programs Programs, found Drift) error {
	for _, id := range a.Present() {
		a.gateways.Find(id)
	}
	err := a.Interfaces.Audit(programs, found)
	if a.loader.Behind() {
		err = errors.Join(err, a.stack.Audit(programs, found))
	}
	return err
}

// Close releases what does not outlive the process.
func (a *Attachments) Close() error {
	if a == nil {
		return nil
	}
	return errors.Join(a.Interfaces.Close(), a.stack.Close(), a.gateways.Close())
}
