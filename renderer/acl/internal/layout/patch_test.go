package layout

import (
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer/acl/internal/entries"
	"github.com/sluice-net/sluice/renderer/acl/internal/entries/entriestest"
	"github.com/sluice-net/sluice/renderer/acl/internal/expand"
	"github.com/sluice-net/sluice/renderer/cache"
)

// TestPatchIsRefit: what a change of sets changes is what the comparison of all entries finds.
func TestPatchIsRefit(t *testing.T) {
	patched, tried := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		sets := cache.New(api.Egress)
		in := map[api.SetID]map[netip.Prefix]bool{1: {}, 2: {}, 3: {}}
		toggle := func() {
			id := api.SetID(rapid.IntRange(1, 3).Draw(t, "set"))
			n := byte(rapid.IntRange(0, 47).Draw(t, "member"))
			p := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, n}), 32)
			if n >= 40 {
				p = netip.PrefixFrom(netip.AddrFrom16([16]byte{0xfd, 15: n}), 128)
			}
			if in[id][p] = !in[id][p]; in[id][p] {
				sets.UpdateSet(id, []netip.Prefix{p}, nil)
			} else {
				sets.UpdateSet(id, nil, []netip.Prefix{p})
			}
		}
		for range 60 {
			toggle()
		}
		table := aTable(t)
		for i := range table.Rules {
			if table.Rules[i].Src == api.SetNet(1) {
				table.Rules[i].Src = api.SetNet(api.SetID(1 + i%3))
			}
		}
		sizes := Sizes{Whole: 2, Young: 3, Peers: 2, Warm: 6, Full: 8, Most: 14}
		x, lines, err := expand.New(sets.Aggregated).ExpandLocal(table)
		if err != nil {
			t.Fatal(err)
		}
		held := sizes.New(sizes.NewTable(x))
		for range rapid.IntRange(1, 20).Draw(t, "changes") {
			for range rapid.IntRange(1, 3).Draw(t, "at once") {
				toggle()
			}
			e := expand.New(sets.Aggregated)
			now, fresh, err := e.ExpandLocal(table)
			if err != nil {
				t.Fatal(err)
			}
			want, fits := sizes.Refit(held, sizes.NewTable(now), Usual)
			tried++
			if c, ok := e.Change(lines, table); ok && held.IsInOrder() {
				got, ok := sizes.Patch(held, c.Change)
				if ok {
					patched++
					same := func(a, b entries.Piece) bool { return a.Digest == b.Digest && slices.Equal(a.Rules, b.Rules) }
					if !fits || !slices.EqualFunc(got.Pieces, want.Pieces, same) || !slices.Equal(got.Roles, want.Roles) {
						t.Fatalf("patched around %v: %v, want %v (fits: %t)\nfrom %v\ntable %q", c.Around, textsOf(got), textsOf(want), fits, textsOf(held), entriestest.Text(now.Entries))
					}
				}
				fresh = c.Now
			}
			if held, lines = want, fresh; !fits {
				held = sizes.New(sizes.NewTable(now))
			}
		}
	})
	if patched < tried/2 {
		t.Errorf("%d of %d changes are patched, want more", patched, tried)
	}
}

func textsOf(c Content) (out [][]string) {
	for _, p := range c.Pieces {
		out = append(out, entriestest.Text(p.Entries))
	}
	return out
}
