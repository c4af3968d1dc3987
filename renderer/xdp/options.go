package xdp

import (
	"errors"
	"log/slog"
	"net/netip"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/xdp/bpf"
	"github.com/sluice-net/sluice/renderer/xdp/internal/loader"
)

// ErrSharedInterface is returned by Commit when an interface is said to be that of several
// pods. It is closed for both directions.
var ErrSharedInterface = errors.New("an interface is claimed twice")

// ErrTooLarge is returned by Commit when what is told does not fit into the memory that may
// be used. What was installed before stays as it is. It is a renderer.Refusal.
var ErrTooLarge = loader.ErrTooLarge

// Options of a Renderer.
type Options struct {
	Log       *slog.Logger // nil discards
	Dataplane Dataplane    // owned by the renderer's user, who closes it

	// Interfaces returns the numbers of the interfaces that connect a pod, as the plane
	// knows them: for the kernel, indexes of the node's ends of veth pairs. None: the pod is
	// not attached yet. It is asked about every pod by every Commit, by its goroutine.
	Interfaces func(pod api.PodID, ips []netip.Addr) []uint32
	// Enforced is called when a Commit worked: with the pods that there are, and the interfaces at
	// which they are enforced. Release is called before an interface is detached from; an error
	// keeps it attached, with what is enforced there, and fails the Commit. Both are called by the
	// goroutine of a Commit; nil is none.
	Enforced func(pods map[api.PodID]bool, ends map[uint32]api.PodID)
	Release  func(id uint32) error

	// Keep lets flows that are established go on when a change of policy denies them.
	Keep bool
	// Learn is for how long after a pod's first attachment the middle of a TCP flow is taken
	// for evidence of a flow that the pod's lists permit. Zero: never.
	Learn time.Duration
	// OnChange is called when something must be looked at that nobody told the renderer; a
	// Commit, even of an empty transaction, does that. It may be called by any goroutine.
	OnChange func()

	// MaxLines limits the memory, in lines of 64 bytes. Zero: DefaultMaxLines, which is the most.
	MaxLines int

	// PolicyMemory limits what rules and the addresses that they name may take, in bytes, and what
	// those of one namespace may take to a quarter of that. Pods whose rules are beyond it are
	// blocked for them, those of the namespace that takes the most first. Zero: no limit but
	// MaxLines.
	PolicyMemory uint64

	Infra renderer.Infra // what passes whatever policy says
}

// DefaultMaxLines is 512 MiB: as much as a program may read of one value.
const DefaultMaxLines = loader.MaxBytes / bpf.LineBytes
