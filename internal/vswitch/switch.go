package vswitch

import (
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"go.fd.io/govpp/binapi/acl"
	interfaces "go.fd.io/govpp/binapi/interface"
	hostsession "go.fd.io/govpp/binapi/session"
	"go.fd.io/govpp/binapi/vlib"
	"go.fd.io/govpp/binapi/vpe"

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
// goroutines. Most are those of its parts.
type Switch struct {
	*server          // clients of the binary API
	*portTable       // interfaces and routes
	*aclTable        // ACLs and where they are bound
	*forwarder       // packets
	*hoststack.Stack // namespaces and session rules
	sessions         *sessionTable
	macips           *macipTable
	cli              *console

	version string // as clients are told it
	clock   func() time.Time
	started atomic.Pointer[time.Time] // or restarted
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
		server: newServer(o.Log, o.MaxClients), sessions: newSessionTable(o.MaxSessions, o.Timeouts, o.Quirks),
		version: versionText(o.Version, o.LikeVPP), clock: o.Clock,
	}
	s.portTable = newPortTable(s.sessions, s.notifyInterface)
	s.aclTable = newACLTable(s.portTable, s.sessions, o.Quirks)
	s.macips = &macipTable{ports: s.portTable}
	s.forwarder = &forwarder{ports: s.portTable, sessions: s.sessions, clock: o.Clock, likeVPP: o.LikeVPP, quirks: o.Quirks}
	s.Stack = hoststack.New(o.Quirks, s.nameOf)
	s.cli = newConsole(s, &features{arcs: o.Features, ports: s.portTable})
	s.start()
	s.addMessages()
	return s
}

// addMessages fills the message table of the server.
func (s *Switch) addMessages() {
	process, t := processHandlers{s.version, s.cli}, s.messages
	acls := aclHandlers{s.aclTable, s.clock}
	t.addModule(vlib.APIFile, vlib.APIVersion, vlib.VersionCrc, process.vlibMessages()...)
	t.addModule(vpe.APIFile, vpe.APIVersion, vpe.VersionCrc, process.vpeMessages()...)
	t.addModule(interfaces.APIFile, interfaces.APIVersion, interfaces.VersionCrc, interfaceHandlers{s.portTable}.messages()...)
	t.addModule(acl.APIFile, acl.APIVersion, acl.VersionCrc, slices.Concat(acls.messages(), s.macips.messages())...)
	t.addModule(hostsession.APIFile, hostsession.APIVersion, hostsession.VersionCrc, sessionMessages(hoststack.Handlers{Stack: s.Stack})...)
}

// start records that the vswitch runs from now on.
func (s *Switch) start() {
	now := s.clock()
	s.started.Store(&now)
}

// Restart does what the restart of a VPP process does to its clients: it
// disconnects them all and forgets ACLs, bindings, sessions and settings made
// through the API. Interfaces and routes stay, because the embedder would create
// them again. It returns when clients can connect again; what the old ones still
// had under way is forgotten too. A client's own callback must not call it.
func (s *Switch) Restart() {
	s.pause()
	defer s.resume()
	s.start()
	s.Stack.Restart()
	s.portTable.mu.Lock()
	defer s.portTable.mu.Unlock()
	s.resetACLs()
	s.macips.lists = pool.Pool[macip]{}
	s.unbindAll()
	s.sessions.reset()
	s.publish()
}
