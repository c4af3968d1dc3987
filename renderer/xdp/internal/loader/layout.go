package loader

import (
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/features"
)

// Layout has offsets, in bytes, in the kernel's structs for packets and connections. They come from
// the kernel's type information (BTF), because they depend on its build. Zero means unknown.
type Layout struct {
	tag, length, by uint32 // in struct sk_buff: the tag, the length, and the ingress interface
	Connection      uint32 // in struct sk_buff: the connection; zero while the kernel tracks none
	source          uint32 // in struct nf_conn: the source of the original direction
	step            uint32 // from there to the source of the reply direction
	status          uint32 // in struct nf_conn: whether both ends have used the connection

	// In struct sk_buff: which checksum is still to be completed, and the position in its byte; and
	// what says where that checksum is.
	summed, summedShift, checksum, head, data uint32
}

// Tracker tracks the layout of this kernel, which can grow: the connection-tracking module may be
// loaded later. It is safe for concurrent use.
type Tracker struct {
	mu    sync.Mutex
	known Layout
	look  func() Layout
}

// NewTracker returns a tracker that reads the layout by a function: LayoutOf, except in tests.
func NewTracker(look func() Layout) *Tracker { return &Tracker{look: look, known: look()} }

// Now returns the known layout.
func (t *Tracker) Now() Layout {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.known
}

// Again reads the layout again if the kernel tracked no connections so far, and returns it.
func (t *Tracker) Again() Layout {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.known.Connection == 0 {
		t.known = t.look()
	}
	return t.known
}

// LayoutOf reads the layout of this kernel.
func LayoutOf() (l Layout) {
	kernel, err := btf.LoadKernelSpec()
	if err != nil {
		return Layout{}
	}
	for member, to := range map[string]*uint32{"tc_index": &l.tag, "len": &l.length, "skb_iif": &l.by, "csum": &l.checksum, "head": &l.head, "data": &l.data} {
		*to, _ = offset(kernel, "sk_buff", member)
	}
	if bits, ok := bitOffset(kernel, "sk_buff", "ip_summed"); ok && l.checksum != 0 && l.head != 0 && l.data != 0 {
		l.summed, l.summedShift = bits/8, bits%8
	}
	conns := kernel
	if !hasFunction(kernel, "nf_conn") {
		if conns, err = btf.LoadKernelModuleSpec("nf_conntrack"); err != nil {
			return l
		}
	}
	packet, ok1 := offset(kernel, "sk_buff", "_nfct")
	hashes, ok2 := offset(conns, "nf_conn", "tuplehash")
	tuple, ok3 := offset(conns, "nf_conntrack_tuple_hash", "tuple")
	var hash *btf.Struct
	if ok1 && ok2 && ok3 && conns.TypeByName("nf_conntrack_tuple_hash", &hash) == nil {
		l.status, _ = offset(conns, "nf_conn", "status")
		l.Connection, l.source, l.step = packet, hashes+tuple, hash.Size // a tuple starts with its source, and a source with its address
	}
	return l
}

// hasStack reports whether the kernel has programs for netfilter hooks (Linux 6.4).
var hasStack = sync.OnceValue(func() bool { return features.HaveProgramType(ebpf.Netfilter) == nil })

func hasFunction(spec *btf.Spec, name string) bool {
	var s *btf.Struct
	return spec.TypeByName(name, &s) == nil
}

// offset returns the offset of a member of a kernel struct. Members of anonymous structs and unions
// count as its own.
func offset(spec *btf.Spec, name, member string) (uint32, bool) {
	bits, ok := bitOffset(spec, name, member)
	return bits / 8, ok
}

// bitOffset does what offset does, in bits.
func bitOffset(spec *btf.Spec, name, member string) (uint32, bool) {
	var s *btf.Struct
	if spec.TypeByName(name, &s) != nil {
		return 0, false
	}
	return memberOf(s.Members, member)
}

func memberOf(members []btf.Member, name string) (uint32, bool) {
	for _, m := range members {
		if m.Name == name {
			return uint32(m.Offset), true
		}
		var inner []btf.Member
		switch t := m.Type.(type) {
		case *btf.Struct:
			inner = t.Members
		case *btf.Union:
			inner = t.Members
		}
		if m.Name != "" || inner == nil {
			continue
		}
		if at, ok := memberOf(inner, name); ok {
			return uint32(m.Offset) + at, true
		}
	}
	return 0, false
}
