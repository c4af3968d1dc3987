package observed

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	"github.com/sluice-net/sluice/internal/lib/term"
)

func written(x *Suggestion) string {
	var b strings.Builder
	x.Write(term.NewWriter(&b))
	return b.String()
}

// TestScalarIsReadAsItWasWritten: whatever a label is, YAML has it as it was, on one line.
func TestScalarIsReadAsItWasWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"yes", "null", "~", "1e3", "0x1", "a: b", "# a", "web", "a.b/c-1", "-", ""})).Draw(t, "text")
		line, got := "a: "+string(scalar(text)), map[string]string{}
		if err := yaml.UnmarshalStrict([]byte(line), &got); err != nil || got["a"] != text || strings.ContainsAny(line, "\n\r\x1b\u202e") {
			t.Fatalf("%q is written %q and read %q: %v", text, line, got["a"], err)
		}
	})
}

// TestBlocksOfHoldWhatWasObserved: every address is in one block, which has no pod and no others as
// long as blocks are few.
func TestBlocksOfHoldWhatWasObserved(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		addr := rapid.Custom(func(t *rapid.T) netip.Addr {
			if rapid.Bool().Draw(t, "v6") {
				return netip.AddrFrom16([16]byte{0: 0x20, 1: 1, 7: rapid.Byte().Draw(t, "net"), 15: rapid.Byte().Draw(t, "host")})
			}
			return netip.AddrFrom4([4]byte{198, 51, rapid.Byte().Draw(t, "net"), rapid.Byte().Draw(t, "host")})
		})
		addrs := rapid.SliceOfN(addr, 1, 80).Draw(t, "addresses")
		inside := slices.DeleteFunc(rapid.SliceOfN(addr, 0, 3).Draw(t, "pods"), func(a netip.Addr) bool { return slices.Contains(addrs, a) })
		inside = sortedAddrs(inside)
		blocks := blocksOf(addrs, inside)
		for _, a := range addrs {
			n := 0
			for _, b := range blocks {
				if b.Contains(a) {
					n++
				}
			}
			if n != 1 {
				t.Fatalf("%s is in %d of %v", a, n, blocks)
			}
		}
		held := 0
		for _, b := range blocks {
			held += len(b.addrs)
			if b.Masked() != b.Prefix || slices.ContainsFunc(inside, b.Contains) {
				t.Fatalf("%s has a pod, or is none: %v", b, inside)
			}
			if len(sortedAddrs(addrs)) <= maxBlocks && b.Addr().BitLen()-b.Bits() < 10 && len(b.addrs) != 1<<(b.Addr().BitLen()-b.Bits()) {
				t.Fatalf("%s has others than %v", b, b.addrs)
			}
		}
		if held != len(sortedAddrs(addrs)) {
			t.Fatalf("blocks of %d addresses, of %d", held, len(addrs))
		}
	})
}
