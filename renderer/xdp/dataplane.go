package xdp

import (
	"io"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer/xdp/compile"
	"github.com/sluice-net/sluice/renderer/xdp/internal/attach"
)

// ErrGone is returned for an interface that does not exist any more.
var ErrGone = attach.ErrGone

// Dataplane judges packets: in the kernel, or in the heap by the same algorithm. One goroutine at a
// time may use it; any goroutine may call Permits and Hits.
//
// A dataplane has a policy map in force, and may have a prepared one. Writes go to the prepared one
// if there is one. All steps are idempotent.
type Dataplane interface {
	digestStore
	switcher
	writer
	reader
	attacher
	io.Closer
}

// digestStore stores the digest of what a dataplane enforces. It outlives the process if pins do.
type digestStore interface {
	// StateDigest returns the digest that SetStateDigest set last, in this or an earlier process.
	StateDigest() StateDigest
	SetStateDigest(m StateDigest) error
	// Secret returns the key of state digests. It is random, and stays as long as what is enforced.
	Secret() uint64
}

// switcher replaces the policy map in force.
type switcher interface {
	// Size returns how many lines and counters the policy map has that writes go to.
	Size() (lines, slots int)
	// Limits returns how many lines and counters a policy map may have. Policy that needs more
	// lines cannot be enforced; rules beyond the counters are enforced, but not counted.
	Limits() (lines, slots int)
	// Prepare creates an empty policy map. It discards one that was prepared before.
	Prepare(lines, slots int) error
	// Switch puts the prepared policy map, if any, in force at all attachments. The new counters
	// start at 0. Switch returns the last counters of the old policy map, nil if they are not
	// known.
	Switch() (left []uint64, err error)
	// Grace returns when all packets have been judged that were in flight when it was called. It
	// may run concurrently with other methods.
	Grace() error
}

// writer writes to a policy map.
type writer interface {
	// Write writes lines that packets cannot reach.
	Write(line uint32, content []compile.Line) error
	// Store changes a word atomically.
	Store(word, value uint32) error
	// Flip sets the record of an endpoint; 0 removes it.
	Flip(id, record uint32) error
}

// reader reads the policy map in force.
type reader interface {
	// Permits reports whether the policy map permits the first packet of a flow that an endpoint
	// sends or receives.
	Permits(id uint32, dir compile.Direction, f api.Flow) (bool, error)
	// Word returns a word of the policy map, and Record the record of an endpoint.
	Word(i uint32) uint32
	Record(id uint32) uint32
	// Hits returns the packet counters of count slots, beginning at first.
	Hits(first, count uint32) ([]uint64, error)
}

// attacher attaches the program to endpoints.
type attacher interface {
	// Name registers the addresses of an endpoint's pod, for places where the interface does not
	// identify the endpoint.
	Name(e compile.Endpoint) error
	// Attach makes the program judge the packets of an endpoint. It returns ErrGone if the
	// interface does not exist.
	Attach(e compile.Endpoint) error
	// Detach ends that: the packets of the endpoint pass.
	Detach(id uint32) error
	// Attached returns the attached endpoints, also those of an earlier process, sorted.
	Attached() ([]uint32, error)
}
