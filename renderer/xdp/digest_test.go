package xdp

import (
	"crypto/sha256"
	"fmt"
	"math/bits"
	"net/netip"
	"testing"

	"github.com/sluice-net/sluice/api"
)

// cancelling returns indexes of digests whose exclusive or is zero, by Gaussian elimination: there
// are some among more digests than they have bits.
func cancelling(digests []StateDigest) []int {
	type row struct {
		digest StateDigest
		of     map[int]bool
	}
	var basis [8 * len(StateDigest{})]*row
	for i, d := range digests {
		r := &row{d, map[int]bool{i: true}}
		for {
			at := highest(r.digest)
			if at < 0 {
				var out []int
				for i, in := range r.of {
					if in {
						out = append(out, i)
					}
				}
				return out
			}
			if basis[at] == nil {
				basis[at] = r
				break
			}
			r.digest.toggle(basis[at].digest)
			for i, in := range basis[at].of {
				r.of[i] = r.of[i] != in
			}
		}
	}
	return nil
}

// highest returns the number of the first bit that is set, -1 if none is.
func highest(d StateDigest) int {
	for i, b := range d {
		if b != 0 {
			return 8*i + bits.LeadingZeros8(b)
		}
	}
	return -1
}

// TestStateDigestCannotBeCancelledOut: a tenant that chooses which of its pods are in a set, and
// knows their addresses, finds memberships that cancel out in a sum of hashes without a key.
func TestStateDigestCannotBeCancelledOut(t *testing.T) {
	var members []netip.Prefix
	var open []StateDigest
	for i := range 8*len(StateDigest{}) + 1 {
		p := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 32)
		sum := sha256.Sum256(fmt.Append(nil, "a set", p))
		members, open = append(members, p), append(open, StateDigest(sum[:len(StateDigest{})]))
	}
	chosen := cancelling(open)
	var public, keyed StateDigest
	digest := newDigester(0x0123456789abcdef).members(7)
	for _, i := range chosen {
		public.toggle(open[i])
		keyed.toggle(digest(members[i]))
	}
	if len(chosen) == 0 || public != (StateDigest{}) {
		t.Fatalf("%d members cancel out to %x: the attack is none", len(chosen), public)
	}
	if keyed == (StateDigest{}) {
		t.Error("members that cancel out without a key cancel out with it")
	}
}

func TestStateDigestDistinguishesParts(t *testing.T) {
	d, seen := newDigester(1), map[StateDigest]string{}
	add := func(what string, m StateDigest) {
		if other, twice := seen[m]; twice {
			t.Errorf("%s and %s have the digest %x", what, other, m)
		}
		seen[m] = what
	}
	for _, id := range []api.SetID{1, 2, 1 << 63} {
		digest := d.members(id)
		for _, p := range []string{"10.0.0.1/32", "10.0.0.0/24", "10.0.0.0/25", "::ffff:10.0.0.1/128", "2001:db8::/32", "0.0.0.0/0", "::/0"} {
			add(fmt.Sprint(id, " ", p), digest(netip.MustParsePrefix(p)))
		}
	}
	add("text", d.text([]byte("text")))
	add("no text", d.text(nil))
	add("text of another dataplane", newDigester(2).text([]byte("text")))
	if again := newDigester(1).text([]byte("text")); again != d.text([]byte("text")) {
		t.Error("a digest is another one after a restart")
	}
}

func BenchmarkStateDigestMember(b *testing.B) {
	digest, p := newDigester(1).members(7), netip.MustParsePrefix("10.0.0.1/32")
	var m StateDigest
	b.ReportAllocs()
	for b.Loop() {
		m.toggle(digest(p))
	}
}
