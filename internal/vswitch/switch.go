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
	Log   *slog.Logger     // nil discards
	Clock func() time.Time // for session timeouts; nil means time.Now
	// appended to the name of the vswitch in its version; empty means "dev"
	Version     string
	Timeouts    Timeouts // of sessions; zero fields mean VPP's defaults
	MaxSessions int      // over all interfaces; 0 means 500 000
	MaxClients  int      // of the binary API over all transports; 0 means 256

	// LikeVPP gives the switch a limitation of VPP, and an identity that does not promise
	// otherwise: it ignores ports of SCTP and treats them as 0. So a rule with such a port never
	// matches, and a flow between two addresses is any SCTP between them.
	LikeVPP bool

	// Quirks makes the switch behave like VPP 25.10 where it otherwise follows cleaner semantics:
	// for sessions, fragments, unknown actions, and the initial settings. It includes LikeVPP. See
	// quirks.go.
	Quirks bool

	// Features are the nodes of feature arcs in the order in which packets of a VPP with other
	// plugins would traverse them, for clients that inspect it. "show features" lists them, and
	// "set interface feature" enables those that do not belong to the ACL plugin. They do nothing.
	// nil means only the ACL plugin's own.
	Features map[string][]string
}

// Switch is a userspace vswitch. It is safe for concurrent use. Most methods are those of its
// parts.
type Switch struct {
	*server          // clients of the binary API
	*portTable       // interfaces and routes
	*aclTable        // ACLs and where they are bound
	*forwarder       // packets
	*hoststack.Stack // namespaces and session rules
	sessions         *sessionTable
	macips           *macipTable
	cli              *console

	version string // as clients receive it
	clock   func() time.Time
	started atomic.Pointer[time.Time] // time of the start or the last restart
}

const (
	defaultMaxSessions = 500_000
	defaultMaxClients  = 256
)

// New returns a switch with the interface local0, no routes and no ACLs. It starts no goroutines;
// those of clients end when the clients disconnect or the switch is closed.
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

// start records the start time.
func (s *Switch) start() {
	now := s.clock()
	s.started.Store(&now)
}

// Restart has the effect that a restart of a VPP process has on its clients: it disconnects them
// all and removes ACLs, bindings, sessions and settings made through the API. Interfaces and routes
// stay, because the embedder would create them again. It returns when clients can connect again;
// pending requests of old clients are dropped, too. A client's own callback must not call it.
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
