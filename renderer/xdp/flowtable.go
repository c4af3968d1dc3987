package xdp

import (
	"crypto/rand"
	"errors"
	"fmt"
	"math/bits"
	"runtime"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/renderer/xdp/bpf"
)

// DefaultFlows is how many places the table of flows has: 8 MiB. Of 65 536 flows at once about 4 are
// forgotten for others, of 131 072 one of 300: those that were not answered first.
const DefaultFlows = 1 << 18

// DefaultCrowd is as many flows as a cache of a processor's own has all of: about 1 MiB of the table.
const DefaultCrowd = 1 << 13

// MaxFlows is as many places as the hash of the program can tell: 256 MiB.
const MaxFlows = 1 << 23

// bucketFlows is how many places a bucket has.
const bucketFlows = 4

const stateUsed = 1 << 46 // bit of the state of a place that has a flow

// flowBuckets is how many buckets have so many places, as a power of two.
func flowBuckets(flows int) int {
	return 1 << bits.Len32(uint32(max(flows, 2*bucketFlows)-1)/bucketFlows)
}

// configureFlows tells the program of a table of flows.
func configureFlows(spec *ebpf.CollectionSpec, seed uint64) error {
	reorders := uint32(1)
	if runtime.GOARCH == "amd64" { // loads are in order, as are stores
		reorders = 0
	}
	return errors.Join(spec.Variables[bpf.SluiceVarFlowSeed].Set(seed), spec.Variables[bpf.SluiceVarReorders].Set(reorders))
}

// history counts the changes of what any list says, in memory that packets read, and has the seed of
// the table of flows, and the turn of the memory in force. It lives as long as the table.
type history struct{ bytes []byte }

func newHistory(m *ebpf.Map) (history, error) {
	b, err := mapped(m)
	if err != nil {
		return history{}, fmt.Errorf("map memory: %w", err)
	}
	h := history{b}
	if h.seed() == 0 {
		var random [8]byte
		if _, err := rand.Read(random[:]); err != nil {
			return history{}, fmt.Errorf("seed of flows: %w", err)
		}
		copy(b, random[:])
		b[0] |= 1
	}
	h.changed() // what packets noted may be older than this process
	return h, nil
}

func (h history) seed() uint64 { return *(*uint64)(unsafe.Pointer(&h.bytes[0])) }

// changed has packets ask lists again, each flow once. It is called behind every change.
func (h history) changed() { atomic.AddUint32((*uint32)(unsafe.Pointer(&h.bytes[8])), 1) }

// turn is that of the memory in force, also if another process put it there: memories that follow each
// other have 0 and 1 in turn.
func (h history) turn() uint32 { return *(*uint32)(unsafe.Pointer(&h.bytes[12])) & 1 }

func (h history) setTurn(turn uint32) { *(*uint32)(unsafe.Pointer(&h.bytes[12])) = turn }

func (h history) close() error {
	if h.bytes == nil {
		return nil
	}
	return unix.Munmap(h.bytes)
}

// eachBucket goes through the buckets of a table of flows, in memory that packets read and write.
func eachBucket(table *ebpf.Map, do func(b *bpf.SluiceBucket)) error {
	b, err := mapped(table)
	if err != nil {
		return fmt.Errorf("map memory: %w", err)
	}
	for at := 0; at < int(table.ValueSize()); at += bpf.BucketBytes { // what is mapped ends with a page
		do((*bpf.SluiceBucket)(unsafe.Pointer(&b[at])))
	}
	return unix.Munmap(b)
}
