package xdp

import (
	"sync"

	"github.com/cilium/ebpf/btf"
)

// tracking says where the kernel has what it knows of the connection of a packet, in bytes. It says so
// itself, in its type information (BTF): the layout is of the build.
type tracking struct {
	ofPacket uint32 // in a packet, struct sk_buff: the connection
	source   uint32 // in a connection, struct nf_conn: the source of its first direction
	step     uint32 // from there to the source of the other
}

// trackingOf is how this kernel tracks connections. It is zero where it does not track connections, or
// has no type information: then nobody but the node itself may use its addresses.
var trackingOf = sync.OnceValue(func() tracking {
	kernel, err := btf.LoadKernelSpec()
	if err != nil {
		return tracking{}
	}
	conns := kernel
	if !has(kernel, "nf_conn") {
		if conns, err = btf.LoadKernelModuleSpec("nf_conntrack"); err != nil {
			return tracking{}
		}
	}
	packet, ok1 := offset(kernel, "sk_buff", "_nfct")
	hashes, ok2 := offset(conns, "nf_conn", "tuplehash")
	tuple, ok3 := offset(conns, "nf_conntrack_tuple_hash", "tuple")
	var hash *btf.Struct
	if !ok1 || !ok2 || !ok3 || conns.TypeByName("nf_conntrack_tuple_hash", &hash) != nil {
		return tracking{}
	}
	return tracking{packet, hashes + tuple, hash.Size} // a tuple begins with its source, and that with the address
})

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
