package vswitch

import (
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gaissmai/bart"
	"go.fd.io/govpp/binapi/acl"
	interfaces "go.fd.io/govpp/binapi/interface"
	hostsession "go.fd.io/govpp/binapi/session"
	"go.fd.io/govpp/binapi/vlib"
	"go.fd.io/govpp/binapi/vpe"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/vswitch/internal/hoststack"
	"github.com/sluice-net/sluice/internal/vswitch/internal/pool"
)

// Options of a Switch. The zero value is usable.
type Options struct {
	Log         *slog.Logger     // nil discards
	Clock       func() time.Time // for session timeouts; nil is time.Now
	Version     string           // shown after the name of the vswitch in its version; empty is "dev"
	Timeouts    Timeouts         // of sessions; zero fields have VPP's defaults
	MaxSessions int              // over all interfaces; 0 is 500 000
	MaxClients  int              // of the binary API over all doors; 0 is 256

	// LikeVPP gives the switch a limit of VPP, and an identity that does not promise
	// otherwise: ports of SCTP are not looked at, they count as 0. So a rule with such a
	// port never matches, and a flow between two addresses is any SCTP between them.
	LikeVPP bool

	// Quirks has the switch do what VPP 25.10 does where this one is cleaner otherwise:
	// with sessions, fragments, unknown actions, and with the setting that it starts
	// with. It includes LikeVPP. See quirks.go.
	Quirks bool

	// Features are the nodes of feature arcs, in the order in which packets of a VPP
	// with other plugins would meet them, for clients that look at it: "show features"
	// lists them, and "set interface feature" switches those on that are not of the ACL
	// plugin. They do nothing. Nil is the ACL plugin's own.
	Features map[string][]string
}

// Switch is a userspace vswitch. Its methods may be called by any number of
// goroutines.
type Switch struct {
	*server          // Adapter, Serve, Close
	*hoststack.Stack // namespaces and session rules

	version  string
	likeVPP  bool
	quirks   bool
	features map[string][]string // of the whole vswitch, by arc
	clock    func() time.Time
	sessions *sessionTable
	view     atomic.Pointer[view]

	mu         sync.Mutex // guards the rest, and changes of view
	started    time.Time  // or restarted
	acls       pool.Pool[accessList]
	macips     pool.Pool[macip]
	uses       map[uint32]map[use]struct{} // by ACL index: where it is bound
	ports      pool.Pool[port]             // the same as view.ports
	portNames  map[string]uint32           // sw_if_index by name
	portRoutes map[uint32]routeSet         // by sw_if_index
	generation uint64                      // of the last change of a binding
	reclassify bool
	hashLookup bool
}

// view is what packets see. It is immutable.
type view struct {
	ports  []*port // by sw_if_index; nil where there is none
	routes *bart.Table[uint32]
}

// use is a place where an ACL is bound.
type use struct {
	port uint32
	dir  api.Direction
}

const (
	defaultMaxSessions = 500_000
	defaultMaxClients  = 256
)

// New returns a switch that has the interface local0, no routes and no ACLs. It
// starts no goroutines; those of clients end when the clients disconnect or the
// switch is closed.
func New(o Options) *Switch {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.Version == "" {
		o.Version = "dev"
	}
	if o.MaxSessions <= 0 {
		o.MaxSessions = defaultMaxSessions
	}
	if o.MaxClients <= 0 {
		o.MaxClients = defaultMaxClients
	}
	o.LikeVPP = o.LikeVPP || o.Quirks
	if o.Features == nil {
		o.Features = aclFeatures
	}
	s := &Switch{
		server: newServer(o.Log, o.MaxClients), clock: o.Clock, version: o.Version, likeVPP: o.LikeVPP, quirks: o.Quirks, features: o.Features,
		sessions:   newSessionTable(o.MaxSessions, o.Timeouts, o.Quirks),
		uses:       make(map[uint32]map[use]struct{}),
		portNames:  make(map[string]uint32),
		portRoutes: make(map[uint32]routeSet),
		hashLookup: true,
		started:    o.Clock(),
	}
	s.Stack = hoststack.New(o.Quirks, s.portName)
	s.setReclassify(!o.Quirks)
	s.view.Store(&view{routes: new(bart.Table[uint32])})
	s.addPort(&port{name: "local0", kind: "local"})
	s.addMessages()
	return s
}

// addMessages fills the message table of the server.
func (s *Switch) addMessages() {
	process, t := processHandlers{s}, s.messages
	t.addModule(vlib.APIFile, vlib.APIVersion, vlib.VersionCrc, process.vlibMessages()...)
	t.addModule(vpe.APIFile, vpe.APIVersion, vpe.VersionCrc, process.vpeMessages()...)
	t.addModule(interfaces.APIFile, interfaces.APIVersion, interfaces.VersionCrc, interfaceHandlers{s}.messages()...)
	t.addModule(acl.APIFile, acl.APIVersion, acl.VersionCrc, slices.Concat(aclHandlers{s}.messages(), macipHandlers{s}.messages())...)
	t.addModule(hostsession.APIFile, hostsession.APIVersion, hostsession.VersionCrc, sessionMessages(hoststack.Handlers{Stack: s.Stack})...)
}

// Restart does what the restart of a VPP process does to its clients: it
// disconnects them all and forgets ACLs, bindings, sessions and settings made
// through the API. Interfaces and routes stay, because the embedder would create
// them again. It returns when clients can connect again; what the old ones still
// had under way is forgotten too. A client's own callback must not call it.
func (s *Switch) Restart() {
	s.pause()
	defer s.resume()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.started = s.clock()
	s.acls, s.macips = pool.Pool[accessList]{}, pool.Pool[macip]{}
	s.Stack.Restart()
	clear(s.uses)
	s.hashLookup = true
	s.setReclassify(!s.quirks)
	s.generation++
	for i, p := range s.ports.All() {
		n := *p
		n.bindings = [2]binding{{gen: s.generation}, {gen: s.generation}}
		n.etypes, n.sources = [2][]uint16{}, nil
		s.ports.Set(i, &n)
	}
	s.sessions.reset()
	s.publish()
}

// publish makes the configuration visible to packets; the lock is held.
func (s *Switch) publish() {
	v := *s.view.Load()
	v.ports = s.ports.Slots()
	s.view.Store(&v)
}
