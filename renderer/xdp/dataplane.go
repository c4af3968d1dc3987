package xdp

import (
	"io"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer/xdp/compile"
	"github.com/sluice-net/sluice/renderer/xdp/internal/attach"
)

// ErrGone is returned for an interface that is not there any more.
var ErrGone = attach.ErrGone

// StateDigest identifies what a plane enforces: the sum of hashes of everything that was told. The
// zero value is what is not known.
type StateDigest [16]byte

// Dataplane is where verdicts are given: the kernel, or a memory in the heap that is read as the
// kernel reads its own. It is used by one goroutine at a time, but for Permits and Hits.
//
// A plane has a policy map in force, and may have another one that is being prepared. Writes go
// to the one that is prepared, if there is one. All steps may be repeated.
type Dataplane interface {
	marker
	switcher
	writer
	reader
	attacher
	io.Closer
}

// marker remembers what a plane enforces, also when the process ends.
type marker interface {
	// StateDigest returns what SetStateDigest set last, also if that was another process.
	StateDigest() StateDigest
	SetStateDigest(m StateDigest) error
}

// switcher replaces the policy map in force.
type switcher interface {
	// Size is how many lines and counters the policy map has that is written.
	Size() (lines, slots int)
	// Limits is how many of them a policy map may have at most. What needs more lines cannot be
	// enforced; rules beyond the counters are not counted.
	Limits() (lines, slots int)
	// Prepare makes an empty policy map. What was prepared before is dropped.
	Prepare(lines, slots int) error
	// Switch puts the prepared policy map in force for all that is attached, if there is one. Its
	// counters begin at 0; what those of the other one had reached is returned, nil if that
	// is not known.
	Switch() (left []uint64, err error)
	// Grace returns when no packet is on its way that began before. It may be called while
	// other methods run.
	Grace() error
}

// writer writes to a policy map.
type writer interface {
	// Write writes lines that nothing leads to.
	Write(line uint32, content []compile.Line) error
	// Store changes a word in one step.
	Store(word, value uint32) error
	// Flip makes a record that of an endpoint; 0 for none.
	Flip(id, record uint32) error
}

// reader reads the policy map in force.
type reader interface {
	// Permits reports what the policy map says about the first packet of a flow that an
	// endpoint sends or receives.
	Permits(id uint32, dir compile.Direction, f api.Flow) (bool, error)
	// Word returns a word of it, and Record which record an endpoint has there.
	Word(i uint32) uint32
	Record(id uint32) uint32
	// Hits returns the packets that so many slots decided.
	Hits(first, count uint32) ([]uint64, error)
}

// attacher has packets of endpoints decided.
type attacher interface {
	// Name makes an endpoint known by the addresses of its pod, where no interface tells it.
	Name(e compile.Endpoint) error
	// Attach has packets of an endpoint decided. ErrGone says that its interface is not there.
	Attach(e compile.Endpoint) error
	// Detach lets packets of an endpoint pass.
	Detach(id uint32) error
	// Attached returns which endpoints are attached, also by another process, sorted.
	Attached() ([]uint32, error)
}
