package xdp

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/xdp/bpf"
	"github.com/sluice-net/sluice/renderer/xdp/internal/loader"
)

// ErrSharedInterface is returned by Apply when several pods claim an interface. The interface is
// blocked in both directions.
var ErrSharedInterface = errors.New("several pods claim an interface")

// ErrTooLarge is returned by Apply when the policy does not fit into the policy memory. What was
// installed before stays in force. It is a renderer.Refusal.
var ErrTooLarge = loader.ErrTooLarge

// Options of a Renderer.
type Options struct {
	Log       *slog.Logger // nil discards
	Name      string       // of the renderer; empty: xdp
	Dataplane Dataplane    // owned by the caller of New, who closes it

	// Interfaces returns the IDs of the interfaces that connect a pod: for the kernel, the indexes
	// of the node's ends of veth pairs. None means that the pod is not connected yet. Every Apply
	// calls it for every pod, from its own goroutine.
	Interfaces func(pod api.PodID, ips []netip.Addr) []uint32
	// Begin is called at the beginning of each Apply, before Interfaces. Its error ends the
	// Apply, whose changes are kept for the next one. It may be nil.
	Begin func(ctx context.Context) error
	// Enforced is called after a successful Apply, with all pods, and with the interfaces at which
	// their policy is enforced. Release is called before the renderer detaches from an interface;
	// if it returns an error the interface stays attached with its policy, and the Apply fails.
	// Both are called by the goroutine of an Apply, and may be nil.
	Enforced func(pods map[api.PodID]bool, interfaces map[uint32]api.PodID)
	Release  func(id uint32) error

	// Keep lets established connections continue when a change of policy denies them.
	Keep bool
	// Learn is how long after the first attach of a pod mid-stream TCP packets that its lists
	// permit create a tracked connection. In the kernel only interfaces learn that are older than
	// the connection table. Zero: never.
	Learn time.Duration
	// OnChange is called when the renderer needs an Apply without a change of policy. An Apply of
	// an empty transaction is enough. Any goroutine may call it.
	OnChange func()

	// MaxLines limits the policy map, in lines of 64 bytes. Zero: DefaultMaxLines, which is the
	// maximum.
	MaxLines int

	// PolicyMemory limits the memory of all rules and the addresses that they name, in bytes: half of
	// it for each. Pods whose lists it has no room for are blocked in the direction of these, the
	// dearest lists of the namespaces that want more than an even part first. Zero: MaxLines.
	// Besides, no namespace takes more than an Apply can write in time, see Limits of package compile.
	PolicyMemory uint64

	Infra renderer.Infra // exempt traffic
}

// DefaultMaxLines is 512 MiB: the largest map value that a program may read.
const DefaultMaxLines = loader.MaxBytes / bpf.LineBytes
