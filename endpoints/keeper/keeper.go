// Package keeper keeps the endpoints of a node whose kernel enforces: it watches interfaces, finds
// whose they are, closes and opens their gates, and answers a CNI plugin.
//
// # Invariants
//
//   - The gate of an interface is open only while its endpoint is enforced, or nobody looks after
//     it.
//   - The gate closes before the classifier lets go of an interface that is there.
//   - What cannot be read, opened or resolved changes nothing.
package keeper

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/endpoints"
)

// Gate blocks interfaces; package gate has one.
type Gate interface {
	Block(index uint32) error
	Open(index uint32) error
	Blocked() ([]uint32, error)
}

// Config of a Keeper. The zero value of a field switches off what it is for.
type Config struct {
	Log  *slog.Logger // nil discards
	Gate Gate         // needed
	// BlockNew blocks interfaces that Scope or a CNI configuration names until they are a pod's
	// whose policy is enforced, from when they appear.
	BlockNew bool
	Scope    Scope
	CNIConf  string // folder with the configurations of CNI
	// Results is the folder of CNI's result cache, and NetNS that with the network namespaces of
	// pods, for paths in results that do not lead anywhere as they are.
	Results string
	NetNS   string
	// File keeps claims for the next start. Node is part of what identifies it.
	File string
	Node string
	// Attached returns the interfaces at which the classifier of a process before still decides.
	Attached func() ([]uint32, error)
	// OnChange is called when policy is to be enforced elsewhere; a Commit asks Interfaces again.
	// It may be called by any goroutine, and must not wait.
	OnChange func()
	// Waited is called for an interface that is enforced now, with the time since it was a pod's.
	// It must not wait.
	Waited func(time.Duration)
}

// Keeper keeps the endpoints of the network namespace in which its methods are called. They may be
// called by any goroutine.
type Keeper struct {
	cfg Config
	log *slog.Logger

	mu        sync.Mutex
	reg       *endpoints.Registry
	devices   map[uint32]device
	scope     Scope // Config.Scope, and what configurations of CNI name
	gates     gates
	births    births
	held      map[uint32]bool // interfaces that are looked after though Scope does not name them
	inherited map[uint32]bool // where the classifier of a process before decides still
	problems  problems
	file      claimsFile
	changed   chan struct{} // closed after a change
	unsaved   chan struct{} // holds a token when the file may not have all claims
}

// New returns a keeper. Nothing is looked at before Start.
func New(cfg Config) (*Keeper, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Gate == nil {
		return nil, errors.New("endpoints: a gate is needed")
	}
	if cfg.OnChange == nil {
		cfg.OnChange = func() {}
	}
	return &Keeper{
		cfg: cfg, log: cfg.Log, reg: endpoints.NewRegistry(nil), devices: map[uint32]device{}, scope: cfg.Scope,
		gates: newGates(cfg.Gate, cfg.Log), births: births{pending: map[uint32]time.Time{}, waited: cfg.Waited},
		held: map[uint32]bool{}, inherited: map[uint32]bool{}, problems: problems{why: map[string]string{}, log: cfg.Log},
		file:    claimsFile{cfg.File, cfg.Node},
		changed: make(chan struct{}), unsaved: make(chan struct{}, 1),
	}, nil
}

// Start reads what there is: interfaces, gates, the file, and CNI's results. Interfaces that are
// nobody's are blocked when it returns. What a process before enforces stays in force.
func (k *Keeper) Start() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	all, err := devices()
	if err != nil {
		return fmt.Errorf("endpoints: %w", err)
	}
	blocked, err := k.cfg.Gate.Blocked()
	if err != nil {
		return fmt.Errorf("endpoints: which interfaces are blocked: %w", err)
	}
	for _, index := range blocked {
		k.gates.closed[index], k.held[index] = true, true
	}
	if k.cfg.Attached != nil {
		ids, err := k.cfg.Attached()
		if err != nil {
			return fmt.Errorf("endpoints: what is attached: %w", err)
		}
		for _, index := range ids {
			k.inherited[index] = true
		}
	}
	k.readScope()
	for _, d := range all {
		k.see(d)
	}
	k.load()
	k.find()
	k.settle()
	return nil
}

// see takes over what is known of a device. mu is held.
func (k *Keeper) see(d device) {
	k.devices[d.Index] = d
	_, known := k.reg.Endpoint(d.Index)
	bridge := k.devices[d.master].Name
	switch inScope := k.cfg.BlockNew && k.scope.has(d, bridge); {
	case !d.veth:
	case k.held[d.Index] || inScope || known && (d.master == 0 || k.reg.Claimed(d.Index)):
		k.reg.Link(d.Link)
	case known && bridge != "": // it is somebody else's: the port of another bridge
		k.reg.Gone(d.Index)
	}
}

// gone forgets a device. mu is held.
func (k *Keeper) gone(index uint32) {
	delete(k.devices, index)
	delete(k.gates.closed, index)
	delete(k.held, index)
	delete(k.inherited, index)
	k.reg.Gone(index)
}

// settle moves gates to where they must be, and says that something changed. mu is held.
func (k *Keeper) settle() {
	changes := k.reg.Changes()
	for index := range k.gates.failed {
		if !slices.Contains(changes, index) {
			changes = append(changes, index)
		}
	}
	if len(changes) == 0 {
		return
	}
	for _, index := range changes {
		k.move(index)
	}
	select {
	case k.unsaved <- struct{}{}:
	default: // somebody will look already
	}
	close(k.changed)
	k.changed = make(chan struct{})
	k.cfg.OnChange()
}

// move opens or closes a gate, as the state of its endpoint wants it.
func (k *Keeper) move(index uint32) {
	e, known := k.reg.Endpoint(index)
	k.births.see(index, e)
	if k.inherited[index] && e.State == endpoints.StatePending {
		return // what a process before enforces is in force until the first Commit
	}
	var err error
	switch _, there := k.devices[index]; {
	case known && e.State != endpoints.StateEnforced:
		err = k.gates.block(index)
	case known || k.gates.closed[index] || !there: // a CNI plugin may have closed it, too
		err = k.gates.open(index)
	}
	k.gates.moved(index, e, err)
}

// Interfaces returns the interfaces at which the policy of a pod with some addresses is to be
// enforced, by index. It asks nobody.
func (k *Keeper) Interfaces(pod api.PodID, ips []netip.Addr) []uint32 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.reg.Offer(pod, ips)
}

// Registered returns the addresses with which pods were registered whose interfaces are theirs.
func (k *Keeper) Registered() map[api.PodID][]netip.Addr {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.reg.Addresses()
}

// Identify says by which UIDs policy knows pods of the node, all that it knows or some; an empty
// one says that it does not. It is called before a Commit that enforces policy of these pods:
// interfaces of other lives of them are blocked when it returns.
func (k *Keeper) Identify(uids map[api.PodID]string, all bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.reg.Identify(uids, all)
	k.settle()
}

// Release closes the gate of an interface of which the classifier wants to let go. After an error
// it must not. An interface that is gone needs no gate, and neither does one that is nobody's where
// new ones are not blocked.
func (k *Keeper) Release(index uint32) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.inherited, index)
	d, there := k.devices[index]
	if !there || isGone(index) {
		return nil
	}
	if _, known := k.reg.Endpoint(index); !known && !k.cfg.BlockNew {
		return nil
	}
	if err := k.gates.block(index); err != nil {
		return err
	}
	k.held[index] = true
	k.see(d)
	return nil
}

// Enforced says which pods policy knows, and at which interfaces it is enforced, for which pod. The
// gates of these open.
func (k *Keeper) Enforced(pods map[api.PodID]bool, ends map[uint32]api.PodID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.reg.Acknowledge(pods, maps.Clone(ends))
	for index := range k.inherited {
		k.gates.failed[index] = errMoved // looked at by settle
	}
	clear(k.inherited)
	k.acknowledged()
}

// acknowledged does what settle does, but prompts nobody: a Commit was just made. mu is held.
func (k *Keeper) acknowledged() {
	prompt := k.cfg.OnChange
	k.cfg.OnChange = func() {}
	k.settle()
	k.cfg.OnChange = prompt
}

// Endpoints returns all interfaces that are looked after, by index.
func (k *Keeper) Endpoints() []endpoints.Endpoint {
	k.mu.Lock()
	defer k.mu.Unlock()
	out := k.reg.Endpoints()
	for i, e := range out {
		if err := k.gates.failed[e.Link.Index]; err != nil {
			out[i].Reason = "its gate could not be moved: " + err.Error()
		}
	}
	return out
}

// Problems returns what cannot be read, and why. Nothing changes by that, but what cannot be read
// may say whose an interface is.
func (k *Keeper) Problems() map[string]string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return maps.Clone(k.problems.why)
}

// wait returns when something changed since f was called last, or the context ends; f returns true
// for what is waited for.
func (k *Keeper) wait(ctx context.Context, f func() bool) {
	for {
		k.mu.Lock()
		done, changed := f(), k.changed
		k.mu.Unlock()
		if done {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
}

// errMoved says that a gate is to be looked at.
var errMoved = errors.New("somebody else moved it")

// rescan is how often everything is looked at, in case that nobody said that something changed.
const rescan = 30 * time.Second
