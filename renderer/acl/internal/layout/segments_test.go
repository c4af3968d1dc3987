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

// tiny are sizes with which a few entries create all kinds of ACLs.
var tiny = Sizes{Whole: 2, Young: 2, Peers: 2, Warm: 4, Full: 5, Most: 7}

// tables is a slot with changing content.
type tables struct{ held Content }

// is changes the slot to a table as a commit does, and returns the steps.
func (v *tables) is(x entries.List, how How) (before, after [][]entries.Entry, messages []Step) {
	t := tiny.NewTable(x)
	c, fits := Content{}, len(v.held.Pieces) > 0
	if fits {
		c, fits = tiny.Refit(v.held, t, how)
	}
	if fits {
		messages, fits = Changes(v.held.Pieces, c.Pieces)
	}
	if !fits {
		c = tiny.New(t)
		v.held = c
	}
	for n, p := range c.Pieces {
		before, after = append(before, v.held.Pieces[n].Entries), append(after, p.Entries)
	}
	v.held = c
	return before, after, messages
}

// restart drops what a new renderer would not know.
func (v *tables) restart() {
	roles, pieces := v.held.Roles, v.held.Pieces
	v.held = Content{}
	for n, p := range pieces {
		r := Role{}
		if text := roles[n].String(); text != "" {
			r, _ = RoleOf(text[0])
		}
		if r != roles[n] {
			panic("a role is not read back")
		}
		v.held.Roles = append(v.held.Roles, r)
		v.held.Pieces = append(v.held.Pieces, entries.NewPiece(slices.Clone(p.Entries), nil))
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
	return &cache.Table{Rules: rapid.SliceOfN(rule, 1, 5).Draw(t, "rules")}
}

func TestRefitHoldsTableThroughChanges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sets := cache.New(api.Egress)
		v := &tables{}
		table := aTable(t)
		for range rapid.IntRange(1, 12).Draw(t, "changes") {
			switch rapid.IntRange(0, 5).Draw(t, "kind") {
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
			before, after, changes := v.is(x, rapid.SampledFrom([]How{Usual, Compacting}).Draw(t, "how"))
			stages(t, before, after, changes)
			v.check(t, x)
			v.restart()
			if !tiny.Holds(v.held, tiny.NewTable(x)) {
				t.Fatal("it is not seen that the slot holds the table")
			}
			if _, _, again := v.is(x, Usual); len(again) > 0 {
				t.Fatalf("the same table again takes %d messages", len(again))
			}
			v.check(t, x)
		}
	})
}

// of returns the entries of a rule.
func (v *tables) of(x entries.List, rule int32) (out []entries.Entry) {
	for i, e := range x.Entries {
		if x.Rules[i] == rule {
			out = append(out, e)
		}
	}
	return out
}

// check compares verdicts with those of the table, and checks the rules of entries.
func (v *tables) check(t *rapid.T, x entries.List) {
	var acls [][]entries.Entry
	for n, p := range v.held.Pieces {
		if len(p.Rules) != len(p.Entries) || len(p.Entries) != p.Count || len(p.Entries) > tiny.Most {
			t.Fatalf("acl %d has %d entries of %d with %d rules", n, len(p.Entries), p.Count, len(p.Rules))
		}
		acls = append(acls, p.Entries)
		for i, e := range p.Entries {
			if !slices.ContainsFunc(v.of(x, p.Rules[i]), func(o entries.Entry) bool { return o.IsLike(&e) && (o.Src.Contains(&e.Src) || e.Src.Contains(&o.Src)) }) {
				t.Fatalf("entry %q of acl %d is said to come from rule %d of %q", entriestest.Text([]entries.Entry{e}), n, p.Rules[i], entriestest.Text(x.Entries))
			}
		}
	}
	for _, f := range universe {
		if got, want := judge(acls, f), judge([][]entries.Entry{x.Entries}, f); got != want {
			t.Fatalf("%s meets verdict %d, want %d\ntable %q\nacls %q", f, got, want, entriestest.Text(x.Entries), texts(acls))
		}
	}
}

// TestTablesWithOneLargeRuleShareItsACLs has tables with other rules about few addresses, which are
// warm, or about so many that they are cold.
func TestTablesWithOneLargeRuleShareItsACLs(t *testing.T) {
	z := DefaultSizes()
	tableWith := func(others int) Content {
		var x entries.List
		for i := range others + z.Full + 10 {
			e := entries.Entry{Dst: entries.AnyIPv4, Verdict: entries.Reflect, Protocol: api.TCP, SrcPort: entries.AnyPorts, DstPort: entries.AnyPorts}
			rule, at := 1, i-others
			if i < others {
				e.DstPort, rule, at = entries.Ports{First: 9, Last: 9}, 0, i
			}
			e.Src = entries.NetOf(netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(at >> 8), byte(at), 1}), 32))
			x.Add(int32(rule), e)
		}
		return z.New(z.NewTable(x))
	}
	alone := tableWith(0)
	if n := len(alone.Pieces); n != 6 {
		t.Fatalf("a rule of %d entries is in %d ACLs", z.Full+10, n)
	}
	for _, c := range []struct{ others, warm, acls int }{{3, 3, 6}, {z.Warm / 2, z.Warm / 2, 6}, {z.Warm/2 + 1, 0, 7}} {
		got := tableWith(c.others)
		young := got.Pieces[len(got.Pieces)-2]
		if len(got.Pieces) != c.acls || got.Pieces[len(got.Pieces)-3].Count != c.warm || young.Count != 0 {
			t.Errorf("with %d others: %v of %d entries", c.others, got.Roles, entries.CountOf(got.Pieces))
		}
		for n := range 2 {
			if got.Pieces[1+n].Digest != alone.Pieces[1+n].Digest || &got.Pieces[1+n].Entries[0] != &alone.Pieces[1+n].Entries[0] {
				t.Errorf("with %d others, ACL %d is not that of the other tables", c.others, n)
			}
		}
		if entries.CountOf(got.Pieces) != z.Full+10+c.others {
			t.Errorf("%d entries with %d others", entries.CountOf(got.Pieces), c.others)
		}
	}
}

// TestEditionsAreOfOneEdit edits equal segments of two tables in ways that have one size.
func TestEditionsAreOfOneEdit(t *testing.T) {
	old := entries.NewPiece(entriestest.Many(6, -1).Entries, nil)
	other := entriestest.Many(9, -1).Entries
	edited := func(edits ...edit) *segment {
		s := newSegment(old, []int32{0, 1, 2, 3, 4, 5})
		s.edits = edits
		s.apply()
		return s
	}
	with := func(n int) []ruled { return []ruled{{other[n], int32(n)}} }
	first := edited(edit{1, 2, with(7)})
	for _, c := range []struct {
		edits []edit
		want  []int // of other; the rules are the same
	}{
		{[]edit{{1, 2, with(7)}}, []int{0, 7, 2, 3, 4, 5}},
		{[]edit{{2, 3, with(7)}}, []int{0, 1, 7, 3, 4, 5}},
		{[]edit{{1, 3, with(7)}}, []int{0, 7, 3, 4, 5}},
		{[]edit{{1, 2, with(8)}}, []int{0, 8, 2, 3, 4, 5}},
		{[]edit{{1, 2, nil}, {4, 5, with(7)}}, []int{0, 2, 3, 7, 5}},
		{[]edit{{1, 2, with(7)}, {4, 5, nil}}, []int{0, 7, 2, 3, 5}},
	} {
		s := edited(c.edits...)
		for i, n := range c.want {
			if s.size() != len(c.want) || s.old.Entries[i] != other[n] || s.rules[i] != int32(n) {
				t.Fatalf("after %v: %q of rules %v, want entries %v", c.edits, entriestest.Text(s.old.Entries), s.rules, c.want)
			}
		}
		if s.old.Digest != entries.DigestOf(s.old.Entries) {
			t.Errorf("after %v the digest is another one", c.edits)
		}
	}
	if again := edited(edit{1, 2, with(7)}); &again.old.Entries[0] != &first.old.Entries[0] {
		t.Error("the same edit is stored twice")
	}
}
