package classify

import (
	"net/netip"
	"testing"
)

// IPv6 addresses are found by a hash; two with one hash must not be mixed up.
func TestHostTableComparesWholeAddresses(t *testing.T) {
	seen := make(map[uint32]netip.Addr)
	for n := range uint32(1 << 22) {
		a := netip.AddrFrom16([16]byte{0: 0x20, 12: byte(n >> 24), 13: byte(n >> 16), 14: byte(n >> 8), 15: byte(n)})
		key, hash := hostKey(a)
		b, ok := seen[key]
		seen[key] = a
		if _, other := hostKey(b); !ok || other>>63 != hash>>63 {
			continue
		}
		h := newHostTable(1)
		h.insert(b, 7)
		if h.get(b) != 7 || h.get(a) != -1 {
			t.Errorf("%s has node %d, %s has node %d", b, h.get(b), a, h.get(a))
		}
		return
	}
	t.Fatal("no two addresses with equal hashes were found")
}
