package loader

import (
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/features"
)

// Layout says where the kernel has what it knows of a packet and of its connection, in bytes. It
// says so itself, in its type information (BTF): the layout is of the build. Zero is what is not
// known.
type Layout struct {
	tag, length, by uint32 // in a packet, struct sk_buff: the tag, its length, and the interface that it came by
	Connection      uint32 // there: its connection; unknown while the kernel tracks none
	source          uint32 // in a connection, struct nf_conn: the source of its first direction
	step            uint32 // from there to the source of the other
}

// Tracker knows the layout of this kernel. What tracks connections may be a module that is loaded
// later. Its methods may be called by any goroutine.
type Tracker struct {
	mu    sync.Mutex
	known Layout
	look  func() Layout
}

// NewTracker returns a tracker that looks by a function: LayoutOf, but in tests.
func NewTracker(look func() Layout) *Tracker { return &Tracker{look: look, known: look()} }

// Now returns what is known.
func (t *Tracker) Now() Layout {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.known
}

// Again looks again while the kernel tracks no connections, and returns what is known then.
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
	for member, to := range map[string]*uint32{"tc_index": &l.tag, "len": &l.length, "skb_iif": &l.by} {
		*to, _ = offset(kernel, "sk_buff", member)
	}
	conns := kernel
	if !has(kernel, "nf_conn") {
		if conns, err = btf.LoadKernelModuleSpec("nf_conntrack"); err != nil {
			return l
		}
	}
	packet, ok1 := offset(kernel, "sk_buff", "_nfct")
	hashes, ok2 := offset(conns, "nf_conn", "tuplehash")
	tuple, ok3 := offset(conns, "nf_conntrack_tuple_hash", "tuple")
	var hash *btf.Struct
	if ok1 && ok2 && ok3 && conns.TypeByName("nf_conntrack_tuple_hash", &hash) == nil {
		l.Connection, l.source, l.step = packet, hashes+tuple, hash.Size // a tuple begins with its source, and that with the address
	}
	return l
}

// hasStack reports whether programs can judge in the stack of the node (Linux 6.4).
var hasStack = sync.OnceValue(func() bool { return features.HaveProgramType(ebpf.Netfilter) == nil })

func has(spec *btf.Spec, name string) bool {
	var s *btf.Struct
	return spec.TypeByName(name, &s) == nil
}

// offset returns where a struct of the kernel has a member. Those of unions in it count as its own.
func offset(spec *btf.Spec, name, member string) (uint32, bool) {
	var s *btf.Struct
	if spec.TypeByName(name, &s) != nil {
		return 0, false
	}
	return memberOf(s.Members, member)
}

func memberOf(members []btf.Member, name string) (uint32, bool) {
	for _, m := range members {
		if m.Name == name {
			return m.Offset.Bytes(), true
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
			return m.Offset.Bytes() + at, true
		}
	}
	return 0, false
}
