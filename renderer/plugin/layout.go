package plugin

import (
	"unsafe"

	"github.com/sluice-net/sluice/renderer/xdp/bpf"
)

// Numbers of image.h; a test compares.
const (
	magic       = 0x31656369756c73
	version     = 4
	mostThreads = 63
	pageBytes   = 4096
	nameBytes   = 128
	ringRecords = 2048
)

// policyHeader begins the policy file. It is struct policy_header of image.h.
type policyHeader struct {
	Magic               uint64
	Version, HeaderSize uint32
	At                  offsets
	Sizes               fileSizes
	Settings            settings
	_                   [4]uint64
	Changes             bpf.SluiceHistory
	Limits              bpf.SluiceQuota
	EventFilter         bpf.SluiceEventFilter

	Owned owned
}

// offsets are where the parts of both files begin. Those of a policy map are there twice.
type offsets struct {
	Lines, Endpoints                       [2]uint64 // in the policy file
	Flows, Recent, Activity, Shares, Drops uint64    // in the state file
	Counters                               [2]uint64
	Events                                 uint64
	Names                                  [2]uint64 // in the policy file
	Verdicts                               uint64    // of IPv6 connections, in the state file
}

// fileSizes are the sizes of both files in bytes, and of their parts.
type fileSizes struct {
	Policy, State         uint64
	Lines, Slots, Buckets uint32
	_                     uint32
}

// settings may change at any time. Serial is incremented after a change of the others.
type settings struct {
	Serial          uint32
	InForce         uint32 // which of the policy maps
	Conf            uint32
	RecentThreshold uint32
	TunnelPorts     [8]uint32
	Rules           [2]uint32 // of both policy maps: how many counters are in use
}

// owned is what only agents read: programs do not know of it.
type owned struct {
	Digest  [16]byte
	Version [16]byte
}

// stateHeader begins the state file. It is struct state_header of image.h.
type stateHeader struct {
	Magic            uint64
	Version, Threads uint32
	_                [6]uint64
	Epochs           [mostThreads]epoch
}

// epoch is that of one thread, in a cache line of its own.
type epoch struct {
	Frames uint64
	_      [7]uint64
}

// ring is that of the events of one thread. It is struct ring of program.h.
type ring struct {
	Written uint64
	_       [7]uint64
	Taken   uint64
	_       [7]uint64
	Records [ringRecords]bpf.SluiceEvent
}

// layoutOf returns the header of files with parts of the given sizes.
func layoutOf(lines, slots, flows int) (h policyHeader) {
	h.Magic, h.Version, h.HeaderSize = magic, version, uint32(unsafe.Offsetof(h.Owned))
	h.Sizes.Lines, h.Sizes.Slots, h.Sizes.Buckets = uint32(lines), uint32(slots), uint32(max(flows/bpf.BucketFlows, 1))
	at := uint64(pageBytes)
	part := func(bytes int) uint64 {
		begin := at
		at += uint64(bytes+pageBytes-1) / pageBytes * pageBytes
		return begin
	}
	for i := range h.At.Lines {
		h.At.Endpoints[i] = part(bpf.EndpointsBytes)
		h.At.Lines[i] = part(lines * bpf.LineBytes)
		h.At.Names[i] = part(slots * nameBytes)
	}
	h.Sizes.Policy, at = at, pageBytes
	h.At.Flows = part(int(h.Sizes.Buckets) * bpf.BucketBytes)
	h.At.Verdicts = part(int(h.Sizes.Buckets) * bpf.BucketFlows * 8)
	h.At.Recent = part(bpf.RecentBytes)
	h.At.Activity = part(pageBytes)
	h.At.Shares = part(bpf.ShareBytes)
	h.At.Drops = part(mostThreads * bpf.DropBytes)
	for i := range h.At.Counters {
		h.At.Counters[i] = part(mostThreads * slots * bpf.CounterBytes)
	}
	h.At.Events = part(mostThreads * int(unsafe.Sizeof(ring{})))
	h.Sizes.State = at
	return h
}
