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

// tiny are sizes with which a few entries create all kinds of stacks.
var tiny = Sizes{Whole: 2, Recent: 2, Base: 3, Most: 7}

// held is a stack with changing content.
type held struct {
	shape  Shape
	pieces []entries.Piece
}

// become changes the stack to a table as an Apply does, and returns the steps. Without steps and with
// another number of ACLs, it has new ones.
func (v *held) become(x entries.List) (before, after [][]entries.Entry, steps []Step) {
	t := tiny.NewTable(x)
	want, fits := []entries.Piece(nil), v.pieces != nil
	if fits {
		want, fits = tiny.Fit(v.shape, v.pieces, t)
	}
	if fits {
		steps, fits = Changes(v.pieces, want)
	}
	if !fits {
		v.shape, want = tiny.New(t)
		v.pieces, steps = want, nil
	}
	for n, p := range want {
		before, after = append(before, v.pieces[n].Entries), append(after, p.Entries)
	}
	v.pieces = want
	return before, after, steps
}

// restart drops what a new renderer would not know.
func (v *held) restart() {
	for n, p := range v.pieces {
		v.pieces[n] = entries.NewPiece(slices.Clone(p.Entries), nil)
	}
}

// aTable generates a table about two sets.
func aTable(t *rapid.T) *cache.Table {
	rule := rapid.Custom(func(t *rapid.T) api.ContivRule {
		r := api.ContivRule{Action: api.Action(rapid.IntRange(0, 1).Draw(t, "action")), Protocol: api.TCP}
		r.Src = rapid.SampledFrom([]api.Net{{}, api.SetNet(1), api.SetNet(1), api.SetNet(2), api.PrefixNet(netip.MustParsePrefix("10.0.0.4/31"))}).Draw(t, "src")
		r.DstPort = rapid.SampledFrom([]api.PortRange{{}, api.Port(80)}).Draw(t, "port")
		return r
	})
	return &cache.Table{Rules: append(rapid.SliceOfN(rule, 1, 5).Draw(t, "rules"), api.ContivRule{})}
}

func TestFitHoldsTableThroughChanges(t *testing.T) {
	recents := 0
	rapid.Check(t, func(t *rapid.T) {
		sets := cache.New(api.Egress)
		v := &held{}
		table := aTable(t)
		for range rapid.IntRange(1, 12).Draw(t, "changes") {
			switch rapid.IntRange(0, 7).Draw(t, "kind") {
			case 0:
				table = aTable(t)
			case 1:
				v.restart()
			default:
				id := api.SetID(rapid.IntRange(1, 2).Draw(t, "set"))
				a := netip.AddrFrom4([4]byte{10, 0, 0, byte(rapid.IntRange(0, 7).Draw(t, "member"))})
				if p := []netip.Prefix{netip.PrefixFrom(a, 32)}; sets.InSet(id, a) {
					sets.UpdateSet(id, nil, p)
				} else {
					sets.UpdateSet(id, p, nil)
				}
			}
			x, err := expand.New(sets.Aggregated).Expand(table, 0, len(table.Rules))
			if err != nil {
				t.Fatal(err)
			}
			before, after, steps := v.become(x)
			stages(t, before, after, steps)
			v.check(t, x)
			if v.shape.Base > 0 && len(v.pieces[len(v.pieces)-2].Entries) > 0 {
				recents++
			}
			v.restart()
			if _, _, again := v.become(x); len(again) > 0 {
				t.Fatalf("the same table again takes %d messages", len(again))
			}
			v.check(t, x)
		}
	})
	if recents == 0 && !testing.Short() {
		t.Error("no entry was ever recent")
	}
}

// check compares verdicts with those of the table, and checks the rules of entries.
func (v *held) check(t *rapid.T, x entries.List) {
	var acls [][]entries.Entry
	for n, p := range v.pieces {
		if len(p.Rules) != len(p.Entries) || len(p.Entries) != p.Count || len(p.Entries) > tiny.Most {
			t.Fatalf("acl %d has %d entries of %d with %d rules", n, len(p.Entries), p.Count, len(p.Rules))
		}
		acls = append(acls, p.Entries)
		for i, e := range p.Entries {
			if !slices.ContainsFunc(x.Entries, func(o entries.Entry) bool {
				decides := o
				decides.Src = e.Src
				return decides == e && o.Src.Contains(&e.Src)
			}) || !slices.Contains(x.Rules, p.Rules[i]) {
				t.Fatalf("entry %q of acl %d, of rule %d, is not in %q", entriestest.Text([]entries.Entry{e}), n, p.Rules[i], entriestest.Text(x.Entries))
			}
		}
	}
	for _, f := range universe {
		if got, want := judge(acls, f), judge([][]entries.Entry{x.Entries}, f); got != want {
			t.Fatalf("%s meets verdict %d, want %d\ntable %q\nacls %q", f, got, want, entriestest.Text(x.Entries), texts(acls))
		}
	}
}

// TestFitChangesOneACL has a base of 8 permits, of which two leave while others join.
func TestFitChangesOneACL(t *testing.T) {
	z := Sizes{Whole: 2, Recent: 2, Base: 100, Most: 100}
	table := func(of ...int) *Table {
		var x entries.List
		for _, i := range of {
			x.Add(0, entriestest.Many(20, -1).Entries[i])
		}
		x.Add(1, entries.Everything(entries.Deny)...)
		return z.NewTable(x)
	}
	shape, pieces := z.New(table(0, 1, 2, 3, 4, 5, 6, 7))
	for _, x := range []struct {
		what string
		of   []int
		want []int // ACLs that are written
	}{
		{"one joins", []int{0, 1, 2, 3, 4, 5, 6, 7, 8}, []int{2}},
		{"another one", []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, []int{2}},
		{"an old one leaves", []int{0, 1, 2, 4, 5, 6, 7, 8, 9}, []int{1}},
		{"a recent one leaves", []int{0, 1, 2, 4, 5, 6, 7, 9}, []int{2}},
		{"there is no room for two more", []int{0, 1, 2, 4, 5, 6, 7, 9, 10, 11}, []int{1, 2}},
		{"an old one leaves, and one joins", []int{0, 2, 4, 5, 6, 7, 9, 10, 11, 12}, []int{1}},
	} {
		want, ok := z.Fit(shape, pieces, table(x.of...))
		steps, _ := Changes(pieces, want)
		var at []int
		for _, s := range steps {
			at = append(at, s.At)
		}
		if !ok || !slices.Equal(at, x.want) {
			t.Errorf("%s: %v, ACLs %v are written, want %v", x.what, ok, at, x.want)
		}
		pieces = want
	}
}

// permit returns a permit of a source, a destination and a port.
func permit(src, dst entries.Net, port uint16) entries.Entry {
	return entries.Entry{Verdict: entries.Reflect, Protocol: api.TCP, Src: src, Dst: dst, SrcPort: entries.AnyPorts, DstPort: entries.Ports{First: port, Last: port}}
}

func host(i int) entries.Net {
	return entries.NetOf(netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), 32))
}

// TestBaseIsDividedByWhatDiffers: rules about senders leave the source open.
func TestBaseIsDividedByWhatDiffers(t *testing.T) {
	for name, entry := range map[string]func(i int) entries.Entry{
		"sources":      func(i int) entries.Entry { return permit(host(i), entries.AnyIPv4, 80) },
		"destinations": func(i int) entries.Entry { return permit(entries.AnyIPv4, host(i), 80) },
	} {
		var x entries.List
		for i := range 40 {
			x.Add(0, entry(i))
		}
		x.Add(1, entries.Everything(entries.Deny)...)
		z := Sizes{Whole: 2, Recent: 2, Base: 10, Most: 40}
		shape, pieces := z.New(z.NewTable(x))
		for n, p := range pieces[shape.Front : shape.Front+shape.Base] {
			if len(p.Entries) == 0 || len(p.Entries) > 25 {
				t.Errorf("%s: ACL %d of %d has %d of 40 permits", name, n, shape.Base, len(p.Entries))
			}
		}
	}
}

// TestNoACLIsTooLarge, also where all permits are those of one address.
func TestNoACLIsTooLarge(t *testing.T) {
	var x entries.List
	for i := range 50 {
		x.Add(0, permit(host(1), entries.AnyIPv4, uint16(i+1)))
	}
	x.Add(1, entries.Everything(entries.Deny)...)
	shape, pieces := tiny.New(tiny.NewTable(x))
	n := 0
	for _, p := range pieces {
		if n += len(p.Entries); len(p.Entries) > tiny.Most {
			t.Errorf("an ACL has %d entries, at most %d may be", len(p.Entries), tiny.Most)
		}
	}
	if n != len(x.Entries) {
		t.Errorf("%d of %d entries are in ACLs", n, len(x.Entries))
	}
	again, ok := tiny.Fit(shape, pieces, tiny.NewTable(x))
	if steps, _ := Changes(pieces, again); !ok || len(steps) > 0 {
		t.Errorf("the same table again: %t, %d messages", ok, len(steps))
	}
}
