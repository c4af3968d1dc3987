package policymap

import (
	"cmp"
	"errors"
	"fmt"
	"hash/crc32"
	"net/netip"
	"sync"
	"unsafe"

	"github.com/cilium/ebpf"

	"github.com/sluice-net/sluice/renderer/xdp/bpf"
	"github.com/sluice-net/sluice/renderer/xdp/compile"
	"github.com/sluice-net/sluice/renderer/xdp/internal/loader"
)

// policyMap is one policy map: the maps and programs of one load.
type policyMap struct {
	size      loader.Size // with as many lines as bytes has
	coll      *ebpf.Collection
	bytes     []byte // the lines, mapped
	counters  []byte // of all processors, mapped
	endpoints endpoints
	addresses addresses

	asking sync.Mutex               // held while programs are loaded on demand
	asked  map[string]*ebpf.Program // programs that were loaded on demand
}

// newMap loads programs for a policy map. It uses the given maps and creates the others.
func newMap(l *loader.Loader, size loader.Size, programs []string, given map[string]*ebpf.Map) (*policyMap, error) {
	coll, err := l.Load(size, programs, given)
	if err != nil {
		return nil, err
	}
	m := &policyMap{
		size: size, coll: coll, asked: map[string]*ebpf.Program{},
		endpoints: endpoints{overflow: coll.Maps[bpf.SluiceMapEpover], owners: map[uint32]uint32{}, records: map[uint32]uint32{}, overflowed: map[uint32]struct{}{}},
		addresses: addresses{coll.Maps[bpf.SluiceMapAddrs], map[netip.Addr]uint32{}},
	}
	for name, b := range map[string]*[]byte{bpf.SluiceMapPolicy: &m.bytes, bpf.SluiceMapEndpoints: &m.endpoints.table, bpf.SluiceMapCounters: &m.counters} {
		if *b, err = bpf.Map(coll.Maps[name]); err != nil {
			return nil, errors.Join(err, m.close())
		}
	}
	m.size.Lines = len(m.bytes) / bpf.LineBytes
	return m, nil
}

// read reads what an earlier process wrote to the maps.
func (m *policyMap) read() error {
	idOf := func(record uint32) uint32 { return *m.word(record*compile.LineWords + compile.RecordID) }
	return errors.Join(m.endpoints.read(uint64(m.size.Lines), idOf), m.addresses.read())
}

func (m *policyMap) close() error {
	if m == nil {
		return nil
	}
	errs := []error{bpf.Unmap(&m.bytes), bpf.Unmap(&m.endpoints.table), bpf.Unmap(&m.counters)}
	for _, p := range m.asked {
		errs = append(errs, p.Close())
	}
	m.coll.Close()
	return errors.Join(errs...)
}

// holds reports whether a policy map is large enough.
func (m *policyMap) holds(lines, slots int) bool {
	return m.size.Lines >= lines && m.size.Slots >= slots
}

// clear empties a policy map that no packet uses.
func (m *policyMap) clear() error {
	clear(m.bytes)
	if err := errors.Join(m.endpoints.clear(), m.addresses.clear()); err != nil {
		return err
	}
	clear(m.counters)
	return nil
}

// word returns a word of a line, which programs may read at any time.
func (m *policyMap) word(i uint32) *uint32 {
	return (*uint32)(unsafe.Pointer(&m.bytes[4*uint64(i)]))
}

// write writes lines that packets cannot reach.
func (m *policyMap) write(line uint32, content []compile.Line) error {
	if len(content) == 0 {
		return nil
	}
	from := unsafe.Slice((*byte)(unsafe.Pointer(&content[0])), len(content)*bpf.LineBytes)
	to := m.bytes[uint64(line)*bpf.LineBytes:]
	if len(to) < len(from) {
		return fmt.Errorf("the policy map has no line %d", int(line)+len(content))
	}
	copy(to, from)
	return nil
}

// counted returns the packet counters of count slots, beginning at first.
func (m *policyMap) counted(first, count uint32) []uint64 {
	out := make([]uint64, count)
	for i := range out {
		out[i] = bpf.Sum(m.counters, int(first)+i, loader.Stride(m.size.Slots))
	}
	return out
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// sum returns a checksum of the lines and of the endpoint table.
func (m *policyMap) sum() uint32 {
	return crc32.Update(crc32.Checksum(m.bytes, castagnoli), castagnoli, m.endpoints.table)
}

// maps returns the maps by name.
func (m *policyMap) maps() map[string]*ebpf.Map {
	out := map[string]*ebpf.Map{}
	for _, name := range loader.MapNames {
		out[name] = m.coll.Maps[name]
	}
	return out
}

// program returns a program, and loads it on first use. It is safe for concurrent use.
func (m *policyMap) program(l *loader.Loader, name string) (*ebpf.Program, error) {
	m.asking.Lock()
	defer m.asking.Unlock()
	if p := cmp.Or(m.coll.Programs[name], m.asked[name]); p != nil {
		return p, nil
	}
	p, err := l.Program(name, m.size, m.maps())
	if err == nil {
		m.asked[name] = p
	}
	return p, err
}
