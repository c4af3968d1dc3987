package keeper

import (
	"log/slog"
	"time"

	"github.com/sluice-net/sluice/plugins/endpoints"
)

// gates holds the known state of the gates. The keeper's lock guards it.
type gates struct {
	gate   Gate
	log    *slog.Logger
	closed map[uint32]bool
	failed map[uint32]error // those that could not be changed
}

func newGates(g Gate, log *slog.Logger) gates {
	return gates{gate: g, log: log, closed: map[uint32]bool{}, failed: map[uint32]error{}}
}

// block blocks an interface. An interface that is gone needs no gate.
func (g *gates) block(index uint32) error {
	if g.closed[index] {
		return nil
	}
	if err := g.gate.Block(index); err != nil {
		if isGone(index) {
			return nil // the kernel will report it
		}
		return err
	}
	g.closed[index] = true
	return nil
}

func (g *gates) open(index uint32) error {
	err := g.gate.Open(index)
	if err == nil {
		delete(g.closed, index)
	}
	return err
}

// moved records whether the gate of an endpoint could be changed. A failed change is retried.
func (g *gates) moved(index uint32, e endpoints.Endpoint, err error) {
	if err == nil {
		delete(g.failed, index)
		return
	}
	if g.failed[index] == nil {
		g.log.Warn("gate of an interface could not be changed, retrying", "interface", e.Link.Name, "index", index, "pod", e.Pod, "error", err)
	}
	g.failed[index] = err
}

// inspect reads back which gates are closed. A gate that another process changed is marked for
// correction.
func (g *gates) inspect(all []endpoints.Endpoint) error {
	now, err := g.gate.Blocked()
	if err != nil {
		return err
	}
	closed := map[uint32]bool{}
	for _, index := range now {
		closed[index] = true
	}
	for _, e := range all {
		index := e.Link.Index
		if closed[index] == g.closed[index] {
			continue
		}
		g.log.Warn("another process changed the gate of an interface, repairing it", "interface", e.Link.Name, "pod", e.Pod, "closed", closed[index])
		delete(g.closed, index)
		g.failed[index] = errMoved
	}
	return nil
}

// Recheck closes the gates again that another process opened.
func (k *Keeper) Recheck() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.gates.closed) == 0 {
		return nil
	}
	if err := k.gates.inspect(k.reg.Endpoints()); err != nil {
		return err
	}
	k.settle()
	return nil
}

// enforcementTimer measures the time from a pod's claim to its enforcement.
type enforcementTimer struct {
	pending map[uint32]time.Time // when the claim was made
	waited  func(time.Duration)  // nil disables it
}

// see records the state of an endpoint.
func (b *enforcementTimer) see(index uint32, e endpoints.Endpoint) {
	since, waits := b.pending[index]
	if e.State == endpoints.StatePending {
		if !waits {
			b.pending[index] = e.Since
		}
		return
	}
	if e.State == endpoints.StateEnforced && waits && b.waited != nil {
		b.waited(e.Since.Sub(since))
	}
	delete(b.pending, index)
}

// problems holds what cannot be read, and why.
type problems struct {
	why map[string]string
	log *slog.Logger
}

// record records that something cannot be read, or with nil that it can.
func (p *problems) record(what string, err error) {
	if err == nil {
		delete(p.why, what)
		return
	}
	if p.why[what] != err.Error() {
		p.log.Warn("endpoints cannot be read", "what", what, "error", err)
	}
	p.why[what] = err.Error()
}
