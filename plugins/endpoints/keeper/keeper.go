// Package keeper manages the endpoints of a node with the kernel dataplane: it watches interfaces,
// determines their pods, blocks and allows their traffic, and serves a CNI plugin.
//
// # Invariants
//
//   - The traffic of an interface is allowed only while its endpoint is enforced, or while the
//     interface is not managed.
//   - The keeper blocks an existing interface before the classifier detaches from it.
//   - A failure to read, open or resolve something changes nothing.
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
	"github.com/sluice-net/sluice/plugins/endpoints"
)

// Gate blocks interfaces; package gate implements it.
type Gate interface {
	Block(index uint32) error
	Open(index uint32) error
	Blocked() ([]uint32, error)
}

// Config of a Keeper. The zero value of an optional field disables its feature.
type Config struct {
	Log  *slog.Logger // nil discards
	Gate Gate         // required
	// BlockNew blocks new interfaces that Scope or a CNI configuration names from their appearance
	// until the policy of a pod is enforced on them.
	BlockNew bool
	Scope    Scope
	CNIConf  string // folder with the CNI configurations
	// Results is the folder of CNI's result cache, and NetNS that with the network namespaces of
	// pods, used for paths in results that do not exist as they are.
	Results string
	NetNS   string
	// File saves claims for the next start. Node is part of its identity.
	File string
	Node string
	// Attached returns the interfaces to which the classifier of the previous process is still
	// attached.
	Attached func() ([]uint32, error)
	// OnChange is called when policy must be enforced on other interfaces; an Apply calls
	// Interfaces again. Any goroutine may call it; it must not block.
	OnChange func()
	// Waited is called when policy is enforced at an interface, with the time since it was claimed
	// for a pod. It must not block.
	Waited func(time.Duration)
}

// Keeper manages the endpoints of the network namespace in which its methods are called. It is safe
// for concurrent use.
type Keeper struct {
	cfg Config
	log *slog.Logger

	mu        sync.Mutex
	reg       *endpoints.Registry
	devices   map[uint32]device
	scope     Scope // Config.Scope, and the interfaces that CNI configurations name
	gates     gates
	births    enforcementTimer
	unscoped  map[uint32]bool   // managed interfaces that Scope does not name
	inherited map[uint32]bool   // where the classifier of the previous process is still attached
	sandboxes map[int]api.PodID // pods of CNI's results, by the id of their network namespaces
	uncovered []Uncovered
	problems  problems
	file      claimsFile
	changed   chan struct{} // closed after a change
	unsaved   chan struct{} // holds a token if the file may lack claims
}

// New returns a keeper. It reads nothing before Start.
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
		gates: newGates(cfg.Gate, cfg.Log), births: enforcementTimer{pending: map[uint32]time.Time{}, waited: cfg.Waited},
		unscoped: map[uint32]bool{}, inherited: map[uint32]bool{}, sandboxes: map[int]api.PodID{}, problems: problems{why: map[string]string{}, log: cfg.Log},
		file:    claimsFile{cfg.File, cfg.Node},
		changed: make(chan struct{}), unsaved: make(chan struct{}, 1),
	}, nil
}

// Start reads the existing interfaces, gates, the file, and CNI's results. When it returns,
// interfaces without a pod are blocked. What the previous process enforces stays in force.
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
		k.gates.closed[index], k.unscoped[index] = true, true
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

// see updates a device. mu is held.
func (k *Keeper) see(d device) {
	k.devices[d.Index] = d
	_, known := k.reg.Endpoint(d.Index)
	bridge := k.devices[d.master].Name
	switch inScope := k.cfg.BlockNew && k.scope.includes(d, bridge); {
	case !d.pair:
	case k.unscoped[d.Index] || inScope || known && (d.master == 0 || k.reg.Claimed(d.Index)):
		k.reg.Link(d.Link)
	case known && bridge != "": // a port of another bridge, which Sluice does not manage
		k.reg.Gone(d.Index)
	}
}

// gone removes a device. mu is held.
func (k *Keeper) gone(index uint32) {
	delete(k.devices, index)
	delete(k.gates.closed, index)
	delete(k.unscoped, index)
	delete(k.inherited, index)
	k.reg.Gone(index)
}

// settle opens and closes gates as required, and announces the change. mu is held.
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
	default: // a save is pending already
	}
	close(k.changed)
	k.changed = make(chan struct{})
	k.cfg.OnChange()
}

// move opens or closes a gate according to the state of its endpoint.
func (k *Keeper) move(index uint32) {
	e, known := k.reg.Endpoint(index)
	k.births.see(index, e)
	if k.inherited[index] && e.State == endpoints.StatePending {
		return // what the previous process enforces stays in force until the first Apply
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

// Interfaces returns the interfaces at which the policy of a pod with these addresses must be
// enforced, by index. It makes no queries.
func (k *Keeper) Interfaces(pod api.PodID, ips []netip.Addr) []uint32 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.reg.Offer(pod, ips)
}

// Registered returns the addresses with which pods were registered whose interfaces belong to them.
func (k *Keeper) Registered() map[api.PodID][]netip.Addr {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.reg.Addresses()
}

// Identify sets the UIDs by which policy knows pods of the node: all of them, or some; an empty UID
// means unknown. It is called before an Apply that enforces policy of these pods: when it returns,
// interfaces of earlier pods of the same names are blocked.
func (k *Keeper) Identify(uids map[api.PodID]string, all bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.reg.Identify(uids, all)
	k.settle()
}

// Release closes the gate of an interface from which the classifier wants to detach. After an error
// it must not detach. An interface that is gone needs no gate, and neither does one without a pod
// if new ones are not blocked.
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
	k.unscoped[index] = true
	k.see(d)
	return nil
}

// Enforced reports which pods policy knows, and at which interfaces it is enforced, for which pod.
// The gates of these interfaces open.
func (k *Keeper) Enforced(pods map[api.PodID]bool, ends map[uint32]api.PodID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.reg.Acknowledge(pods, maps.Clone(ends))
	for index := range k.inherited {
		k.gates.failed[index] = errMoved // settle examines it
	}
	clear(k.inherited)
	k.acknowledged()
}

// acknowledged is settle without prompting, because an Apply was just made. mu is held.
func (k *Keeper) acknowledged() {
	prompt := k.cfg.OnChange
	k.cfg.OnChange = func() {}
	k.settle()
	k.cfg.OnChange = prompt
}

// Endpoints returns all managed interfaces, by index.
func (k *Keeper) Endpoints() []endpoints.Endpoint {
	k.mu.Lock()
	defer k.mu.Unlock()
	out := k.reg.Endpoints()
	for i, e := range out {
		if err := k.gates.failed[e.Link.Index]; err != nil {
			out[i].Reason = "its gate could not be changed: " + err.Error()
		}
	}
	return out
}

// Problems returns what cannot be read, and why. The state stays as it was, but what cannot be read
// may determine the pod of an interface.
func (k *Keeper) Problems() map[string]string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return maps.Clone(k.problems.why)
}

// wait calls f after every change until it returns true, or the context ends.
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

// errMoved marks a gate for examination.
var errMoved = errors.New("another process changed it")

// rescan is the interval at which everything is read again, in case a notification was missed.
const rescan = 30 * time.Second

// lookEvery is the interval at which the gates that must be closed are read.
const lookEvery = time.Second
