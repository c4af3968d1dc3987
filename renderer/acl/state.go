package acl

import (
	"sync"
	"sync/atomic"

	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/acl/internal/counters"
	"github.com/sluice-net/sluice/renderer/acl/internal/memory"
	"github.com/sluice-net/sluice/renderer/acl/internal/mirror"
	"github.com/sluice-net/sluice/renderer/cache"
	"github.com/sluice-net/sluice/renderer/vpp"
)

// Renderer installs policy as VPP ACLs. It implements renderer.Renderer and the optional interfaces
// of package renderer; the reading ones do not wait for an Apply.
type Renderer struct {
	reader
	options Options
	cache   *cache.Pair

	mu           sync.Mutex // held during an Apply, including its calls of the vswitch
	vswitchState            // as it was read and changed
	interfaces   interfaces
	flows        openFlows
	acls         *acls
	bounds       bounds
	audits       audits
	unenforced   cache.UnenforcedTracker
	memory       memory.Memory
	quarantined  quarantined
}

// vswitchState is what is known of the vswitch.
type vswitchState struct {
	epoch   int            // of the link, when the mirror was read
	mirror  *mirror.Mirror // nil when it must be read
	version string
	order   mirror.Features // of all nodes of the vswitch; nil when they must be read
}

// reader answers queries about the last Apply without waiting for a running one.
type reader struct {
	link              *mirror.Link
	accumulator       *counters.Accumulator
	published         atomic.Pointer[snapshot]
	asks              atomic.Uint64
	interfacesChanged atomic.Bool // the interfaces have changed
}

// snapshot is the immutable outcome of the last Apply that readers see.
type snapshot struct {
	version    string
	err        error
	pending    []renderer.Pending
	blocked    []string
	memory     renderer.Memory
	tables     []counters.Table
	guards     []counters.Table
	constants  map[uint32]string // names of the ACLs that do not belong to a table
	unenforced []renderer.Unenforced
	drifts     map[string]uint64
	foreign    []renderer.Foreign
	sessions   *renderer.Sessions
	capacity   []renderer.Capacity
	attached
}

// attached is what pod interfaces have.
type attached struct {
	bound    map[string]vpp.Bound // by name
	made     []vpp.Made           // interfaces that sluice-cni made
	answered uint64               // ticket of the last Ask before the interfaces were read
}

// audits compare the content of the vswitch with what was installed.
type audits struct {
	timer    timer
	contents mirror.ContentAudit
	drifts   map[string]uint64  // foreign changes that were found, by kind; replaced, never modified
	foreign  []renderer.Foreign // ACLs of other owners on interfaces that have ours; likewise
}

// quarantined is what was blocked before the first Apply.
type quarantined struct {
	committed bool              // an Apply has started
	spared    map[uint32]string // interfaces by index that Quarantine leaves alone; nil when it has found no rules
}
