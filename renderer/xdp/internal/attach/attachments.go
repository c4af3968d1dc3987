package attach

import (
	"errors"

	"github.com/cilium/ebpf"

	"github.com/sluice-net/sluice/renderer/xdp/internal/loader"
	"github.com/sluice-net/sluice/renderer/xdp/internal/pins"
)

// Attachments are all places at which programs run: at interfaces, and in the stack where what pods
// send to the node is judged. It is used by one goroutine at a time, in the node's network
// namespace.
type Attachments struct {
	*Interfaces
	stack    *Stack
	gateways *Gateways
	loader   *loader.Loader
}

// New returns no attachments.
func New(folder *pins.Folder, mode loader.Mode, l *loader.Loader, shared map[string]*ebpf.Map) (*Attachments, error) {
	gateways, err := OpenGateways(shared)
	return &Attachments{NewInterfaces(folder, mode), NewStack(folder), gateways, l}, err
}

// Adopt takes over what a process before attached.
func (a *Attachments) Adopt(uplinks []uint32) error {
	return errors.Join(a.Interfaces.Adopt(uplinks), a.stack.Adopt())
}

// Unseen reports whether no packet runs a program.
func (a *Attachments) Unseen() bool {
	return len(a.pods)+len(a.uplinks) == 0 && a.stack.Empty()
}

// Attach has programs decide about an endpoint. ErrGone says that its interface is not there.
func (a *Attachments) Attach(id uint32, programs Programs) error {
	if a.stack.Empty() && a.loader.Behind() {
		if err := a.stack.Attach(programs); err != nil {
			return err
		}
	}
	a.gateways.Find(id)
	return a.Interfaces.Attach(id, programs)
}

// Detach lets packets of an endpoint pass.
func (a *Attachments) Detach(id uint32) error {
	if err := a.Interfaces.Detach(id); err != nil {
		return err
	}
	a.gateways.Forget(id)
	return nil
}

// Run has everything that is attached run other programs, those in the stack first.
func (a *Attachments) Run(programs Programs) error {
	if (len(a.pods) > 0 || !a.stack.Empty()) && a.loader.Behind() {
		if err := a.stack.Attach(programs); err != nil {
			return err
		}
	}
	return a.Update(programs)
}

// Audit compares what the kernel has with what was attached, and repairs it.
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

// Close ends what does not go on by itself.
func (a *Attachments) Close() error {
	if a == nil {
		return nil
	}
	return errors.Join(a.Interfaces.Close(), a.stack.Close(), a.gateways.Close())
}
